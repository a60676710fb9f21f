// The English of the German words of the ready sentences, word by word, so that a reader without
// German knows what he hides, and whom a word looks at.

import { el } from "./dom.js";

/** @type {Record<string, string>} by sentence */
const ENGLISH = {
  "Zwei Frauen sitzen auf einer Bank, während ein Mann eine Zeitung liest.":
    "two women sit on a bench while a man a newspaper reads",
  "Ein kleiner Junge spielt im Park mit einem Hund.": "a little boy plays in-the park with a dog",
  "Eine Frau, die ein rotes Kleid trägt, liest an einem See ein Buch.":
    "a woman who a red dress wears reads by a lake a book",
  "Ein Mann hebt einen Hund auf.": "a man picks a dog up",
  "Drei Kinder bauen am Strand eine große Burg aus Sand.":
    "three children build on-the beach a big castle of sand",
  "Zwei Männer in blauen Jacken reparieren das Dach eines Hauses.":
    "two men in blue jackets repair the roof of-a house",
  "Ein Hund springt über einen umgefallenen Baumstamm, während eine Katze zusieht.":
    "a dog jumps over a fallen log while a cat watches",
  "Ein alter Mann mit einem grauen Bart sitzt auf einer Bank und spielt mit seinem kleinen Hund.":
    "an old man with a grey beard sits on a bench and plays with his small dog",
  "Die Bundeskanzlerin beantwortet die Fragen der Journalisten.":
    "the chancellor answers the questions of-the journalists",
  "Die Katze sitzt nicht auf dem Sofa.": "the cat sits not on the sofa",
  "Ein hund spielt im park.": "a dog plays in-the park",
  "Ein Mann geht zur Bank, um Geld abzuheben.": "a man goes to-the bank to money withdraw",
  "Guten Tag, wie geht es Ihnen?": "good day how goes it for-you",
  "37 Leute stehen in einer Schlange.": "37 people stand in a queue",
  "Den Hund beißt der Mann.": "the(whom) dog bites the(who) man",
  "Ein Hund jagt einen Mann.": "a dog chases a man",
  "Ein Mann jagt einen Hund.": "a man chases a dog",
  "Ein Hund fotografiert einen Mann.": "a dog photographs a man",
};

// words that the model takes for similar to theirs
const NEIGHBOURS = `als when alt old alte old alten old asiaten Asians außerhalb outside bei at
beim at-the beobachten watch beobachtet watches berg mountain betrachten look-at bilder pictures
blau blue blaue blue blauer blue brille glasses bücher books couch couch dame lady damen ladies
damit with-it darauf on-it das the dem the denen whom der the dessen whose dies this drei three
durch through es it etwas something familie family feld field fenster window fluss river foto
photo fotografieren photograph fotos photos für for gebäude building gehen go gehsteig pavement
grauer grey großen big großer big großes big hafen harbour handtasche handbag haus house heben
lift hinauf up hinaus out holz wood hunde dogs hunden dogs hundes dog’s hüpft hops ihrem her ihres
her ist is jacke jacket jagen chase jemand somebody jungen boys kind child kindern children
kleidern dresses kleidung clothes kleine small kleiner little kleines small koch cook küche
kitchen küste coast lastwagen lorry leiter ladder lesen read leuten people liegt lies läuft runs
macht makes mannes man’s meer sea menschen people mädchen girl männern men mänteln coats nachdem
after nahe near neben beside nur only oberteil top oder or overall overalls parkbank park-bench
parkplatz car-park personen people reihe row rennt runs repariert repairs rot red rote red roter
red rucksack backpack runden round schauen look schaut looks schläft sleeps schnell fast
schnurrbart moustache schuhe shoes sees lake’s seine his seinen his seiner his singt sings
sitzende sitting sitzender sitting spielen play sprechen speak spricht speaks springen jump statt
instead steht stands straße street stuhl chair tag day tanzt dances tisch table tochter daughter
tragen wear trinkt drinks ufer shore verfolgt pursues voll full vom from-the von of vor before
weiß white wobei while zum to-the zurück back zuschauen watch zuschaut watches zwei two älterer
elderly über over`.split(/\s+/);

/** Of all of them, and of the ready sentences', in small letters. @type {Map<string, string>} */
const WORDS = new Map();
for (let i = 0; i < NEIGHBOURS.length; i += 2) WORDS.set(NEIGHBOURS[i], NEIGHBOURS[i + 1]);
for (const [sentence, english] of Object.entries(ENGLISH).reverse()) {
  const words = sentence.toLowerCase().match(/[\p{L}\d]+/gu) ?? [];
  for (const [i, word] of words.entries()) WORDS.set(word, english.split(" ")[i]);
}

/** The English of each of its words; nothing for a sentence that isn't among them.
 *  @param {string} sentence @returns {string[]} */
export const gloss = (sentence) => ENGLISH[sentence.trim()]?.split(" ") ?? [];

const spelled = (/** @type {string} */ english) => english.replaceAll("-", " ");

/** The English of each of a sentence's tokens: that of a word stands at its first piece. */
export function glossOf(/** @type {string} */ sentence, /** @type {string[]} */ tokens) {
  const english = gloss(sentence).values();
  return tokens.map((token) => (token.startsWith("▁") ? spelled(english.next().value ?? "") : ""));
}

/** A German token's name and its English, by default that of a word that stands alone. */
export const glossed = (
  /** @type {string} */ name,
  english = spelled(WORDS.get(name.toLowerCase()) ?? ""),
) => (english && english !== name ? `${name} ‘${english}’` : name);

/** A sentence with its English above its words. @returns {(string | HTMLElement)[]} */
export function interlinear(/** @type {string} */ sentence) {
  const english = gloss(sentence);
  if (!english.length) return [sentence];
  return sentence.split(" ").flatMap((word, i) => {
    const above = el("rt", { lang: "en", textContent: spelled(english[i]) });
    const ruby = el("ruby", {}, word, above);
    return i ? [" ", ruby] : [ruby];
  });
}
