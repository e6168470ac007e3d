// LINEAR with float weights: panels of 8 output channels over blocks of 4 rows. Halves are widened a panel at a time.
#include "simd.h"

ALWAYS void multiply_step(v128_t c[4][2], const float *w, const float *const rows[4], u32 k) {
  v128_t w0 = LOAD(w), w1 = LOAD(w + 4);
  for (u32 r = 0; r < 4; r++) {
    v128_t x = wasm_v128_load32_splat(rows[r] + k);
    c[r][0] = MADD(x, w0, c[r][0]), c[r][1] = MADD(x, w1, c[r][1]);
    __asm__ volatile("" : "+r"(c[r][0]), "+r"(c[r][1]));
  }
}

// c[r] += sum over k < count of rows[r][k] * w[8 k .. + 8].
ALWAYS void multiply(v128_t c[4][2], const float *w, const float *const in[4], u32 count) {
  const float *rows[4] = {in[0], in[1], in[2], in[3]};
  for (; count >= 4; count -= 4) {
    KEEP(w, rows[0]);
    KEEP(rows[1], rows[2]);
    KEEP(rows[3], rows[3]);
#pragma unroll
    for (u32 i = 0; i < 4; i++) multiply_step(c, w + 8 * i, rows, i);
    w += 32;
    for (u32 r = 0; r < 4; r++) rows[r] += 4;
  }
  for (; count; count--) {
    multiply_step(c, w, rows, 0);
    w += 8;
    for (u32 r = 0; r < 4; r++) rows[r]++;
  }
}

static const float *widen_panel(const u16 *halves, u32 columns) {
  float *out = engine.panel;
  for (u32 k = 0; k < columns; k++, halves += 8, out += 8) {
    STORE(out, widen_f16(wasm_v128_load64_zero(halves)));
    STORE(out + 4, widen_f16(wasm_v128_load64_zero(halves + 4)));
  }
  return engine.panel;
}

static void block(const Target *t, const float *in, u32 in_stride, const float *w, u32 columns, u32 row, u32 n) {
  const float *rows[4];
  v128_t c[4][2];
  v128_t b0 = t->bias ? LOAD(t->bias + n) : SPLAT(0.f), b1 = t->bias ? LOAD(t->bias + n + 4) : SPLAT(0.f);
  for (u32 r = 0; r < 4; r++) {
    rows[r] = in + (size_t)min_u32(row + r, t->rows - 1) * in_stride;
    c[r][0] = b0, c[r][1] = b1;
  }
  multiply(c, w, rows, columns);
  for (u32 r = 0; r < 4; r++)
    if (row + r < t->rows) {
      float *out = t->out + (size_t)(row + r) * t->stride + n;
      STORE(out, c[r][0]);
      STORE(out + 4, c[r][1]);
    }
}

void linear_float(const Target *t, const float *in, u32 in_stride, const Tensor *w) {
  const u8 *data = data_of(w);
  u32 size = w->dtype == F32 ? 4 : 2, finished = t->act || t->residual;
  for (u32 n = 0; n < w->rows; n += 8, data += (size_t)8 * w->columns * size) {
    const float *panel = w->dtype == F32 ? (const float *)data : widen_panel((const u16 *)data, w->columns);
    for (u32 row = 0; row < t->rows; row += 4) {
      block(t, in, in_stride, panel, w->columns, row, n);
      if (finished) finish_block(t, row, 4, n, 8);
    }
  }
}
