// What the browser keeps for a reader until his next visit. A page may not be allowed to keep
// anything: then he begins anew each time.

/** @template Value @param {string} name @param {Value} otherwise @returns {Value} */
export function recall(name, otherwise) {
  try {
    return JSON.parse(localStorage[name] || "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}

/** @param {string} name @param {unknown} value */
export function remember(name, value) {
  try {
    localStorage[name] = JSON.stringify(value);
  } catch {
    // not kept
  }
}
