// The float kernel that LINEAR and ATTENTION share: 4 rows times 8 columns.
#ifndef EDGE_BLOCK_H
#define EDGE_BLOCK_H
#include "simd.h"

ALWAYS void multiply_step(v128_t c[4][2], const float *w, const float *const rows[4], u32 k) {
  v128_t w0 = LOAD(w), w1 = LOAD(w + 4);
  for (u32 r = 0; r < 4; r++) {
    v128_t x = wasm_v128_load32_splat(rows[r] + k);
    c[r][0] = MADD(x, w0, c[r][0]), c[r][1] = MADD(x, w1, c[r][1]);
    __asm__ volatile("" : "+r"(c[r][0]), "+r"(c[r][1]));
  }
}

// c[r] += sum over k < count of rows[r][k] * w[k * stride .. + 8].
ALWAYS void multiply(v128_t c[4][2], const float *w, u32 stride, const float *const in[4], u32 count) {
  const float *rows[4] = {in[0], in[1], in[2], in[3]};
  for (; count >= 4; count -= 4) {
    KEEP(w, rows[0]);
    KEEP(rows[1], rows[2]);
    KEEP(rows[3], rows[3]);
#pragma unroll
    for (u32 i = 0; i < 4; i++) multiply_step(c, w + i * stride, rows, i);
    w += 4 * stride;
    for (u32 r = 0; r < 4; r++) rows[r] += 4;
  }
  for (; count; count--) {
    multiply_step(c, w, rows, 0);
    w += stride;
    for (u32 r = 0; r < 4; r++) rows[r]++;
  }
}
#endif
