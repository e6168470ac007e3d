// exp, erf and what is made of them, 4 floats at a time. Errors were measured over all floats of the range named.
#ifndef EDGE_ACTIVATIONS_H
#define EDGE_ACTIVATIONS_H
#include "simd.h"

// The functions below read their constants from this table, 4 of each, through a pointer whose value the compiler does
// not know: V8 would build every constant from three instructions each time it is used.
#define ACTIVATION_CONSTANTS(X)                                                                                       \
  X(LOW, -126.f) X(HIGH, 127.f) X(MAGIC, 12582912.f) X(E5, 0.00132646656f) X(E4, 0.00967151299f)                     \
  X(E3, 0.0555073395f) X(E2, 0.240222424f) X(E1, 0.693147004f) X(ONE, 1.f) X(HALF, 0.5f) X(FIVE, 5.f)                \
  X(MINUS_FIVE, -5.f) X(P5, -3.00442138e-09f) X(P4, 2.34331566e-07f) X(P3, 2.40087465e-05f) X(P2, 0.00375849055f)    \
  X(P1, 0.0247295294f) X(P0, 0.398950398f) X(Q3, 0.00110573822f) X(Q2, 0.0224649552f) X(Q1, 0.228722051f)            \
  X(MINUS_LOG2E, -1.44269504f) X(MINUS_2_LOG2E, -2.88539008f) X(G3, 0.0713548163f) X(G1, 1.59576912f)                \
  X(T7, -0.0539682540f) X(T5, 0.133333333f) X(T3, -0.333333333f) X(NEAR, 0.2f)
enum {
#define X(name, value) C_##name,
  ACTIVATION_CONSTANTS(X)
#undef X
};
extern const float activation_constants[][4];
typedef const float (*Constants)[4];
static inline Constants constants(void) {
  Constants table = activation_constants;
  __asm__("" : "+r"(table));
  return table;
}
#define C(name) LOAD(k[C_##name])

// 2^x for x <= 127, below -126 as there; relative error below 2e-7.
ALWAYS v128_t exp2_below(v128_t x, Constants k) {
  x = wasm_f32x4_pmax(C(LOW), x);
  const v128_t magic = C(MAGIC);  // adding it rounds to a whole number, kept in the low bits
  v128_t shifted = wasm_f32x4_add(x, magic);
  v128_t f = wasm_f32x4_sub(x, wasm_f32x4_sub(shifted, magic));
  v128_t p = MADD(f, C(E5), C(E4));
  p = MADD(p, f, C(E3));
  p = MADD(p, f, C(E2));
  p = MADD(p, f, C(E1));
  p = MADD(p, f, C(ONE));
  return wasm_i32x4_add(p, wasm_i32x4_shl(shifted, 23));
}

ALWAYS v128_t exp2_4(v128_t x, Constants k) { return exp2_below(wasm_f32x4_pmin(x, C(HIGH)), k); }

ALWAYS v128_t sigmoid4(v128_t x, Constants k) {
  v128_t e = exp2_4(wasm_f32x4_mul(x, C(MINUS_LOG2E)), k);
  return wasm_f32x4_div(C(ONE), wasm_f32x4_add(e, C(ONE)));
}

// (1 - e) / (1 + e) with e = exp(-2 |x|); near 0, where that loses digits, its odd series.
ALWAYS v128_t tanh4(v128_t x, Constants k) {
  v128_t a = wasm_f32x4_abs(x), u = wasm_f32x4_mul(x, x);
  v128_t e = exp2_below(wasm_f32x4_mul(a, C(MINUS_2_LOG2E)), k);
  v128_t far = wasm_f32x4_div(wasm_f32x4_sub(C(ONE), e), wasm_f32x4_add(C(ONE), e));
  v128_t p = MADD(u, C(T7), C(T5));
  p = MADD(p, u, C(T3));
  v128_t near = MADD(wasm_f32x4_mul(p, u), a, a);
  v128_t magnitude = wasm_v128_bitselect(near, far, wasm_f32x4_lt(a, C(NEAR)));
  return wasm_v128_or(magnitude, wasm_v128_and(x, wasm_i32x4_splat((i32)0x80000000)));
}

// x (1 + erf(x / sqrt 2)) / 2: half of erf as a ratio of polynomials in x^2, constant beyond 5; absolute error below
// 1e-6 + 6e-7 |x|. Half the price of the usual exp and polynomial.
ALWAYS v128_t gelu_erf4(v128_t x, Constants k) {
  v128_t c = wasm_f32x4_pmax(C(MINUS_FIVE), wasm_f32x4_pmin(x, C(FIVE)));
  v128_t u = wasm_f32x4_mul(c, c);
  v128_t p = MADD(u, C(P5), C(P4));
  v128_t q = MADD(u, C(Q3), C(Q2));
  p = MADD(p, u, C(P3));
  q = MADD(q, u, C(Q1));
  p = MADD(p, u, C(P2));
  q = MADD(q, u, C(ONE));
  p = MADD(p, u, C(P1));
  p = MADD(p, u, C(P0));
  v128_t half_erf = wasm_f32x4_div(wasm_f32x4_mul(c, p), q);
  return MADD(x, half_erf, wasm_f32x4_mul(x, C(HALF)));
}

// x sigmoid(2 z), z being tanh's argument.
ALWAYS v128_t gelu_tanh4(v128_t x, Constants k) {
  v128_t u = wasm_f32x4_mul(x, x);
  v128_t z2 = wasm_f32x4_mul(x, MADD(u, C(G3), C(G1)));
  return wasm_f32x4_mul(x, sigmoid4(z2, k));
}

ALWAYS v128_t activate4(v128_t x, u32 act, Constants k) {
  switch (act) {
    case ACT_GELU_ERF: return gelu_erf4(x, k);
    case ACT_GELU_TANH: return gelu_tanh4(x, k);
    case ACT_SILU: return wasm_f32x4_mul(x, sigmoid4(x, k));
    case ACT_RELU: return wasm_f32x4_pmax(SPLAT(0.f), x);
    case ACT_TANH: return tanh4(x, k);
    default: return x;
  }
}
#endif
