// LAYERNORM, RMSNORM, L2NORM: rows in memory once, the sums in registers.
#include "simd.h"

static u32 whole_part(u32 width) { return width & ~3u; }

// out = a + b (b may be null), the columns beyond width 0; answers the sum of the row.
static float add_rows(float *out, const float *a, const float *b, u32 width, u32 stride) {
  v128_t sum = SPLAT(0.f), sum2 = sum;
  u32 i = 0;
  for (; i + 8 <= width; i += 8) {
    v128_t x = LOAD(a + i), y = LOAD(a + i + 4);
    if (b) x = wasm_f32x4_add(x, LOAD(b + i)), y = wasm_f32x4_add(y, LOAD(b + i + 4));
    STORE(out + i, x);
    STORE(out + i + 4, y);
    sum = wasm_f32x4_add(sum, x), sum2 = wasm_f32x4_add(sum2, y);
  }
  sum = wasm_f32x4_add(sum, sum2);
  for (; i < width; i += 4) {
    v128_t x = LOAD(a + i);
    if (b) x = wasm_f32x4_add(x, LOAD(b + i));
    if (i + 4 > width) {
      STORE(out + i, x);
      x = load_part(out + i, width - i);
    }
    STORE(out + i, x);
    sum = wasm_f32x4_add(sum, x);
  }
  for (; i < stride; i += 4) STORE(out + i, SPLAT(0.f));
  return sum4(sum);
}

// Sum of (x - mean)^2.
static float sum_squares(const float *x, u32 width, float mean) {
  v128_t sum = SPLAT(0.f), more = sum, middle = SPLAT(mean);
  u32 i = 0;
  for (; i + 8 <= width; i += 8) {
    v128_t d = wasm_f32x4_sub(LOAD(x + i), middle), e = wasm_f32x4_sub(LOAD(x + i + 4), middle);
    sum = MADD(d, d, sum), more = MADD(e, e, more);
  }
  sum = wasm_f32x4_add(sum, more);
  for (; i < whole_part(width); i += 4) {
    v128_t d = wasm_f32x4_sub(LOAD(x + i), middle);
    sum = MADD(d, d, sum);
  }
  float total = sum4(sum);
  for (; i < width; i++) total += (x[i] - mean) * (x[i] - mean);
  return total;
}

// x = (x - mean) * factor (* gamma) (+ beta)
static void scale_row(float *x, u32 width, float mean, float factor, const float *gamma, const float *beta) {
  const v128_t middle = SPLAT(mean), by = SPLAT(factor);
  u32 i = 0;
  for (; i < whole_part(width); i += 4) {
    v128_t y = wasm_f32x4_mul(wasm_f32x4_sub(LOAD(x + i), middle), by);
    if (gamma) y = wasm_f32x4_mul(y, LOAD(gamma + i));
    if (beta) y = wasm_f32x4_add(y, LOAD(beta + i));
    STORE(x + i, y);
  }
  for (; i < width; i++) {
    float y = (x[i] - mean) * factor;
    if (gamma) y *= gamma[i];
    x[i] = beta ? y + beta[i] : y;
  }
}

void run_layer_norm(const LayerNormArgs *a) {
  const Register *out = engine.registers + a->out, *in = engine.registers + a->source;
  const float *more = a->residual == NONE ? 0 : engine.registers[a->residual].data;
  const float *gamma = vector_of(a->gamma), *beta = vector_of(a->beta);
  u32 rows = rows_of(out), width = out->width;
  for (u32 row = 0; row < rows; row++) {
    size_t at = (size_t)row * out->stride;
    float *x = out->data + at;
    float mean = add_rows(x, in->data + at, more ? more + at : 0, width, out->stride) / (float)width;
    float variance = sum_squares(x, width, mean) / (float)width;
    scale_row(x, width, mean, 1.f / __builtin_sqrtf(variance + a->epsilon), gamma, beta);
  }
}

void run_rms_norm(const RmsNormArgs *a) {
  const Register *out = engine.registers + a->out, *in = engine.registers + a->source;
  const float *more = a->residual == NONE ? 0 : engine.registers[a->residual].data, *gamma = vector_of(a->gamma);
  u32 rows = rows_of(out), width = a->width ? a->width : out->width, head = a->head ? a->head : width;
  for (u32 row = 0; row < rows; row++) {
    size_t at = (size_t)row * out->stride;
    float *x = out->data + at;
    if (out != in || more) add_rows(x, in->data + at, more ? more + at : 0, out->width, out->stride);
    for (u32 i = 0; i < width; i += head) {
      float *part = x + a->offset + i;
      float mean = sum_squares(part, head, 0) / (float)head;
      scale_row(part, head, 0, 1.f / __builtin_sqrtf(mean + a->epsilon), gamma, 0);
    }
  }
}

void run_l2_norm(const L2NormArgs *a) {
  const Register *out = engine.registers + a->out, *in = engine.registers + a->source;
  u32 rows = rows_of(out);
  for (u32 row = 0; row < rows; row++) {
    size_t at = (size_t)row * out->stride;
    if (out != in) add_rows(out->data + at, in->data + at, 0, out->width, out->stride);
    float length = __builtin_sqrtf(sum_squares(out->data + at, out->width, 0));
    scale_row(out->data + at, out->width, 0, 1.f / (length > a->epsilon ? length : a->epsilon), 0, 0);
  }
}
