/** Arithmetic on vectors, in double precision and in index order, so that the same input gives the same output. Pure. */

export type Vector = ArrayLike<number>;

export function dot(a: Vector, b: Vector): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}

/** A vector of length one in the same direction; the zero vector stays what it is. */
export function normalized(vector: Vector): Float64Array {
  const length = Math.sqrt(dot(vector, vector));
  return Float64Array.from(vector, (value) => (length > 0 ? value / length : value));
}

/** Probabilities that sum to one. Subtracting the largest value first keeps `exp` from overflowing. */
export function softmax(logits: Vector): number[] {
  const values = Array.from(logits);
  const top = Math.max(...values);
  const weights = values.map((value) => Math.exp(value - top));
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  return weights.map((weight) => weight / total);
}

/** A probability per value; `exp` only ever sees numbers that are not positive. */
export function sigmoid(value: number): number {
  const small = Math.exp(-Math.abs(value));
  return value >= 0 ? 1 / (1 + small) : small / (1 + small);
}
