// LINEAR with int8 weights: panels of 8 output channels over blocks of 4 rows, 4 columns to a step. Which sums are exact
// depends on the machine (see engine_kind); all of them are sums of the same integers.
#include "simd.h"

typedef v128_t Sums[4][2];
// Several steps: weights 32 bytes and activations 16 bytes a step (bytes), or 64 and 32 (words).
typedef void Steps(Sums c, const u8 *w, const u8 *a);

#if RELAXED
#define DOT(a, b, c) wasm_i32x4_relaxed_dot_i8x16_i7x16_add(a, b, c)
#define DOT16(a, b) wasm_i16x8_relaxed_dot_i8x16_i7x16(a, b)

// The dot product is exact for any bytes on this machine: u8 * s8 (VNNI) or s8 * s8 (ARM).
ALWAYS void step_dot(Sums c, const u8 *w, const u8 *a) {
  v128_t w0 = wasm_v128_load(w), w1 = wasm_v128_load(w + 16);
  for (u32 r = 0; r < 4; r++) {
    v128_t x = wasm_v128_load32_splat(a + 4 * r);
    c[r][0] = DOT(w0, x, c[r][0]), c[r][1] = DOT(w1, x, c[r][1]);
  }
}
ALWAYS void steps_dot(Sums c, const u8 *w, const u8 *a) {
  step_dot(c, w, a);
  step_dot(c, w + 32, a + 16);
}

// Activations of 7 bits: pairs fit 16 bits on every machine, and `depth` steps of pairs do where the packer proved it.
ALWAYS void steps_16(Sums c, const u8 *w, const u8 *a, u32 depth) {
  const v128_t ones = wasm_i16x8_splat(1);
  for (u32 r = 0; r < 4; r++)
    for (u32 half = 0; half < 2; half++) {
      v128_t sum = DOT16(wasm_v128_load(w + 16 * half), wasm_v128_load32_splat(a + 4 * r));
      for (u32 i = 1; i < depth; i++)
        sum = wasm_i16x8_add(sum, DOT16(wasm_v128_load(w + 32 * i + 16 * half), wasm_v128_load32_splat(a + 16 * i + 4 * r)));
      c[r][half] = wasm_i32x4_add(c[r][half], wasm_i32x4_dot_i16x8(sum, ones));
    }
}
ALWAYS void steps_1(Sums c, const u8 *w, const u8 *a) {
  steps_16(c, w, a, 1);
  steps_16(c, w + 32, a + 16, 1);
}
ALWAYS void steps_2(Sums c, const u8 *w, const u8 *a) { steps_16(c, w, a, 2); }
#endif

// Words: 2 columns to a product, exact everywhere.
ALWAYS void steps_words(Sums c, const u8 *w, const u8 *a) {
  for (u32 i = 0; i < 4; i++) {
    v128_t w0 = wasm_v128_load(w + 32 * i), w1 = wasm_v128_load(w + 32 * i + 16);
    for (u32 r = 0; r < 4; r++) {
      v128_t x = wasm_v128_load32_splat(a + 16 * i + 4 * r);
      c[r][0] = wasm_i32x4_add(wasm_i32x4_dot_i16x8(w0, x), c[r][0]);
      c[r][1] = wasm_i32x4_add(wasm_i32x4_dot_i16x8(w1, x), c[r][1]);
    }
  }
}

// A panel's bytes as words: [column / 2][8][2].
static const u8 *widen_panel(const u8 *w, u32 wide) {
  u8 *out = (u8 *)engine.panel;
  for (u32 k = 0; k < wide; k += 4, w += 32, out += 64)
    for (u32 half = 0; half < 2; half++) {
      v128_t bytes = wasm_v128_load(w + 16 * half);
      v128_t low = wasm_i16x8_extend_low_i8x16(bytes), high = wasm_i16x8_extend_high_i8x16(bytes);
      wasm_v128_store(out + 16 * half, wasm_i32x4_shuffle(low, high, 0, 2, 4, 6));
      wasm_v128_store(out + 32 + 16 * half, wasm_i32x4_shuffle(low, high, 1, 3, 5, 7));
    }
  return (const u8 *)engine.panel;
}

// One panel over all rows. Each call of `steps` takes 8 columns.
ALWAYS void sweep(const Target *t, const Tensor *tensor, const u8 *panel, u32 n, u32 wide, u32 word, Steps *steps) {
  u32 high = PAD(tensor->rows, 8u), finished = t->act || t->residual;
  const float *scales = (const float *)aux_of(tensor);
  const i32 *sums = (const i32 *)(scales + high);
  const v128_t zero = wasm_i32x4_splat(0);
  v128_t bias0 = t->bias ? LOAD(t->bias + n) : zero, bias1 = t->bias ? LOAD(t->bias + n + 4) : zero;
  const u8 *a = engine.quantized;
  for (u32 row = 0; row < t->rows; row += 4) {
    Sums c = {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
    const u8 *w = panel;
    for (u32 k = 0; k < wide; k += 8, w += 64 * word, a += 32 * word) {
      KEEP(w, a);
      steps(c, w, a);
    }
    v128_t scale0 = LOAD(scales + n), scale1 = LOAD(scales + n + 4), sum0 = LOAD(sums + n), sum1 = LOAD(sums + n + 4);
    for (u32 r = 0; r < 4; r++) {
      if (row + r >= t->rows) break;
      v128_t scale = SPLAT(engine.scales[row + r]), shift = wasm_i32x4_splat(engine.zeros[row + r]);
      v128_t y0 = wasm_f32x4_convert_i32x4(wasm_i32x4_sub(c[r][0], wasm_i32x4_mul(shift, sum0)));
      v128_t y1 = wasm_f32x4_convert_i32x4(wasm_i32x4_sub(c[r][1], wasm_i32x4_mul(shift, sum1)));
      float *out = t->out + (size_t)(row + r) * t->stride + n;
      STORE(out, MADD(y0, wasm_f32x4_mul(scale, scale0), bias0));
      STORE(out + 4, MADD(y1, wasm_f32x4_mul(scale, scale1), bias1));
    }
    if (finished) finish_block(t, row, n);
  }
}

void linear_i8(const Target *t, const Tensor *w) {
  const u8 *panel = data_of(w);
  u32 wide = PAD(w->columns, 8u);
  for (u32 n = 0; n < w->rows; n += 8, panel += (size_t)8 * wide) {
#if RELAXED
    if (engine_kind == KIND_A7 && w->detail == 1) {
      sweep(t, w, panel, n, wide, 1, steps_1);
      continue;
    }
    if (engine_kind == KIND_A7) {
      sweep(t, w, panel, n, wide, 1, steps_2);
      continue;
    }
    if (engine_kind != KIND_A12) {
      sweep(t, w, panel, n, wide, 1, steps_dot);
      continue;
    }
#endif
    sweep(t, w, widen_panel(panel, wide), n, wide, 2, steps_words);
  }
}
