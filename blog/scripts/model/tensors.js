// Numbers of the model: how they are read, and what is computed with a few of them. A sequence of
// vectors is an array of Float32Array, one for each position.

/** A number of 16 bits: a sign, five bits of exponent, ten of fraction. @param {number} bits */
function half(bits) {
  const sign = bits >> 15 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = (bits & 1023) / 1024;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction) : 2 ** -14 * fraction);
}

/** Weights by their names. Those in float16 come first, the lower byte of every number, then the
 *  upper one of every number; then, if there are `rows`, come matrices in 8 bits, each row to be
 *  multiplied by its number in `NAME.scale`.
 *  @param {Pick<ModelContent, "shapes" | "rows">} content @param {Uint8Array} bytes */
export function readWeights({ shapes, rows = {} }, bytes) {
  const entries = (/** @type {number[]} */ shape) => shape.reduce((a, b) => a * b, 1);
  const count = Object.values(rows).reduce((sum, shape) => sum + entries(shape), 0);
  const halves = Float32Array.from({ length: 65536 }, (_, bits) => half(bits));
  const upper = (bytes.length - count) / 2;
  /** @type {Record<string, Tensor>} */
  const tensors = {};
  let at = 0;
  for (const [name, shape] of Object.entries(shapes)) {
    const data = new Float32Array(entries(shape));
    for (let i = 0; i < data.length; i++, at++)
      data[i] = halves[bytes[at] | (bytes[upper + at] << 8)];
    tensors[name] = { shape, data };
  }
  at = 2 * upper;
  const whole = new Int8Array(bytes.buffer, bytes.byteOffset);
  for (const [name, shape] of Object.entries(rows)) {
    const scales = tensors[`${name}.scale`].data;
    delete tensors[`${name}.scale`];
    const data = new Float32Array(entries(shape));
    for (let i = 0; i < data.length; i++, at++)
      data[i] = whole[at] * scales[Math.floor(i / shape[1])];
    tensors[name] = { shape, data };
  }
  return tensors;
}

/** The bytes of what was compressed by gzip and written in base64. @param {string} packed */
export async function unpack(packed) {
  const text = atob(packed);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  // not a Blob's stream, which WebKit can't read in a worker of a page that is a file
  const { body } = new Response(bytes);
  const unzipped = body?.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(unzipped).arrayBuffer());
}

/** That of n entries, from a[i] and b[j] on; four sums, so that no product waits for another.
 *  @param {Numbers} a @param {number} i @param {Numbers} b @param {number} j @param {number} n */
export function dot(a, i, b, j, n) {
  // not in one statement: an array for each product takes longer than the product
  let s0 = 0;
  let s1 = 0;
  let s2 = 0;
  let s3 = 0;
  let k = 0;
  for (; k + 3 < n; k += 4) {
    s0 += a[i + k] * b[j + k];
    s1 += a[i + k + 1] * b[j + k + 1];
    s2 += a[i + k + 2] * b[j + k + 2];
    s3 += a[i + k + 3] * b[j + k + 3];
  }
  for (; k < n; k++) s0 += a[i + k] * b[j + k];
  return s0 + s1 + s2 + s3;
}

/** @param {Vectors} x @param {Vectors} y */
export const add = (x, y) => x.map((vector, t) => vector.map((value, i) => value + y[t][i]));

/** x W^T + b for every position. @param {Vectors} x @param {Linear} layer */
export function linear(x, { weight, bias }) {
  const [outputs, inputs] = weight.shape;
  const y = x.map(() => new Float32Array(outputs));
  // a row of the matrix is read once, for all positions
  for (let o = 0; o < outputs; o++)
    for (let t = 0; t < x.length; t++)
      y[t][o] = dot(weight.data, o * inputs, x[t], 0, inputs) + (bias ? bias.data[o] : 0);
  return y;
}

/** Entry i of the encoding of a position.
 *  @param {number} position @param {number} i @param {number} d_model */
export function sinusoid(position, i, d_model) {
  const angle = position * Math.exp((-(i - (i % 2)) * Math.log(10000)) / d_model);
  return i % 2 ? Math.cos(angle) : Math.sin(angle);
}

/** Scores less the largest one: powers of these neither overflow nor are all zero. */
function lowered(/** @type {Numbers} */ scores) {
  const numbers = new Float64Array(scores); // Float64Array.from would ask for one by one
  const highest = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
  return numbers.map((score) => score - highest);
}

export function softmax(/** @type {Numbers} */ scores) {
  const powers = lowered(scores).map(Math.exp);
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

export function logSoftmax(/** @type {Numbers} */ scores) {
  const differences = lowered(scores);
  const logSum = Math.log(differences.reduce((sum, score) => sum + Math.exp(score), 0));
  return differences.map((score) => score - logSum);
}

/** The mean of rows, entry by entry: of what all heads look at. @param {Numbers[]} rows */
export const meanOf = (rows) =>
  Array.from(rows[0], (_, k) => rows.reduce((sum, row) => sum + row[k], 0) / rows.length);

/** The places of the k largest entries, the largest first. */
export function largest(/** @type {Numbers} */ values, /** @type {number} */ k) {
  /** @type {number[]} */
  const places = [];
  for (let i = 0; i < values.length; i++) {
    if (places.length === k && values[i] <= values[places[k - 1]]) continue;
    let at = places.length;
    while (at > 0 && values[places[at - 1]] < values[i]) at--;
    places.splice(at, 0, i);
    if (places.length > k) places.pop();
  }
  return places;
}
