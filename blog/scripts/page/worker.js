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
