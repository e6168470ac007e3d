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
  SETTLE(c);
}
ALWAYS void steps_dot(Sums c, const u8 *w, const u8 *a) {
  step_dot(c, w, a);
  step_dot(c, w + 32, a + 16);
}

#endif

// Words: 2 columns to a product, exact everywhere.
ALWAYS void steps_words(Sums c, const u8 *w, const u8 *a) {
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    v128_t w0 = wasm_v128_load(w + 32 * i), w1 = wasm_v128_load(w + 32 * i + 16);
    for (u32 r = 0; r < 4; r++) {
      v128_t x = wasm_v128_load32_splat(a + 16 * i + 4 * r);
      c[r][0] = wasm_i32x4_add(wasm_i32x4_dot_i16x8(w0, x), c[r][0]);
      c[r][1] = wasm_i32x4_add(wasm_i32x4_dot_i16x8(w1, x), c[r][1]);
      __asm__ volatile("" : "+r"(c[r][0]), "+r"(c[r][1]));
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

// A row's sums for 4 * `quads` columns become floats.
ALWAYS void store_row(const Target *t, const Tensor *tensor, u32 row, u32 n, const v128_t *c, u32 quads) {
  const float *scales = (const float *)aux_of(tensor) + n;
  const i32 *sums = (const i32 *)aux_of(tensor) + PAD(tensor->rows, 8u) + n;
  v128_t scale = SPLAT(engine.scales[row]), shift = wasm_i32x4_splat(engine.zeros[row]);
  float *out = t->out + (size_t)row * t->stride + n;
  for (u32 j = 0; j < quads; j++) {
    v128_t y = wasm_f32x4_convert_i32x4(wasm_i32x4_sub(c[j], wasm_i32x4_mul(shift, LOAD(sums + 4 * j))));
    v128_t bias = t->bias ? LOAD(t->bias + n + 4 * j) : SPLAT(0.f);
    STORE(out + 4 * j, MADD(y, wasm_f32x4_mul(scale, LOAD(scales + 4 * j)), bias));
  }
}

// One panel over all rows. Each call of `steps` takes 8 columns.
ALWAYS void sweep(const Target *t, const Tensor *tensor, const u8 *panel, u32 n, u32 wide, u32 word, Steps *steps) {
  const v128_t zero = wasm_i32x4_splat(0);
  const u8 *a = engine.quantized;
  for (u32 row = 0; row < t->rows; row += 4) {
    Sums c = {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
    const u8 *w = panel;
    for (u32 k = 0; k < wide; k += 8, w += 64 * word, a += 32 * word) {
      KEEP(w, a);
      steps(c, w, a);
    }
    for (u32 r = 0; r < 4 && row + r < t->rows; r++) store_row(t, tensor, row + r, n, c[r], 2);
    if (t->act || t->residual) finish_block(t, row, 4, n, 8);
  }
}

#if RELAXED
// Three panels over all rows, 2 rows at a time: the exact dot product takes 5 cycles and starts twice a cycle, so that 8
// sums cannot keep it busy; 12 can.
enum { TRIPLE = 3 };

ALWAYS void step_triple(v128_t c[2][6], const u8 *w0, const u8 *w1, const u8 *w2, const u8 *a) {
  v128_t x0 = wasm_v128_load32_splat(a), x1 = wasm_v128_load32_splat(a + 4);
  __asm__ volatile("" : "+r"(x0), "+r"(x1));
  for (u32 j = 0; j < 6; j++) {
    const u8 *w = j < 2 ? w0 : j < 4 ? w1 : w2;
    v128_t weights = wasm_v128_load(w + 16 * (j % 2));
    c[0][j] = DOT(weights, x0, c[0][j]), c[1][j] = DOT(weights, x1, c[1][j]);
    __asm__ volatile("" : "+r"(c[0][j]), "+r"(c[1][j]));
  }
}

static void sweep_triple(const Target *t, const Tensor *tensor, const u8 *panels, u32 n, u32 wide) {
  size_t panel_bytes = (size_t)8 * wide;
  const v128_t zero = wasm_i32x4_splat(0);
  for (u32 row = 0; row < t->rows; row += 2) {
    v128_t c[2][6] = {{zero, zero, zero, zero, zero, zero}, {zero, zero, zero, zero, zero, zero}};
    const u8 *w = panels, *a = engine.quantized + (size_t)(row / 4) * 4 * wide + 8 * (row / 2 % 2);
    const u8 *w1 = w + panel_bytes, *w2 = w1 + panel_bytes;
    for (u32 k = 0; k < wide; k += 8, w += 64, w1 += 64, w2 += 64, a += 32) {
      KEEP(w, a);
      KEEP(w1, w2);
      step_triple(c, w, w1, w2, a);
      step_triple(c, w + 32, w1 + 32, w2 + 32, a + 16);
    }
    for (u32 r = 0; r < 2 && row + r < t->rows; r++) store_row(t, tensor, row + r, n, c[r], 2 * TRIPLE);
    if (t->act || t->residual) finish_block(t, row, 2, n, 8 * TRIPLE);
  }
}

// Activations of 7 bits: products of pairs fit 16 bits on every machine, and so do the sums of `depth` steps where the
// packer proved it. 2 rows at a time: one row's and one panel's sums in 16 bits and in 32 stay in registers.
typedef struct {
  v128_t a0, a1, b0, b1;  // rows a and b, halves of the panel
} Pair;

ALWAYS Pair step_7bit(Pair h, const u8 *w, const u8 *a, u32 first) {
  v128_t x0 = wasm_v128_load32_splat(a), x1 = wasm_v128_load32_splat(a + 4);
  __asm__ volatile("" : "+r"(x0), "+r"(x1));
  v128_t w0 = wasm_v128_load(w), p0 = DOT16(w0, x0), p1 = DOT16(w0, x1);
  h.a0 = first ? p0 : wasm_i16x8_add(h.a0, p0), h.b0 = first ? p1 : wasm_i16x8_add(h.b0, p1);
  __asm__ volatile("" : "+r"(h.a0), "+r"(h.b0));
  v128_t w1 = wasm_v128_load(w + 16), q0 = DOT16(w1, x0), q1 = DOT16(w1, x1);
  h.a1 = first ? q0 : wasm_i16x8_add(h.a1, q0), h.b1 = first ? q1 : wasm_i16x8_add(h.b1, q1);
  __asm__ volatile("" : "+r"(h.a1), "+r"(h.b1));
  return h;
}

ALWAYS Pair steps_7bit(Pair c, const u8 *w, const u8 *a, v128_t ones, u32 depth) {
  Pair h = step_7bit(c, w, a, 1);
  if (depth > 1) h = step_7bit(h, w + 32, a + 16, 0);
  if (depth > 2) h = step_7bit(h, w + 64, a + 32, 0), h = step_7bit(h, w + 96, a + 48, 0);
  c.a0 = wasm_i32x4_add(c.a0, wasm_i32x4_dot_i16x8(h.a0, ones));
  c.b0 = wasm_i32x4_add(c.b0, wasm_i32x4_dot_i16x8(h.b0, ones));
  c.a1 = wasm_i32x4_add(c.a1, wasm_i32x4_dot_i16x8(h.a1, ones));
  c.b1 = wasm_i32x4_add(c.b1, wasm_i32x4_dot_i16x8(h.b1, ones));
  __asm__ volatile("" : "+r"(c.a0), "+r"(c.b0), "+r"(c.a1), "+r"(c.b1));
  return c;
}

ALWAYS void sweep_7bit(const Target *t, const Tensor *tensor, const u8 *panel, u32 n, u32 wide, u32 depth) {
  const v128_t zero = wasm_i32x4_splat(0);
  for (u32 row = 0; row < t->rows; row += 2) {
    Pair c = {zero, zero, zero, zero};
    v128_t ones = wasm_i16x8_splat(1);
    HOLD(ones);
    const u8 *w = panel, *a = engine.quantized + (size_t)(row / 4) * 4 * wide + 8 * (row / 2 % 2);
    u32 k = 0;
    for (; k + 16 <= wide; k += 16, w += 128, a += 64) {
      KEEP(w, a);
      c = steps_7bit(c, w, a, ones, depth);
      if (depth < 2) c = steps_7bit(c, w + 32, a + 16, ones, depth);
      if (depth < 4) c = steps_7bit(c, w + 64, a + 32, ones, depth);
      if (depth < 2) c = steps_7bit(c, w + 96, a + 48, ones, depth);
    }
    if (k < wide) c = steps_7bit(steps_7bit(c, w, a, ones, 1), w + 32, a + 16, ones, 1);
    const v128_t rows[2][2] = {{c.a0, c.a1}, {c.b0, c.b1}};
    for (u32 r = 0; r < 2 && row + r < t->rows; r++) store_row(t, tensor, row + r, n, rows[r], 2);
    if (t->act || t->residual) finish_block(t, row, 2, n, 8);
  }
}
#endif

void linear_i8(const Target *t, const Tensor *w) {
  const u8 *panel = data_of(w);
  u32 wide = PAD(w->columns, 8u);
  for (u32 n = 0; n < w->rows; n += 8, panel += (size_t)8 * wide) {
#if RELAXED
    if (engine_kind == KIND_A7) {
      switch (w->detail) {
        case 1: sweep_7bit(t, w, panel, n, wide, 1); break;
        case 2: sweep_7bit(t, w, panel, n, wide, 2); break;
        default: sweep_7bit(t, w, panel, n, wide, 4);
      }
      continue;
    }
    if (engine_kind != KIND_A12 && n + 8 * TRIPLE <= w->rows) {
      sweep_triple(t, w, panel, n, wide);
      n += 8 * (TRIPLE - 1), panel += (size_t)8 * (TRIPLE - 1) * wide;
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
