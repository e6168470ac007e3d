// LINEAR with int4 weights by group. Activations are bytes of -128 .. 127 and weights 0 .. 15: the one operand that the
// relaxed dot product wants below 128 always is, so the sums are exact on every machine.
//
// A panel's nibbles, scales and zero points are unpacked once and then meet all rows.
#include "simd.h"

typedef v128_t Sums[4][2];

#if RELAXED
#define WORD 1
#define DOT(a, b, c) wasm_i32x4_relaxed_dot_i8x16_i7x16_add(a, b, c)
#define DOT16(a, b) wasm_i16x8_relaxed_dot_i8x16_i7x16(a, b)

// 16 columns with an exact 4-way dot product, or whose pairs add up in 16 bits. One load brings 4 rows' columns, as in
// linear_i8.c.
ALWAYS void columns_bytes(Sums c, const u8 *w, const u8 *a, u32 exact) {
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    v128_t all = wasm_v128_load(a + 16 * i), w0 = wasm_v128_load(w + 32 * i), w1 = wasm_v128_load(w + 32 * i + 16);
    HOLD(all);
#pragma unroll
    for (u32 r = 0; r < 4; r++) {
      v128_t x = SPREAD(all, r);
      c[r][0] = exact ? DOT(x, w0, c[r][0]) : wasm_i16x8_add(c[r][0], DOT16(x, w0));
      c[r][1] = exact ? DOT(x, w1, c[r][1]) : wasm_i16x8_add(c[r][1], DOT16(x, w1));
      __asm__ volatile("" : "+r"(c[r][0]), "+r"(c[r][1]));
    }
  }
}

ALWAYS void columns_dot(Sums c, const u8 *w, const u8 *a) {
  columns_bytes(c, w, a, 1);
  w += 128, a += 64;
  KEEP(w, a);
  columns_bytes(c, w, a, 1);
}

// 8 * 2 * 15 * 128 = 30720 fits 16 bits.
ALWAYS void columns_16(Sums c, const u8 *w, const u8 *a) {
  const v128_t ones = wasm_i16x8_splat(1), zero = wasm_i16x8_splat(0);
  Sums h = {{zero, zero}, {zero, zero}, {zero, zero}, {zero, zero}};
  columns_bytes(h, w, a, 0);
  w += 128, a += 64;
  KEEP(w, a);
  columns_bytes(h, w, a, 0);
  for (u32 r = 0; r < 4; r++) {
    c[r][0] = wasm_i32x4_add(c[r][0], wasm_i32x4_dot_i16x8(h[r][0], ones));
    c[r][1] = wasm_i32x4_add(c[r][1], wasm_i32x4_dot_i16x8(h[r][1], ones));
  }
}

// Nibbles as bytes: [column / 4][8][4].
static void unpack_panel(const u8 *w, u32 wide) {
  u8 *out = (u8 *)engine.panel;
  const v128_t mask = wasm_i8x16_splat(15);
  for (u32 k = 0; k < wide; k += 16, w += 64, out += 128) {
    KEEP(w, out);
#pragma unroll
    for (u32 i = 0; i < 4; i++) {
      v128_t both = wasm_v128_load(w + 16 * i);
      wasm_v128_store(out + 32 * i, wasm_v128_and(both, mask));
      wasm_v128_store(out + 32 * i + 16, wasm_v128_and(wasm_u16x8_shr(both, 4), mask));
    }
  }
}
#else
#define WORD 2

// 8 columns, 2 to a product.
ALWAYS void columns_8(Sums c, const u8 *w, const u8 *a) {
#pragma unroll
  for (u32 i = 0; i < 4; i++) {
    v128_t all = wasm_v128_load(a + 16 * i), w0 = wasm_v128_load(w + 32 * i), w1 = wasm_v128_load(w + 32 * i + 16);
    HOLD(all);
#pragma unroll
    for (u32 r = 0; r < 4; r++) {
      v128_t x = SPREAD(all, r);
      c[r][0] = wasm_i32x4_add(wasm_i32x4_dot_i16x8(w0, x), c[r][0]);
      c[r][1] = wasm_i32x4_add(wasm_i32x4_dot_i16x8(w1, x), c[r][1]);
      __asm__ volatile("" : "+r"(c[r][0]), "+r"(c[r][1]));
    }
  }
}

ALWAYS void columns_words(Sums c, const u8 *w, const u8 *a) {
#pragma unroll
  for (u32 i = 0; i < 4; i++, w += 128, a += 64) {
    KEEP(w, a);
    columns_8(c, w, a);
  }
}

// Nibbles as words: [column / 2][8][2].
static void unpack_panel(const u8 *w, u32 wide) {
  u8 *out = (u8 *)engine.panel;
  const v128_t mask = wasm_i8x16_splat(15);
  for (u32 k = 0; k < wide; k += 4, w += 16, out += 64) {
    KEEP(w, out);
    v128_t both = wasm_v128_load(w), halves[2] = {wasm_v128_and(both, mask), wasm_u8x16_shr(both, 4)};
    for (u32 half = 0; half < 2; half++) {
      v128_t low = wasm_i16x8_extend_low_i8x16(halves[half]), high = wasm_i16x8_extend_high_i8x16(halves[half]);
      wasm_v128_store(out + 16 * half, wasm_i32x4_shuffle(low, high, 0, 2, 4, 6));
      wasm_v128_store(out + 32 + 16 * half, wasm_i32x4_shuffle(low, high, 1, 3, 5, 7));
    }
  }
}
#endif

// Scales as floats and zero points as 32-bit numbers (8 without zero points), [group][8] each.
static void unpack_groups(const u8 *scales, const u8 *zeros, u32 groups, u32 half) {
  float *out = engine.panel_scales;
  i32 *shift = engine.panel_zeros;
  for (u32 i = 0; i < groups * 8; i += 4) {
    STORE(out + i, half ? widen_f16(wasm_v128_load64_zero(scales + 2 * i)) : LOAD(scales + 4 * i));
    v128_t bytes = zeros ? wasm_v128_load32_zero(zeros + i) : wasm_i8x16_splat(8);
    wasm_v128_store(shift + i, wasm_u32x4_extend_low_u16x8(wasm_u16x8_extend_low_u8x16(bytes)));
  }
}

typedef void Columns(Sums c, const u8 *w, const u8 *a);

// The unpacked panel over all rows.
ALWAYS void sweep(const Target *t, const float *corrections, u32 n, u32 groups, u32 group, Columns *columns) {
  const v128_t none = SPLAT(0.f);
  v128_t bias0 = t->bias ? LOAD(t->bias + n) : none, bias1 = t->bias ? LOAD(t->bias + n + 4) : none;
  v128_t fix0 = LOAD(corrections + n), fix1 = LOAD(corrections + n + 4);
  const u8 *a = engine.quantized;
  const i32 *group_sums = engine.group_sums;
  for (u32 row = 0; row < t->rows; row += 4) {
    v128_t total[4][2] = {{none, none}, {none, none}, {none, none}, {none, none}};
    const u8 *w = (const u8 *)engine.panel;
    for (u32 g = 0; g < groups; g++, group_sums += 4) {
      v128_t zero0 = wasm_v128_load(engine.panel_zeros + 8 * g), zero1 = wasm_v128_load(engine.panel_zeros + 8 * g + 4);
      Sums c;
      for (u32 r = 0; r < 4; r++) {
        // Zero points are below 2^15, so the product of the low words is the whole product: |sum of q| <= 2^14.
        v128_t sum = wasm_i32x4_splat(-group_sums[r]);
        c[r][0] = wasm_i32x4_dot_i16x8(sum, zero0), c[r][1] = wasm_i32x4_dot_i16x8(sum, zero1);
      }
      for (u32 k = 0; k < group; k += 32, w += 256 * WORD, a += 128 * WORD) {
        KEEP(w, a);
        columns(c, w, a);
      }
      v128_t scale0 = LOAD(engine.panel_scales + 8 * g), scale1 = LOAD(engine.panel_scales + 8 * g + 4);
      for (u32 r = 0; r < 4; r++) {
        total[r][0] = MADD(wasm_f32x4_convert_i32x4(c[r][0]), scale0, total[r][0]);
        total[r][1] = MADD(wasm_f32x4_convert_i32x4(c[r][1]), scale1, total[r][1]);
      }
    }
    for (u32 r = 0; r < 4 && row + r < t->rows; r++) {
      v128_t scale = SPLAT(engine.scales[row + r]), shift = SPLAT((float)engine.zeros[row + r]);
      float *out = t->out + (size_t)(row + r) * t->stride + n;
      STORE(out, MADD(wasm_f32x4_sub(total[r][0], wasm_f32x4_mul(shift, fix0)), scale, bias0));
      STORE(out + 4, MADD(wasm_f32x4_sub(total[r][1], wasm_f32x4_mul(shift, fix1)), scale, bias1));
    }
    if (t->act || t->residual) finish_block(t, row, 4, n, 8);
  }
}

void linear_i4(const Target *t, const Tensor *w) {
  u32 high = PAD(w->rows, 8u), groups = groups_of(w), wide = groups * w->group, half = w->detail & SCALES_F16;
  const u8 *panel = data_of(w), *scales = aux_of(w);
  const u8 *corrections = scales + PAD((size_t)high * groups * (half ? 2 : 4), 64);
  const u8 *zeros = w->detail & ZEROS ? corrections + PAD((size_t)high * 4, 64) : 0;
  for (u32 n = 0; n < w->rows; n += 8, panel += (size_t)4 * wide) {
    unpack_panel(panel, wide);
    unpack_groups(scales + (size_t)n * groups * (half ? 2 : 4), zeros ? zeros + (size_t)n * groups : 0, groups, half);
#if RELAXED
    if (engine_kind == KIND_A8 || engine_kind == KIND_A8_SIGNED)
      sweep(t, (const float *)corrections, n, groups, w->group, columns_dot);
    else
      sweep(t, (const float *)corrections, n, groups, w->group, columns_16);
#else
    sweep(t, (const float *)corrections, n, groups, w->group, columns_words);
#endif
  }
}
