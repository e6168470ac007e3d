// LINEAR with int8 weights: 2 or 3 panels of 8 output channels over blocks of 2 rows, 4 columns to a step. Which sums are
// exact depends on the machine (see engine_kind); all of them are sums of the same integers.
//
// A Worker's runtime checks the bounds of each load by a branch, which takes a place that a product could have: wide
// blocks need fewer loads, and one load brings both rows' columns, which shuffles then spread.
#include "simd.h"

// Sums of 2 rows and 2 panels.
typedef v128_t Sums[2][4];
// 8 columns of both panels.
typedef void Steps(Sums c, const u8 *const w[2], const u8 *a);

// A panel's bytes as words: [column / 2][8][2].
static void widen_panel(u8 *out, const u8 *w, u32 wide) {
  for (u32 k = 0; k < wide; k += 4, w += 32, out += 64) {
    KEEP(w, out);
    for (u32 half = 0; half < 2; half++) {
      v128_t bytes = wasm_v128_load(w + 16 * half);
      v128_t low = wasm_i16x8_extend_low_i8x16(bytes), high = wasm_i16x8_extend_high_i8x16(bytes);
      wasm_v128_store(out + 16 * half, wasm_i32x4_shuffle(low, high, 0, 2, 4, 6));
      wasm_v128_store(out + 32 + 16 * half, wasm_i32x4_shuffle(low, high, 1, 3, 5, 7));
    }
  }
}

// Two rows' sums for 4 * `quads` columns become floats. Without a second row, the first one's floats follow the second's
// to their place.
ALWAYS void store_rows(const Target *t, const Integers *w, u32 row, u32 n, const v128_t *c0, const v128_t *c1, u32 quads) {
  const float *scales = w->scales + n;
  const i32 *sums = w->sums + n;
  v128_t scale0 = SPLAT(engine.scales[row]), shift0 = wasm_i32x4_splat(engine.zeros[row]);
  v128_t scale1 = SPLAT(engine.scales[row + 1]), shift1 = wasm_i32x4_splat(engine.zeros[row + 1]);
  float *out = t->out + (size_t)row * t->stride + n, *next = row + 1 < t->rows ? out + t->stride : out;
  for (u32 j = 0; j < quads; j++) {
    v128_t by = LOAD(scales + 4 * j), sum = LOAD(sums + 4 * j), bias = t->bias ? LOAD(t->bias + n + 4 * j) : SPLAT(0.f);
    v128_t y0 = wasm_f32x4_convert_i32x4(wasm_i32x4_sub(c0[j], wasm_i32x4_mul(shift0, sum)));
    v128_t y1 = wasm_f32x4_convert_i32x4(wasm_i32x4_sub(c1[j], wasm_i32x4_mul(shift1, sum)));
    STORE(next + 4 * j, MADD(y1, wasm_f32x4_mul(scale1, by), bias));
    STORE(out + 4 * j, MADD(y0, wasm_f32x4_mul(scale0, by), bias));
  }
}

// Words: 2 columns to a product, exact everywhere.
ALWAYS void steps_words(Sums c, const u8 *const w[2], const u8 *a) {
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    v128_t both = wasm_v128_load(a + 16 * i);
    HOLD(both);
    v128_t x0 = SPREAD(both, 0), x1 = SPREAD(both, 1);
    for (u32 j = 0; j < 4; j++) {
      v128_t weights = wasm_v128_load(w[j / 2] + 32 * i + 16 * (j % 2));
      c[0][j] = wasm_i32x4_add(wasm_i32x4_dot_i16x8(weights, x0), c[0][j]);
      c[1][j] = wasm_i32x4_add(wasm_i32x4_dot_i16x8(weights, x1), c[1][j]);
      __asm__ volatile("" : "+r"(c[0][j]), "+r"(c[1][j]));
    }
  }
}

// The panels at w[0] and w[1] over the rows from `row` on; `quads` is 2 where only the first one counts.
ALWAYS void sweep(const Target *t, const Integers *matrix, const u8 *const panels[2], u32 row, u32 n, u32 quads, u32 word,
                  Steps *steps) {
  u32 wide = matrix->wide;
  const v128_t zero = wasm_i32x4_splat(0);
  for (; row < t->rows; row += 2) {
    Sums c = {{zero, zero, zero, zero}, {zero, zero, zero, zero}};
    const u8 *w[2] = {panels[0], panels[1]};
    const u8 *a = engine.quantized + ((size_t)(row / 4) * 4 * wide) * word + 8 * (row / 2 % 2);
    for (u32 k = 0; k < wide; k += 8, w[0] += 64 * word, w[1] += 64 * word, a += 32 * word) {
      KEEP(w[0], a);
      KEEP(w[1], w[1]);
      steps(c, w, a);
    }
    store_rows(t, matrix, row, n, c[0], c[1], quads);
    if (t->act || t->residual) finish_block(t, row, 2, n, 4 * quads);
  }
}

#if RELAXED
#define DOT(a, b, c) wasm_i32x4_relaxed_dot_i8x16_i7x16_add(a, b, c)
#define DOT16(a, b) wasm_i16x8_relaxed_dot_i8x16_i7x16(a, b)

// The dot product is exact for any bytes on this machine: u8 * s8 (VNNI) or s8 * s8 (ARM).
ALWAYS void steps_dot(Sums c, const u8 *const w[2], const u8 *a) {
#pragma unroll
  for (u32 i = 0; i < 2; i++) {
    v128_t both = wasm_v128_load(a + 16 * i);
    HOLD(both);
    v128_t x0 = SPREAD(both, 0), x1 = SPREAD(both, 1);
    for (u32 j = 0; j < 4; j++) {
      v128_t weights = wasm_v128_load(w[j / 2] + 32 * i + 16 * (j % 2));
      c[0][j] = DOT(weights, x0, c[0][j]), c[1][j] = DOT(weights, x1, c[1][j]);
      __asm__ volatile("" : "+r"(c[0][j]), "+r"(c[1][j]));
    }
  }
}

// Three panels over all rows, 2 rows at a time: the exact dot product takes 5 cycles and starts twice a cycle, so that 8
// sums cannot keep it busy; 12 can.
enum { TRIPLE = 3 };

ALWAYS void step_triple(v128_t c[2][6], const u8 *w0, const u8 *w1, const u8 *w2, const u8 *a) {
  v128_t both = wasm_v128_load(a);
  HOLD(both);
  v128_t x0 = SPREAD(both, 0), x1 = SPREAD(both, 1);
  for (u32 j = 0; j < 6; j++) {
    const u8 *w = j < 2 ? w0 : j < 4 ? w1 : w2;
    v128_t weights = wasm_v128_load(w + 16 * (j % 2));
    c[0][j] = DOT(weights, x0, c[0][j]), c[1][j] = DOT(weights, x1, c[1][j]);
    __asm__ volatile("" : "+r"(c[0][j]), "+r"(c[1][j]));
  }
}

static void sweep_triple(const Target *t, const Integers *matrix, const u8 *panels, u32 n) {
  u32 wide = matrix->wide;
  size_t panel_bytes = (size_t)8 * matrix->pitch;
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
    store_rows(t, matrix, row, n, c[0], c[1], 2 * TRIPLE);
    if (t->act || t->residual) finish_block(t, row, 2, n, 8 * TRIPLE);
  }
}

// Activations of 7 bits: products of pairs fit 16 bits on every machine, and so do the sums of `depth` steps where the
// packer proved it.
ALWAYS void steps_7bit(Sums c, const u8 *const w[2], const u8 *a, u32 depth) {
  const v128_t ones = wasm_i16x8_splat(1);
  Sums h;
#pragma unroll
  for (u32 i = 0; i < 2; i++) {
    v128_t both = wasm_v128_load(a + 16 * i);
    HOLD(both);
    v128_t x0 = SPREAD(both, 0), x1 = SPREAD(both, 1);
    for (u32 j = 0; j < 4; j++) {
      v128_t weights = wasm_v128_load(w[j / 2] + 32 * i + 16 * (j % 2)), p0 = DOT16(weights, x0), p1 = DOT16(weights, x1);
      h[0][j] = i % depth ? wasm_i16x8_add(h[0][j], p0) : p0, h[1][j] = i % depth ? wasm_i16x8_add(h[1][j], p1) : p1;
      __asm__ volatile("" : "+r"(h[0][j]), "+r"(h[1][j]));
    }
    if (i % depth == depth - 1)
      for (u32 j = 0; j < 8; j++) {
        c[j / 4][j % 4] = wasm_i32x4_add(c[j / 4][j % 4], wasm_i32x4_dot_i16x8(h[j / 4][j % 4], ones));
        __asm__ volatile("" : "+r"(c[j / 4][j % 4]));
      }
  }
}

ALWAYS void steps_depth1(Sums c, const u8 *const w[2], const u8 *a) { steps_7bit(c, w, a, 1); }
ALWAYS void steps_depth2(Sums c, const u8 *const w[2], const u8 *a) { steps_7bit(c, w, a, 2); }

static void sweep_depth2(const Target *t, const Integers *w, const u8 *const pair[2], u32 row, u32 n, u32 quads) {
  sweep(t, w, pair, row, n, quads, 1, steps_depth2);
}

// 4 steps in 16 bits, for 4 rows and one panel: a load less for 4 products than 2 rows and two panels take. The sums in 32
// bits leave the registers meanwhile.
ALWAYS void four_7bit(v128_t c[4][2], const u8 *w, const u8 *a, u32 steps) {
  const v128_t ones = wasm_i16x8_splat(1);
  v128_t h[4][2];
#pragma unroll
  for (u32 i = 0; i < steps; i++) {
    v128_t all = wasm_v128_load(a + 16 * i), w0 = wasm_v128_load(w + 32 * i), w1 = wasm_v128_load(w + 32 * i + 16);
    HOLD(all);
    for (u32 r = 0; r < 4; r++) {
      v128_t x = SPREAD(all, r), p0 = DOT16(w0, x), p1 = DOT16(w1, x);
      h[r][0] = i ? wasm_i16x8_add(h[r][0], p0) : p0, h[r][1] = i ? wasm_i16x8_add(h[r][1], p1) : p1;
      __asm__ volatile("" : "+r"(h[r][0]), "+r"(h[r][1]));
    }
  }
  for (u32 j = 0; j < 8; j++) {
    c[j / 2][j % 2] = wasm_i32x4_add(c[j / 2][j % 2], wasm_i32x4_dot_i16x8(h[j / 2][j % 2], ones));
    __asm__ volatile("" : "+r"(c[j / 2][j % 2]));
  }
}

// store_rows for 4 rows and 8 columns. Where the last row is missing, its floats follow those of the row before.
ALWAYS void store_fours(const Target *t, const Integers *w, u32 row, u32 n, v128_t c[4][2]) {
  v128_t row_scales = LOAD(engine.scales + row), row_zeros = LOAD(engine.zeros + row);
  float *out = t->out + (size_t)row * t->stride + n, *last = out + (row + 3 < t->rows ? 3 : 2) * t->stride;
#pragma unroll
  for (u32 j = 0; j < 2; j++, n += 4, out += 4, last += 4) {
    v128_t by = LOAD(w->scales + n), sum = LOAD(w->sums + n), bias = t->bias ? LOAD(t->bias + n) : SPLAT(0.f);
#pragma unroll
    for (u32 r = 4; r-- > 0;) {
      v128_t y = wasm_f32x4_convert_i32x4(wasm_i32x4_sub(c[r][j], wasm_i32x4_mul(SPREAD(row_zeros, r), sum)));
      STORE(r == 3 ? last : out + r * t->stride, MADD(y, wasm_f32x4_mul(SPREAD(row_scales, r), by), bias));
    }
  }
}

static void sweep_fours(const Target *t, const Integers *matrix, const u8 *panel, u32 rows, u32 n) {
  u32 wide = matrix->wide;
  const v128_t zero = wasm_i32x4_splat(0);
  for (u32 row = 0; row < rows; row += 4) {
    v128_t c[4][2] = {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
    const u8 *w = panel, *a = engine.quantized + (size_t)row * wide;
    u32 k = 0;
    for (; k + 16 <= wide; k += 16, w += 128, a += 64) {
      KEEP(w, a);
      four_7bit(c, w, a, 4);
    }
    if (k < wide) four_7bit(c, w, a, 2);
    store_fours(t, matrix, row, n, c);
    if (t->act || t->residual) finish_block(t, row, 4, n, 8);
  }
}

static void multiply_depth4(const Target *t, const Integers *w, const u8 *const pair[2], u32 n, u32 quads) {
  u32 rows = (t->rows + 1) & ~3u;  // blocks of four, also where one of the four is missing
  for (u32 i = 0; i < quads / 2; i++) sweep_fours(t, w, pair[i], rows, n + 8 * i);
  sweep_depth2(t, w, pair, rows, n, quads);
}

#endif

// One or two panels from panel `at` on.
static void multiply_pair(const Target *t, const Integers *w, u32 at, u32 panels) {
  u32 quads = 2 * panels, n = 8 * at, word = w->words ? 2 : 1;
  size_t panel_bytes = (size_t)8 * w->pitch * word;
  const u8 *first = w->data + at * panel_bytes;
  const u8 *const pair[2] = {first, first + (panels - 1) * panel_bytes};
#if RELAXED
  if (!w->words && engine_kind == KIND_A7) {
    switch (w->depth) {
      case 1: sweep(t, w, pair, 0, n, quads, 1, steps_depth1); return;
      case 2: sweep_depth2(t, w, pair, 0, n, quads); return;
      default: multiply_depth4(t, w, pair, n, quads); return;
    }
  }
  if (engine_kind != KIND_A12) {
    sweep(t, w, pair, 0, n, quads, 1, steps_dot);
    return;
  }
#endif
  u8 *words = (u8 *)engine.panel;
  const u8 *const wider[2] = {words, words + (size_t)16 * w->wide};
  if (!w->words) {
    widen_panel(words, pair[0], w->wide);
    widen_panel(words + (size_t)16 * w->wide, pair[1], w->wide);
  }
  sweep(t, w, w->words ? pair : wider, 0, n, quads, 2, steps_words);
}

void multiply_i8(const Target *t, const Integers *w) {
  u32 at = 0;
#if RELAXED
  // 4 panels are two pairs, since three and one would waste the half of a pair.
  if (engine_kind == KIND_A8 || engine_kind == KIND_A8_SIGNED)
    for (; w->panels - at > 4 || w->panels - at == TRIPLE; at += TRIPLE)
      sweep_triple(t, w, w->data + (size_t)8 * at * w->pitch, 8 * at);
#endif
  for (u32 some; at < w->panels; at += some) {
    some = min_u32(2, w->panels - at);
    multiply_pair(t, w, at, some);
  }
}

void linear_i8(const Target *t, const Tensor *tensor) {
  u32 rows = PAD(tensor->rows, 8u);
  Integers w = {
      .data = data_of(tensor), .scales = (const float *)aux_of(tensor), .sums = (const i32 *)aux_of(tensor) + rows,
      .panels = rows / 8, .wide = PAD(tensor->columns, 8u), .pitch = PAD(tensor->columns, 8u), .depth = tensor->detail,
  };
  multiply_i8(t, &w);
}
