// What the browser keeps for a reader until his next visit, or until the tab is closed. A page may
// not be allowed to keep anything: then he begins anew each time.

/** @template Value @param {string} name @param {Value} otherwise
 *  @param {"localStorage" | "sessionStorage"} where @returns {Value} */
export function recall(name, otherwise, where = "localStorage") {
  try {
    return JSON.parse(globalThis[where][name] || "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {unknown} value
 *  @param {"localStorage" | "sessionStorage"} where */
export function remember(name, value, where = "localStorage") {
  try {
    globalThis[where][name] = JSON.stringify(value);
  } catch {
    // not kept
  }
}
