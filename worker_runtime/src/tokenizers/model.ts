/** What turns a piece of normalised text into ids. */

export interface Model {
  /** Append the ids of `piece`, which is not empty and has no lone surrogates. */
  encode(piece: string, ids: number[]): void;
}
