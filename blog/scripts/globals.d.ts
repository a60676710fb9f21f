// What the pages' scripts find beside JavaScript's own.

/** The text of another script, for a worker or a frame (bundle.js). */
declare module "bundle:*" {
  const text: string;
  export default text;
}
/** A page in another language: its texts by the English ones. */
declare var WORDS: Record<string, string> | undefined;
/** What a document in a frame is given by the page (views/frames.js). */
declare var GIVEN: any[]; // each frame has values of its own
/** The mistakes that the editors tell (page.py): what is said of each, and by the reader's function
 *  the whole texts with them, each after its mistake's name. */
declare var WRITTEN: {
  mistakes: Record<string, { line: string; effect: string }>;
  forms: Record<string, [string, string][]>;
};
/** The settings that one_screen.py is tried with on its page (listing.py). */
declare var SETTINGS_HERE: Record<string, number>;
/** MicroPython's, whose script precedes that of the editors' worker. */
declare function loadMicroPython(options: object): Promise<any>; // it has no types
