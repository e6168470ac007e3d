/**
 * BERT's text normalisation exactly as the Rust crate `tokenizers` does it. Pure.
 *
 * It stands in for the one in @huggingface/tokenizers 0.2.0, which differs in two ways: Han characters outside the
 * basic plane get no spaces around them, and a capital sigma that ends a word becomes a final sigma.
 */

export interface BertNormalization {
  readonly clean_text?: boolean;
  readonly handle_chinese_chars?: boolean;
  readonly strip_accents?: boolean | null;
  readonly lowercase?: boolean;
}

/** Dropped: NUL, the replacement character, and control, format, private and surrogate code points but tab and newlines. */
const DROPPED = /(?![\t\n\r])[\0\ufffd\p{Cc}\p{Cf}\p{Co}\p{Cs}]/gu;
/** The crate's ranges; it starts extension E at U+2B920 where Unicode has U+2B820. */
const HAN =
  /[\u4e00-\u9fff\u3400-\u4dbf\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\uf900-\ufaff\u{2f800}-\u{2fa1f}]/gu;

export function bertNormalize(text: string, options: BertNormalization): string {
  const { clean_text: clean = true, handle_chinese_chars: spaced = true, lowercase = true } = options;
  let result = text;
  if (clean) result = result.replace(DROPPED, "").replace(/\s/gu, " ");
  if (spaced) result = result.replace(HAN, " $& ");
  if (options.strip_accents ?? lowercase) result = result.normalize("NFD").replace(/\p{Mn}/gu, "");
  // The crate lower-cases character by character, so without the one rule that looks at neighbours.
  if (lowercase) result = result.replaceAll("\u03a3", "\u03c3").toLowerCase();
  return result;
}
