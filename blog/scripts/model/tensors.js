// Numbers of the model: how they are read, and what is computed with a few of them. A sequence of
// vectors is an array of Float32Array, one for each position.

// All 65,536 numbers of 16 bits: a sign, five bits of exponent, ten of fraction.
const halves = () =>
  Float32Array.from({ length: 65536 }, (_, bits) => {
    const sign = bits >> 15 ? -1 : 1,
      exponent = (bits >> 10) & 31,
      fraction = bits & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return (
      sign *
      (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024))
    );
  });

// Weights in float16 as {name: {shape, data}}. bytes: the lower byte of every number, then the
// upper one of every number.
export function readTensors(shapes, bytes) {
  const half = bytes.length / 2,
    HALVES = halves();
  let at = 0;
  return Object.fromEntries(
    Object.entries(shapes).map(([name, shape]) => {
      const data = new Float32Array(shape.reduce((a, b) => a * b, 1));
      for (let i = 0; i < data.length; i++, at++)
        data[i] = HALVES[bytes[at] | (bytes[half + at] << 8)];
      return [name, { shape, data }];
    }),
  );
}

// The bytes of what was compressed by gzip and written in base64.
export async function unpack(packed) {
  const text = atob(packed),
    bytes = new Uint8Array(text.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Response(bytes).body.pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export function dot(a, i, b, j, n) {
  // of n entries, from a[i] and b[j] on; four sums, so that no product waits for another
  let s0 = 0,
    s1 = 0,
    s2 = 0,
    s3 = 0,
    k = 0;
  for (; k + 3 < n; k += 4) {
    s0 += a[i + k] * b[j + k];
    s1 += a[i + k + 1] * b[j + k + 1];
    s2 += a[i + k + 2] * b[j + k + 2];
    s3 += a[i + k + 3] * b[j + k + 3];
  }
  for (; k < n; k++) s0 += a[i + k] * b[j + k];
  return s0 + s1 + s2 + s3;
}

export const add = (x, y) => x.map((vector, t) => vector.map((value, i) => value + y[t][i]));

// x W^T + b for every position.
export function linear(
  x,
  {
    weight: {
      shape: [outputs, inputs],
      data,
    },
    bias,
  },
) {
  return x.map((vector) => {
    const y = new Float32Array(outputs);
    for (let o = 0; o < outputs; o++)
      y[o] = dot(data, o * inputs, vector, 0, inputs) + (bias ? bias.data[o] : 0);
    return y;
  });
}

export function softmax(scores) {
  const largest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const powers = Float64Array.from(scores, (score) => Math.exp(score - largest));
  const sum = powers.reduce((a, b) => a + b, 0);
  return powers.map((power) => power / sum);
}

export function logSoftmax(scores) {
  const largest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  const sum = scores.reduce((total, score) => total + Math.exp(score - largest), 0);
  return Float64Array.from(scores, (score) => score - largest - Math.log(sum));
}

// The k largest entries: their places, the largest first.
export function largest(values, k) {
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
