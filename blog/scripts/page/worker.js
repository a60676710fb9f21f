// Workers, which are texts of scripts.

/** A worker for the text of a script.
 *  @param {string} source
 *  @param {(data: any) => void} [heard] is told what it posts, which each worker defines */
export function startWorker(source, heard) {
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const worker = new Worker(address);
  URL.revokeObjectURL(address);
  if (heard) worker.onmessage = ({ data }) => heard(data);
  return worker;
}

/** Asks a worker, which is started with the first question, and answers one after the other.
 *  @template Question, Answer
 *  @param {string} source @returns {(question: Question) => Promise<Answer>} */
export function asker(source) {
  /** @type {Worker | undefined} */
  let worker;
  /** @type {((answer: Answer) => void)[]} */
  const waiting = [];
  return (question) =>
    new Promise((resolve) => {
      worker ??= startWorker(source, (answer) => waiting.shift()?.(answer));
      waiting.push(resolve);
      worker.postMessage(question);
    });
}
