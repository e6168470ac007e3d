// ATTENTION in integers, as edgespec/engine/reference.py defines it: queries and keys are rounded by token and head, values
// by column, and the exponentials of a row to whole numbers, of which the largest is `share`. Both products are LINEAR's.
#include "activations.h"

enum { ROWS_AT_ONCE = 16 };

// The text and key head at work.
typedef struct {
  const AttentionArgs *a;
  u32 causal, count, head, wide, word;  // wide: head rounded up to 8; word: bytes of an integer
  float query, key, share, value;       // the largest integers
  i32 query_zero, share_zero;           // what the dot product wants to have added
} Scope;

// A block of queries, and the keys from `base` on that some of them see.
typedef struct {
  u32 first, rows, base, width, end;
} Block;

// x * by, rounded: adding `magic`, 1.5 * 2^23, leaves a whole number in the low bits, above its own bits.
ALWAYS v128_t whole(v128_t x, v128_t by, v128_t magic) {
  return wasm_i32x4_sub(wasm_f32x4_add(wasm_f32x4_mul(x, by), magic), magic);
}

ALWAYS v128_t scales_of(v128_t largest, float top) {
  return wasm_f32x4_pmax(wasm_f32x4_div(largest, SPLAT(top)), SPLAT(1e-20f));
}

// Sums of 4 bytes each.
ALWAYS v128_t sums_of(v128_t bytes) {
  return wasm_i32x4_extadd_pairwise_i16x8(wasm_i16x8_extadd_pairwise_i8x16(bytes));
}

// 4 rows' columns from d on, of which those beyond `head` are 0.
ALWAYS void read_columns(v128_t x[4], const float *const rows[4], u32 d, u32 head) {
  for (u32 r = 0; r < 4; r++) x[r] = LOAD(rows[r] + d);
  if (d + 4 > head) {
    v128_t mask = wasm_i32x4_lt(wasm_i32x4_make(0, 1, 2, 3), wasm_i32x4_splat((i32)(head - d)));
    for (u32 r = 0; r < 4; r++) x[r] = wasm_v128_and(x[r], mask);
  }
}

// 4 rows of a head as integers, 4 columns of which follow one another, the next ones `step` bytes later. Rows beyond
// `count` repeat the last one.
static void round_rows(const Scope *s, u8 *out, u32 step, const float *in, u32 stride, u32 count, float top, i32 zero,
                       float *scales, i32 *sums) {
  const float *rows[4];
  v128_t most[4], turned[4], x[4], magic = SPLAT(12582912.f);
  HOLD(magic);
  for (u32 r = 0; r < 4; r++) rows[r] = in + (size_t)min_u32(r, count - 1) * stride, most[r] = SPLAT(0.f);
  for (u32 d = 0; d < s->head; d += 4) {
    read_columns(x, rows, d, s->head);
    for (u32 r = 0; r < 4; r++) most[r] = wasm_f32x4_pmax(most[r], wasm_f32x4_abs(x[r]));
  }
  transpose4(most, turned);
  v128_t two = wasm_f32x4_pmax(turned[0], turned[1]), others = wasm_f32x4_pmax(turned[2], turned[3]);
  v128_t scale = scales_of(wasm_f32x4_pmax(two, others), top);
  STORE(scales, scale);
  v128_t by = wasm_f32x4_div(SPLAT(1.f), scale), sum = wasm_i32x4_splat(0), shift = wasm_i8x16_splat((i8)zero);
  v128_t by0 = SPREAD(by, 0), by1 = SPREAD(by, 1), by2 = SPREAD(by, 2), by3 = SPREAD(by, 3);
  for (u32 d = 0; d < s->wide; d += 4, out += step) {
    v128_t a = SPLAT(0.f), b = a;
    if (d < s->head) {
      read_columns(x, rows, d, s->head);
      a = wasm_i16x8_narrow_i32x4(whole(x[0], by0, magic), whole(x[1], by1, magic));
      b = wasm_i16x8_narrow_i32x4(whole(x[2], by2, magic), whole(x[3], by3, magic));
    }
    if (s->word == 2) {
      STORE(out, wasm_i32x4_shuffle(a, b, 0, 2, 4, 6));
      out += step;
      STORE(out, wasm_i32x4_shuffle(a, b, 1, 3, 5, 7));
    } else {
      v128_t bytes = wasm_i8x16_narrow_i16x8(a, b);
      STORE(out, wasm_i8x16_add(bytes, shift));
      sum = wasm_i32x4_add(sum, sums_of(bytes));
    }
  }
  if (sums) STORE(sums, sum);
}

// Keys in panels of 8.
static void pack_keys(const Scope *s, const float *keys, u32 stride) {
  u32 panel = s->wide * 8 * s->word;
  for (u32 j = 0; j < PAD(s->count, 8u); j += 4) {
    u32 at = min_u32(j, s->count - 1);
    round_rows(s, engine.int_keys + (size_t)(j / 8) * panel + 4 * (j % 8), 32, keys + (size_t)at * stride, stride,
               s->count - at, s->key, 0, engine.key_scales + j, engine.key_sums + j);
  }
}

// 4 columns of values, by column.
static void pack_columns(const Scope *s, const float *values, u32 stride, u8 *out, float *scales) {
  v128_t most = SPLAT(0.f), magic = SPLAT(12582912.f);
  HOLD(magic);
  const float *row = values, *last = values + (size_t)(s->count - 1) * stride;
#pragma clang loop unroll_count(4)
  for (u32 j = 0; j < s->count; j++, row += stride) most = wasm_f32x4_pmax(most, wasm_f32x4_abs(LOAD(row)));
  v128_t scale = scales_of(most, s->value), by = wasm_f32x4_div(SPLAT(1.f), scale);
  STORE(scales, scale);
  row = values;
  for (u32 j = 0; j < PAD(s->count, 8u); j += 4, out += 32) {
    v128_t x[4];
    for (u32 r = 0; r < 4; r++, row += stride) x[r] = whole(LOAD(row < last ? row : last), by, magic);
    v128_t a = wasm_i16x8_narrow_i32x4(x[0], x[1]), b = wasm_i16x8_narrow_i32x4(x[2], x[3]);
    if (s->word == 2) {
      STORE(out, wasm_i16x8_shuffle(a, a, 0, 4, 1, 5, 2, 6, 3, 7));
      out += 32;
      STORE(out, wasm_i16x8_shuffle(b, b, 0, 4, 1, 5, 2, 6, 3, 7));
    } else {
      v128_t bytes = wasm_i8x16_narrow_i16x8(a, b);
      bytes = wasm_i8x16_shuffle(bytes, bytes, 0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
      STORE(out, bytes);
    }
  }
}

// Values in panels of 8 columns.
static void pack_values(const Scope *s, const float *values, u32 stride) {
  u32 panel = PAD(s->count, 8u) * 8 * s->word;
  for (u32 d = 0; d < s->wide; d += 4)
    pack_columns(s, values + d, stride, engine.int_values + (size_t)(d / 8) * panel + 4 * (d % 8), engine.value_scales + d);
}

// top * 2^x for x <= 0, as the reference: each step rounds by itself.
ALWAYS v128_t share4(v128_t x, const v128_t c[3], Constants k) {
  x = wasm_f32x4_pmax(C(LOW), x);
  v128_t shifted = wasm_f32x4_add(x, C(MAGIC));
  v128_t f = wasm_f32x4_sub(x, wasm_f32x4_sub(shifted, C(MAGIC)));
  v128_t p = wasm_f32x4_add(wasm_f32x4_mul(f, c[2]), c[1]);
  p = wasm_f32x4_add(wasm_f32x4_mul(p, f), c[0]);
  p = wasm_i32x4_add(p, wasm_i32x4_shl(shifted, 23));
  return wasm_i32x4_sub(wasm_f32x4_add(p, C(MAGIC)), C(MAGIC));
}

static float largest(const float *x, u32 width) {
  v128_t top = LOAD(x), other = LOAD(x + 4);
  for (u32 j = 8; j < width; j += 8)
    top = wasm_f32x4_pmax(top, LOAD(x + j)), other = wasm_f32x4_pmax(other, LOAD(x + j + 4));
  return max4(wasm_f32x4_pmax(top, other));
}

// 4 rows of scores become whole numbers of shares, in a panel; scales are 1 / their sums.
static void soften(const Scope *s, const float *scores, u32 width, u8 *out, float *scales) {
  Constants k = constants();
  v128_t most[4], sum = wasm_i32x4_splat(0);
  const v128_t c[3] = {SPLAT(s->share), SPLAT(s->share * 0.6931472f), SPLAT(s->share * 0.2402265f)};
  const v128_t ones = wasm_i16x8_splat(1), shift = wasm_i8x16_splat((i8)s->share_zero);
  for (u32 r = 0; r < 4; r++) most[r] = SPLAT(largest(scores + (size_t)r * width, width));
  for (u32 j = 0; j < width; j += 4) {
    v128_t part[4];
    for (u32 r = 0; r < 4; r++)
      part[r] = share4(wasm_f32x4_sub(LOAD(scores + (size_t)r * width + j), most[r]), c, k);
    v128_t a = wasm_i16x8_narrow_i32x4(part[0], part[1]), b = wasm_i16x8_narrow_i32x4(part[2], part[3]);
    if (s->word == 2) {
      v128_t even = wasm_i32x4_shuffle(a, b, 0, 2, 4, 6), odd = wasm_i32x4_shuffle(a, b, 1, 3, 5, 7);
      STORE(out, even);
      STORE(out + 16, odd);
      out += 32;
      sum = wasm_i32x4_add(sum, wasm_i32x4_dot_i16x8(wasm_i16x8_add(even, odd), ones));
    } else {
      v128_t bytes = wasm_u8x16_narrow_i16x8(a, b);
      STORE(out, wasm_i8x16_add(bytes, shift));
      out += 16;
      sum = wasm_i32x4_add(sum, wasm_u32x4_extadd_pairwise_u16x8(wasm_u16x8_extadd_pairwise_u8x16(bytes)));
    }
  }
  STORE(scales, wasm_f32x4_div(SPLAT(1.f), wasm_f32x4_convert_i32x4(sum)));
}

// Only the keys from `low` to `high` of a row of scores are seen.
static void mask(float *scores, u32 low, u32 high, u32 width) {
#pragma clang loop vectorize(disable) unroll(disable)
  for (u32 j = 0; j < low; j++) scores[j] = -1e30f;
#pragma clang loop vectorize(disable) unroll(disable)
  for (u32 j = high; j < width; j++) scores[j] = -1e30f;
}

static void set_zeros(i32 zero) {
  for (u32 r = 0; r < ROWS_AT_ONCE; r++) engine.zeros[r] = zero;
}

static Block block_of(const Scope *s, u32 first) {
  u32 rows = min_u32(ROWS_AT_ONCE, s->count - first), reach = s->a->window / 2, last = first + rows - 1;
  Block b = {.first = first, .rows = rows, .end = s->count};
  if (s->a->window) b.end = min_u32(b.end, last + reach + 1);
  if (s->causal) b.end = min_u32(b.end, last + 1);
  b.base = s->a->window && first > reach ? (first - reach) & ~7u : 0;
  b.width = PAD(b.end - b.base, 8u);
  return b;
}

// Scores as powers of 2, -1e30 where a key is hidden.
static void score(const Scope *s, const Block *b) {
  Target target = {.out = engine.int_scores, .stride = b->width, .rows = b->rows};
  Integers keys = {
      .data = engine.int_keys + (size_t)b->base * s->wide * s->word, .scales = engine.key_scales + b->base,
      .sums = engine.key_sums + b->base, .panels = b->width / 8, .wide = s->wide, .pitch = s->wide, .words = s->word == 2,
  };
  set_zeros(s->query_zero);
  engine.quantized = engine.int_queries;
  multiply_i8(&target, &keys);
  u32 reach = s->a->window / 2;
  for (u32 r = 0; r < b->rows; r++) {
    u32 at = b->first + r, low = s->a->window && at > reach ? at - reach : 0, high = b->end;
    if (s->a->window) high = min_u32(high, at + reach + 1);
    if (s->causal) high = min_u32(high, at + 1);
    mask(engine.int_scores + (size_t)r * b->width, low > b->base ? low - b->base : 0, high - b->base, b->width);
  }
}

// Sums of the values that the block meets, for a dot product whose shares are shifted.
static void sum_values(const Scope *s, const Block *b, const u8 *values, u32 pitch) {
  for (u32 d = 0; d < s->wide; d += 4) {
    v128_t sum = wasm_i32x4_splat(0);
    const u8 *at = values + (size_t)(d / 8) * 8 * pitch + 4 * (d % 8);
    for (u32 j = 0; j < b->width; j += 4, at += 32) sum = wasm_i32x4_add(sum, sums_of(LOAD(at)));
    STORE(engine.value_sums + d, sum);
  }
}

// The shares' values; out is the first query's row.
static void gather(const Scope *s, const Block *b, float *out, u32 stride) {
  u32 direct = s->head % 8 == 0;
  Target target = {.out = direct ? out : engine.int_out, .stride = direct ? stride : s->wide, .rows = b->rows};
  Integers values = {
      .data = engine.int_values + (size_t)b->base * 8 * s->word, .scales = engine.value_scales, .sums = engine.value_sums,
      .panels = s->wide / 8, .wide = b->width, .pitch = PAD(s->count, 8u), .words = s->word == 2,
  };
  set_zeros(s->share_zero);
  if (s->share_zero) sum_values(s, b, values.data, values.pitch);
  engine.quantized = engine.int_shares;
  multiply_i8(&target, &values);
  if (direct) return;
  for (u32 r = 0; r < b->rows; r++)
    for (u32 d = 0; d < s->head; d++) out[(size_t)r * stride + d] = engine.int_out[(size_t)r * s->wide + d];
}

// One head of a text: its queries against keys and values as they are packed.
static void attend_head(const Scope *s, const float *queries, u32 query_stride, float *out, u32 stride) {
  const v128_t factor = SPLAT(s->a->scale * 1.44269504f);
  for (u32 i = 0; i < s->count; i += ROWS_AT_ONCE) {
    Block b = block_of(s, i);
    for (u32 r = 0; r < b.rows; r += 4) {
      round_rows(s, engine.int_queries + (size_t)r * s->wide * s->word, 16, queries + (size_t)(i + r) * query_stride,
                 query_stride, b.rows - r, s->query, s->query_zero, engine.scales + r, 0);
      STORE(engine.scales + r, wasm_f32x4_mul(LOAD(engine.scales + r), factor));
    }
    score(s, &b);
    for (u32 r = 0; r < b.rows; r += 4) {
      size_t at = (size_t)r * b.width;
      soften(s, engine.int_scores + at, b.width, engine.int_shares + at * s->word, engine.scales + r);
    }
    gather(s, &b, out + (size_t)i * stride, stride);
  }
}

void attend_integers(const AttentionArgs *a, u32 causal, u32 start, u32 count) {
  const Register *query = engine.registers + a->query, *key = engine.registers + a->key;
  const Register *value = engine.registers + a->value, *target = engine.registers + a->out;
  u32 words = !RELAXED || engine_kind == KIND_A12, repeat = a->heads / a->kv_heads, head = a->head;
  Scope s = {.a = a, .causal = causal, .count = count, .head = head, .wide = PAD(head, 8u), .word = words ? 2 : 1};
  if (engine_kind == KIND_A12)
    s.query = s.key = 2047, s.share = 1023, s.value = 255;
  else
    s.query = s.key = s.value = 127, s.share = 255;
  if (!words) engine_kind == KIND_A8 ? (s.query_zero = 128) : (s.share_zero = -128);
  u8 *quantized = engine.quantized;
  for (u32 kv = 0; kv < a->kv_heads; kv++) {
    pack_keys(&s, key->data + (size_t)start * key->stride + a->key_offset + kv * head, key->stride);
    pack_values(&s, value->data + (size_t)start * value->stride + a->value_offset + kv * head, value->stride);
    for (u32 h = kv * repeat; h < (kv + 1) * repeat; h++)
      attend_head(&s, query->data + (size_t)start * query->stride + a->query_offset + h * head, query->stride,
                  target->data + (size_t)start * target->stride + h * head, target->stride);
  }
  engine.quantized = quantized;
  engine.quantized_register = NONE;
}
