// EMBED and POOL: from token ids to rows, and from rows to texts.
#include "simd.h"

// 8 columns of a table's row as floats.
ALWAYS void widen8(const Tensor *t, const u8 *row, u32 index, u32 column, float scale, v128_t out[2]) {
  if (t->dtype == F32) {
    out[0] = LOAD(row + 4 * column), out[1] = LOAD(row + 4 * column + 16);
  } else if (t->dtype == F16) {
    out[0] = widen_f16(wasm_v128_load64_zero(row + 2 * column)), out[1] = widen_f16(wasm_v128_load64_zero(row + 2 * column + 8));
  } else {
    v128_t words, factor = SPLAT(scale);
    if (t->dtype == I8) {
      words = wasm_i16x8_load8x8(row + column);
    } else {
      u32 groups = groups_of(t), at = index * groups + column / t->group, half = t->detail & SCALES_F16;
      const u8 *scales = aux_of(t), *zeros = scales + PAD((size_t)t->rows * groups * (half ? 2 : 4), 64);
      v128_t bytes = wasm_v128_load32_zero(row + column / 2), mask = wasm_i8x16_splat(15);
      v128_t low = wasm_v128_and(bytes, mask), high = wasm_u8x16_shr(bytes, 4);
      words = wasm_u16x8_extend_low_u8x16(wasm_i8x16_shuffle(low, high, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
      words = wasm_i16x8_sub(words, wasm_i16x8_splat(t->detail & ZEROS ? zeros[at] : 8));
      factor = half ? widen_f16(wasm_v128_load16_splat(scales + 2 * at)) : wasm_v128_load32_splat(scales + 4 * at);
    }
    out[0] = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(wasm_i32x4_extend_low_i16x8(words)), factor);
    out[1] = wasm_f32x4_mul(wasm_f32x4_convert_i32x4(wasm_i32x4_extend_high_i16x8(words)), factor);
  }
}

static u32 row_bytes(const Tensor *t) {
  u32 wide = PAD(t->columns, 8u);
  return t->dtype == F32 ? wide * 4 : t->dtype == F16 ? wide * 2 : t->dtype == I8 ? wide : wide / 2;
}

// out (+)= row `index` of the table * factor.
static void put_row(float *out, u32 table, u32 index, float factor, u32 add) {
  const Tensor *t = tensor_at(table);
  const u8 *row = (const u8 *)data_of(t) + (size_t)index * row_bytes(t);
  float scale = t->dtype == I8 ? ((const float *)aux_of(t))[index] : 1.f;
  const v128_t by = SPLAT(factor);
  for (u32 i = 0; i < t->columns; i += 8) {
    v128_t x[2];
    widen8(t, row, index, i, scale, x);
    for (u32 half = 0; half < 2; half++) {
      v128_t y = wasm_f32x4_mul(x[half], by);
      if (add) y = wasm_f32x4_add(y, LOAD(out + i + 4 * half));
      STORE(out + i + 4 * half, y);
    }
  }
}

void run_embed(const EmbedArgs *a) {
  const Register *out = engine.registers + a->out;
  for (u32 row = 0; row < engine.tokens; row++) {
    float *x = out->data + (size_t)row * out->stride;
    put_row(x, a->table, (u32)engine.ids[row], a->scale, 0);
    if (a->positions != NONE) put_row(x, a->positions, engine.places[row] + a->position_offset, 1.f, 1);
    if (a->types != NONE) put_row(x, a->types, 0, 1.f, 1);
    for (u32 i = out->width; i < out->stride; i++) x[i] = 0;
  }
}

// to (+)= from * factor
static void add_row(float *to, const float *from, u32 stride, float factor, u32 add) {
  const v128_t by = SPLAT(factor);
  for (u32 i = 0; i < stride; i += 4) {
    v128_t x = wasm_f32x4_mul(LOAD(from + i), by);
    STORE(to + i, add ? wasm_f32x4_add(LOAD(to + i), x) : x);
  }
}

void run_pool(const PoolArgs *a) {
  const Register *out = engine.registers + a->out, *in = engine.registers + a->source;
  const float *weights = vector_of(a->weights);
  for (u32 text = 0; text < engine.texts; text++) {
    u32 start = engine.starts[text], end = engine.starts[text + 1];
    float *to = out->data + (size_t)text * out->stride, total = 0;
    if (a->mode == POOL_CLS || a->mode == POOL_LAST) {
      u32 row = a->mode == POOL_CLS ? start : end - 1;
      add_row(to, in->data + (size_t)row * in->stride, in->stride, 1.f, 0);
      continue;
    }
    for (u32 row = start; row < end; row++) {
      float weight = weights ? weights[engine.ids[row]] : 1.f;
      add_row(to, in->data + (size_t)row * in->stride, in->stride, weight, row > start);
      total += a->mode == POOL_WEIGHTED_BY_COUNT ? 1.f : weight;
    }
    add_row(to, to, out->stride, 1.f / total, 0);
  }
}
