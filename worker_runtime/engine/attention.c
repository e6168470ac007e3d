// ATTENTION: for each text and head, 8 queries at a time against the keys they may see: scores, softmax, values.
//
// Keys and queries are packed by column, so that one load brings a column of 4 keys or 8 queries (a Worker's runtime
// checks the bounds of each load: loads are dear). Scores lie as [key][8 queries]: softmax needs no sum across lanes.
#include "activations.h"

enum { QUERIES = 8, KEYS = 4 };

// The text and head that a block of queries works on.
typedef struct {
  u32 count, head, wide, window, causal;  // wide: head rounded up to 4
  float scale;
} Scope;

// 4 rows' columns as [column][step], of which 4 are written; columns beyond `head` are 0. Rows beyond `count` repeat the
// last one.
static void pack_columns(float *out, u32 step, const float *in, u32 stride, u32 count, u32 head) {
  const float *rows[4];
  for (u32 r = 0; r < 4; r++) rows[r] = in + (size_t)min_u32(r, count - 1) * stride;
  for (u32 d = 0; d < head; d += 4, out += 4 * step) {
    v128_t part[4], columns[4];
    for (u32 r = 0; r < 4; r++) part[r] = d + 4 <= head ? LOAD(rows[r] + d) : load_part(rows[r] + d, head - d);
    transpose4(part, columns);
    for (u32 i = 0; i < 4; i++) STORE(out + i * step, columns[i]);
  }
}

// Keys as [key / 4][column][4] and values as [key][column], both with a multiple of 4 keys.
static void pack_text(const Scope *s, const float *keys, u32 key_stride, const float *values, u32 value_stride) {
  for (u32 j = 0; j < s->count; j += KEYS)
    pack_columns(engine.keys + (size_t)j * s->wide, KEYS, keys + (size_t)j * key_stride, key_stride, s->count - j, s->head);
  u32 wide = PAD(s->head, 8u);
  float *out = engine.values;
  for (u32 j = 0; j < s->count; j++, out += wide)
    for (u32 d = 0; d < wide; d += 4) STORE(out + d, LOAD(values + (size_t)j * value_stride + d));
  for (u32 i = 0; i < (PAD(s->count, (u32)KEYS) - s->count) * wide; i += 4) STORE(out + i, SPLAT(0.f));
}

// c[r] += sum over k < count of a[k][r] * b[k][0 .. 8]; count is a multiple of 4.
ALWAYS void multiply(v128_t c[4][2], const float *a, u32 a_step, const float *b, u32 b_step, u32 count) {
  for (u32 k = 0; k < count; k += 2) {
    KEEP(a, b);
#pragma unroll
    for (u32 i = 0; i < 2; i++, a += a_step, b += b_step) {
      v128_t b0 = LOAD(b), b1 = LOAD(b + 4);
#if RELAXED
      v128_t x = LOAD(a);
      HOLD(x);
#endif
#pragma unroll
      for (u32 r = 0; r < 4; r++) {
#if RELAXED
        v128_t y = SPREAD(x, r);
#else
        v128_t y = wasm_v128_load32_splat(a + r);  // without fused products, shuffles would be too many
#endif
        c[r][0] = MADD(y, b0, c[r][0]), c[r][1] = MADD(y, b1, c[r][1]);
        __asm__ volatile("" : "+r"(c[r][0]), "+r"(c[r][1]));
      }
    }
  }
}

#define NOTHING {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}}

// Scores of `width` keys from `base` on: [key][8 queries].
static void score(const Scope *s, u32 base, u32 width) {
  const v128_t zero = SPLAT(0.f);
  float *out = engine.scores;
  for (u32 j = 0; j < width; j += KEYS) {
    v128_t c[4][2] = NOTHING;
    multiply(c, engine.keys + (size_t)(base + j) * s->wide, KEYS, engine.queries, QUERIES, s->wide);
    for (u32 r = 0; r < 4; r++, out += QUERIES) {
      STORE(out, c[r][0]);
      STORE(out + 4, c[r][1]);
    }
  }
}

// Scores become exp(score - max). Answers 1 / their sums.
static void soften(u32 width, float scale, float share[QUERIES]) {
  float *scores = engine.scores;
  v128_t top0 = SPLAT(-1e30f), top1 = top0, sum0 = SPLAT(0.f), sum1 = sum0;
  for (u32 i = 0; i < width * QUERIES; i += QUERIES)
    top0 = wasm_f32x4_pmax(top0, LOAD(scores + i)), top1 = wasm_f32x4_pmax(top1, LOAD(scores + i + 4));
  const v128_t factor = SPLAT(scale * 1.44269504f);
  Constants k = constants();
  for (u32 i = 0; i < width * QUERIES; i += QUERIES) {
    v128_t e0 = exp2_below(wasm_f32x4_mul(wasm_f32x4_sub(LOAD(scores + i), top0), factor), k);
    v128_t e1 = exp2_below(wasm_f32x4_mul(wasm_f32x4_sub(LOAD(scores + i + 4), top1), factor), k);
    STORE(scores + i, e0);
    STORE(scores + i + 4, e1);
    sum0 = wasm_f32x4_add(sum0, e0), sum1 = wasm_f32x4_add(sum1, e1);
  }
  STORE(share, wasm_f32x4_div(SPLAT(1.f), sum0));
  STORE(share + 4, wasm_f32x4_div(SPLAT(1.f), sum1));
}

static void store_part(float *out, v128_t a, v128_t b, u32 count) {
  if (count >= 8) {
    STORE(out, a);
    STORE(out + 4, b);
    return;
  }
  float both[8];
  STORE(both, a);
  STORE(both + 4, b);
  for (u32 i = 0; i < count; i++) out[i] = both[i];
}

// Query `r` sees only the keys from `low` to `high` of the `width` scores.
static void mask(u32 r, u32 low, u32 high, u32 width) {
  float *scores = engine.scores + r;
#pragma clang loop vectorize(disable) unroll(disable)
  for (u32 j = 0; j < low; j++) scores[j * QUERIES] = -1e30f;
#pragma clang loop vectorize(disable) unroll(disable)
  for (u32 j = high; j < width; j++) scores[j * QUERIES] = -1e30f;
}

// Queries i .. i + rows (at most 8) of the text; out is the first one's row.
static void attend(const Scope *s, u32 i, u32 rows, float *out, u32 stride) {
  u32 reach = s->window / 2, last = i + rows - 1;
  u32 from = s->window && i > reach ? i - reach : 0, to = s->count;
  if (s->window) to = min_u32(to, last + reach + 1);
  if (s->causal) to = min_u32(to, last + 1);
  u32 base = from & ~(KEYS - 1u), width = PAD(to - base, (u32)KEYS);
  score(s, base, width);
  for (u32 r = 0; r < QUERIES; r++) {
    u32 at = min_u32(i + r, last), low = s->window && at > reach ? at - reach : 0, high = to;
    if (s->window) high = min_u32(high, at + reach + 1);
    if (s->causal) high = min_u32(high, at + 1);
    mask(r, low > base ? low - base : 0, high - base, width);
  }
  float share[QUERIES];
  soften(width, s->scale, share);
  const v128_t zero = SPLAT(0.f);
  u32 wide = PAD(s->head, 8u);
  for (u32 q = 0; q < rows; q += 4)
    for (u32 d = 0; d < s->head; d += 8) {
      v128_t c[4][2] = NOTHING;
      multiply(c, engine.scores + q, QUERIES, engine.values + (size_t)base * wide + d, wide, width);
      for (u32 r = 0; r < 4 && q + r < rows; r++) {
        v128_t factor = SPLAT(share[q + r]);
        float *place = out + (size_t)(q + r) * stride + d;
        store_part(place, wasm_f32x4_mul(c[r][0], factor), wasm_f32x4_mul(c[r][1], factor), s->head - d);
      }
    }
}

static void attend_text(const AttentionArgs *a, const Scope *s, u32 start, u32 kv_head) {
  const Register *query = engine.registers + a->query, *target = engine.registers + a->out;
  u32 repeat = a->heads / a->kv_heads;
  for (u32 h = kv_head * repeat; h < (kv_head + 1) * repeat; h++)
    for (u32 i = 0; i < s->count; i += QUERIES) {
      u32 rows = min_u32(QUERIES, s->count - i);
      const float *q = query->data + (size_t)(start + i) * query->stride + a->query_offset + h * a->head;
      for (u32 half = 0; half < QUERIES; half += 4)
        pack_columns(engine.queries + half, QUERIES, q + (half < rows ? (size_t)half * query->stride : 0), query->stride,
                     half < rows ? rows - half : rows, s->head);
      attend(s, i, rows, target->data + (size_t)(start + i) * target->stride + h * a->head, target->stride);
    }
}

void run_attention(const AttentionArgs *a, u32 flags) {
  u32 causal = flags & CAUSAL;
  const Register *key = engine.registers + a->key, *value = engine.registers + a->value;
  const Register *target = engine.registers + a->out;
  Scope s = {.head = a->head, .wide = PAD(a->head, 4u), .window = a->window, .causal = causal, .scale = a->scale};
  for (u32 text = 0; text < engine.texts; text++) {
    u32 start = engine.starts[text];
    s.count = engine.starts[text + 1] - start;
    // Bytes of 7 bits would gain little and lose the most: see docs/adr/0010.
    if (flags & INTEGERS && engine_kind != KIND_A7 && s.count <= MAX_INTEGER_KEYS) {
      attend_integers(a, causal, start, s.count);
      continue;
    }
    for (u32 h = 0; h < a->kv_heads; h++) {
      pack_text(&s, key->data + (size_t)start * key->stride + a->key_offset + h * a->head, key->stride,
                value->data + (size_t)start * value->stride + a->value_offset + h * a->head, value->stride);
      attend_text(a, &s, start, h);
    }
  }
  for (u32 row = 0; row < engine.tokens; row++)
    for (u32 i = target->width; i < target->stride; i++) target->data[(size_t)row * target->stride + i] = 0;
}
