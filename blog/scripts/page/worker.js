/** A worker for the text of a script; `heard` is told what it posts. */
export function startWorker(source, heard) {
  const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" })),
    worker = new Worker(address);
  URL.revokeObjectURL(address);
  if (heard) worker.onmessage = ({ data }) => heard(data);
  return worker;
}
