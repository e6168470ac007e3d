// ATTENTION: for each text and head, 4 queries at a time against the keys they may see: scores, softmax, values.
// Keys go into panels of 8 once per text and head; values are read where they are.
#include "activations.h"
#include "block.h"

// The text and head that a block of queries works on.
typedef struct {
  const float *keys, *values;
  u32 value_stride, count, head, window, causal;
  float scale;
} Scope;

static void transpose4(const float *const rows[4], u32 at, v128_t out[4]) {
  v128_t a = LOAD(rows[0] + at), b = LOAD(rows[1] + at), c = LOAD(rows[2] + at), d = LOAD(rows[3] + at);
  v128_t ab0 = wasm_i32x4_shuffle(a, b, 0, 4, 1, 5), ab1 = wasm_i32x4_shuffle(a, b, 2, 6, 3, 7);
  v128_t cd0 = wasm_i32x4_shuffle(c, d, 0, 4, 1, 5), cd1 = wasm_i32x4_shuffle(c, d, 2, 6, 3, 7);
  out[0] = wasm_i64x2_shuffle(ab0, cd0, 0, 2), out[1] = wasm_i64x2_shuffle(ab0, cd0, 1, 3);
  out[2] = wasm_i64x2_shuffle(ab1, cd1, 0, 2), out[3] = wasm_i64x2_shuffle(ab1, cd1, 1, 3);
}

// [count / 8][head][8]; keys that only fill the last panel repeat the last key, and are masked later.
static void pack_keys(const float *keys, u32 stride, u32 count, u32 head) {
  float *out = engine.keys;
  for (u32 j = 0; j < count; j += 8, out += 8 * head)
    for (u32 half = 0; half < 2; half++) {
      const float *rows[4];
      for (u32 r = 0; r < 4; r++) rows[r] = keys + (size_t)min_u32(j + 4 * half + r, count - 1) * stride;
      for (u32 d = 0; d < head; d += 4) {
        v128_t columns[4];
        transpose4(rows, d, columns);
        for (u32 i = 0; i < 4 && d + i < head; i++) STORE(out + 8 * (d + i) + 4 * half, columns[i]);
      }
    }
}

// Scores of one query become exp(score - max); keys outside [from, to) weigh nothing. Answers 1 / their sum.
static float soften(float *scores, u32 from, u32 to, u32 width, float scale) {
  const v128_t nothing = SPLAT(-1e30f);
  v128_t most = nothing, sum = SPLAT(0.f);
  for (u32 j = 0; j < from; j++) scores[j] = -1e30f;
  for (u32 j = to; j < width; j++) scores[j] = -1e30f;
  for (u32 j = 0; j < width; j += 4) most = wasm_f32x4_pmax(most, LOAD(scores + j));
  const v128_t top = SPLAT(max4(most)), factor = SPLAT(scale * 1.44269504f);
  Constants k = constants();
  for (u32 j = 0; j < width; j += 4) {
    v128_t e = exp2_below(wasm_f32x4_mul(wasm_f32x4_sub(LOAD(scores + j), top), factor), k);
    STORE(scores + j, e);
    sum = wasm_f32x4_add(sum, e);
  }
  return 1.f / sum4(sum);
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

// Queries i .. i + rows (at most 4) of the text; q and out are their rows.
static void attend(const Scope *s, u32 i, u32 rows, const float *const q[4], float *const out[4]) {
  u32 reach = s->window / 2, last = i + rows - 1;
  u32 from = s->window && i > reach ? i - reach : 0, to = s->count;
  if (s->window) to = min_u32(to, last + reach + 1);
  if (s->causal) to = min_u32(to, last + 1);
  u32 base = from & ~7u, width = PAD(to - base, 8u);
  const v128_t zero = SPLAT(0.f);
  const float *scores[4];
  for (u32 r = 0; r < 4; r++) scores[r] = engine.scores + r * width;
  for (u32 j = 0; j < width; j += 8) {
    v128_t c[4][2] = {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
    multiply(c, s->keys + (size_t)(base + j) * s->head, 8, q, s->head);
    for (u32 r = 0; r < 4; r++) {
      STORE((float *)scores[r] + j, c[r][0]);
      STORE((float *)scores[r] + j + 4, c[r][1]);
    }
  }
  float share[4];
  for (u32 r = 0; r < 4; r++) {
    u32 at = min_u32(i + r, last), low = s->window && at > reach ? at - reach : 0, high = to;
    if (s->window) high = min_u32(high, at + reach + 1);
    if (s->causal) high = min_u32(high, at + 1);
    share[r] = soften((float *)scores[r], low - base, high - base, width, s->scale);
  }
  const float *values = s->values + (size_t)base * s->value_stride;
  for (u32 d = 0; d < s->head; d += 8) {
    v128_t c[4][2] = {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
    multiply(c, values + d, s->value_stride, scores, to - base);
    for (u32 r = 0; r < rows; r++) {
      v128_t factor = SPLAT(share[r]);
      store_part(out[r] + d, wasm_f32x4_mul(c[r][0], factor), wasm_f32x4_mul(c[r][1], factor), s->head - d);
    }
  }
}

static void attend_text(const AttentionArgs *a, Scope *s, u32 start, u32 kv_head) {
  const Register *query = engine.registers + a->query, *target = engine.registers + a->out;
  u32 repeat = a->heads / a->kv_heads;
  for (u32 h = kv_head * repeat; h < (kv_head + 1) * repeat; h++)
    for (u32 i = 0; i < s->count; i += 4) {
      u32 rows = min_u32(4, s->count - i);
      const float *q[4];
      float *out[4];
      for (u32 r = 0; r < 4; r++) {
        size_t row = start + i + min_u32(r, rows - 1);
        q[r] = query->data + row * query->stride + a->query_offset + h * a->head;
        out[r] = target->data + row * target->stride + h * a->head;
      }
      attend(s, i, rows, q, out);
    }
}

void run_attention(const AttentionArgs *a, u32 causal) {
  const Register *key = engine.registers + a->key, *value = engine.registers + a->value;
  const Register *target = engine.registers + a->out;
  Scope s = {.keys = engine.keys, .value_stride = value->stride, .head = a->head, .window = a->window, .causal = causal,
             .scale = a->scale};
  for (u32 text = 0; text < engine.texts; text++) {
    u32 start = engine.starts[text];
    s.count = engine.starts[text + 1] - start;
    for (u32 h = 0; h < a->kv_heads; h++) {
      pack_keys(key->data + (size_t)start * key->stride + a->key_offset + h * a->head, key->stride, s.count, a->head);
      s.values = value->data + (size_t)start * value->stride + a->value_offset + h * a->head;
      attend_text(a, &s, start, h);
    }
  }
  for (u32 row = 0; row < engine.tokens; row++)
    for (u32 i = target->width; i < target->stride; i++) target->data[(size_t)row * target->stride + i] = 0;
}
