// exp, erf and what is made of them, 4 floats at a time. Errors were measured over all floats of the range named.
#ifndef EDGE_ACTIVATIONS_H
#define EDGE_ACTIVATIONS_H
#include "simd.h"

// 2^x for x in [-126, 127], clamped there; relative error below 2e-7.
static inline v128_t exp2_4(v128_t x) {
  x = wasm_f32x4_pmax(SPLAT(-126.f), wasm_f32x4_pmin(x, SPLAT(127.f)));
  const v128_t magic = SPLAT(12582912.f);  // adding it rounds to a whole number, kept in the low bits
  v128_t shifted = wasm_f32x4_add(x, magic);
  v128_t f = wasm_f32x4_sub(x, wasm_f32x4_sub(shifted, magic));
  v128_t p = MADD(f, SPLAT(0.00132646656f), SPLAT(0.00967151299f));
  p = MADD(p, f, SPLAT(0.0555073395f));
  p = MADD(p, f, SPLAT(0.240222424f));
  p = MADD(p, f, SPLAT(0.693147004f));
  p = MADD(p, f, SPLAT(1.f));
  return wasm_i32x4_add(p, wasm_i32x4_shl(shifted, 23));
}

static inline v128_t sigmoid4(v128_t x) {
  v128_t e = exp2_4(wasm_f32x4_mul(x, SPLAT(-1.44269504f)));
  return wasm_f32x4_div(SPLAT(1.f), wasm_f32x4_add(e, SPLAT(1.f)));
}

// (1 - e) / (1 + e) with e = exp(-2 |x|); near 0, where that loses digits, its odd series.
static inline v128_t tanh4(v128_t x) {
  v128_t a = wasm_f32x4_abs(x), u = wasm_f32x4_mul(x, x);
  v128_t e = exp2_4(wasm_f32x4_mul(a, SPLAT(-2.88539008f)));
  v128_t far = wasm_f32x4_div(wasm_f32x4_sub(SPLAT(1.f), e), wasm_f32x4_add(SPLAT(1.f), e));
  v128_t p = MADD(u, SPLAT(-0.0539682540f), SPLAT(0.133333333f));
  p = MADD(p, u, SPLAT(-0.333333333f));
  v128_t near = MADD(wasm_f32x4_mul(p, u), a, a);
  v128_t magnitude = wasm_v128_bitselect(near, far, wasm_f32x4_lt(a, SPLAT(0.2f)));
  return wasm_v128_or(magnitude, wasm_v128_and(x, wasm_i32x4_splat((i32)0x80000000)));
}

// x (1 + erf(x / sqrt 2)) / 2: half of erf as a ratio of polynomials in x^2, constant beyond 5; absolute error below
// 1e-6 + 6e-7 |x|. Half the price of the usual exp and polynomial.
static inline v128_t gelu_erf4(v128_t x) {
  v128_t c = wasm_f32x4_pmax(SPLAT(-5.f), wasm_f32x4_pmin(x, SPLAT(5.f)));
  v128_t u = wasm_f32x4_mul(c, c);
  v128_t p = MADD(u, SPLAT(-3.00442138e-09f), SPLAT(2.34331566e-07f));
  v128_t q = MADD(u, SPLAT(0.00110573822f), SPLAT(0.0224649552f));
  p = MADD(p, u, SPLAT(2.40087465e-05f));
  q = MADD(q, u, SPLAT(0.228722051f));
  p = MADD(p, u, SPLAT(0.00375849055f));
  q = MADD(q, u, SPLAT(1.f));
  p = MADD(p, u, SPLAT(0.0247295294f));
  p = MADD(p, u, SPLAT(0.398950398f));
  v128_t half_erf = wasm_f32x4_div(wasm_f32x4_mul(c, p), q);
  return MADD(x, half_erf, wasm_f32x4_mul(x, SPLAT(0.5f)));
}

// x sigmoid(2 z), z being tanh's argument.
static inline v128_t gelu_tanh4(v128_t x) {
  v128_t u = wasm_f32x4_mul(x, x);
  v128_t z2 = wasm_f32x4_mul(x, MADD(u, SPLAT(0.0713548163f), SPLAT(1.59576912f)));
  return wasm_f32x4_mul(x, sigmoid4(z2));
}

static inline v128_t activate4(v128_t x, u32 act) {
  switch (act) {
    case ACT_GELU_ERF: return gelu_erf4(x);
    case ACT_GELU_TANH: return gelu_tanh4(x);
    case ACT_SILU: return wasm_f32x4_mul(x, sigmoid4(x));
    case ACT_RELU: return wasm_f32x4_pmax(SPLAT(0.f), x);
    case ACT_TANH: return tanh4(x);
    default: return x;
  }
}
#endif
