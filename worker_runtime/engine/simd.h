// 4 floats at a time.
#ifndef EDGE_SIMD_H
#define EDGE_SIMD_H
#include <wasm_simd128.h>
#include "abi.h"

#if RELAXED
#define MADD(a, b, c) wasm_f32x4_relaxed_madd(a, b, c)
#else
#define MADD(a, b, c) wasm_f32x4_add(wasm_f32x4_mul(a, b), c)
#endif
#define SPLAT(x) wasm_f32x4_splat(x)
#define LOAD(p) wasm_v128_load(p)
#define STORE(p, v) wasm_v128_store(p, v)
// Keeps a constant in a register: V8 builds one from three instructions wherever wasm names it, also in a loop.
#define HOLD(x) __asm__("" : "+r"(x))
// Keeps two pointers in registers of their own, so that loads from them use immediate offsets.
#define KEEP(a, b) __asm__("" : "+r"(a), "+r"(b))

// Lane `r` (known to the compiler) in all lanes.
#define SPREAD(x, r)                                                                                                  \
  ((r) == 0   ? wasm_i32x4_shuffle(x, x, 0, 0, 0, 0)                                                                  \
   : (r) == 1 ? wasm_i32x4_shuffle(x, x, 1, 1, 1, 1)                                                                  \
   : (r) == 2 ? wasm_i32x4_shuffle(x, x, 2, 2, 2, 2)                                                                  \
              : wasm_i32x4_shuffle(x, x, 3, 3, 3, 3))

static inline void transpose4(const v128_t in[4], v128_t out[4]) {
  v128_t ab0 = wasm_i32x4_shuffle(in[0], in[1], 0, 4, 1, 5), ab1 = wasm_i32x4_shuffle(in[0], in[1], 2, 6, 3, 7);
  v128_t cd0 = wasm_i32x4_shuffle(in[2], in[3], 0, 4, 1, 5), cd1 = wasm_i32x4_shuffle(in[2], in[3], 2, 6, 3, 7);
  out[0] = wasm_i64x2_shuffle(ab0, cd0, 0, 2), out[1] = wasm_i64x2_shuffle(ab0, cd0, 1, 3);
  out[2] = wasm_i64x2_shuffle(ab1, cd1, 0, 2), out[3] = wasm_i64x2_shuffle(ab1, cd1, 1, 3);
}

static inline float sum4(v128_t a) {
  return (wasm_f32x4_extract_lane(a, 0) + wasm_f32x4_extract_lane(a, 1)) +
         (wasm_f32x4_extract_lane(a, 2) + wasm_f32x4_extract_lane(a, 3));
}

static inline float max4(v128_t a) {
  a = wasm_f32x4_pmax(a, wasm_i32x4_shuffle(a, a, 2, 3, 0, 1));
  a = wasm_f32x4_pmax(a, wasm_i32x4_shuffle(a, a, 1, 0, 3, 2));
  return wasm_f32x4_extract_lane(a, 0);
}

static inline float min4(v128_t a) {
  a = wasm_f32x4_pmin(a, wasm_i32x4_shuffle(a, a, 2, 3, 0, 1));
  a = wasm_f32x4_pmin(a, wasm_i32x4_shuffle(a, a, 1, 0, 3, 2));
  return wasm_f32x4_extract_lane(a, 0);
}

static inline u32 min_u32(u32 a, u32 b) { return a < b ? a : b; }
static inline u32 max_u32(u32 a, u32 b) { return a > b ? a : b; }

// `count` (1 to 3) floats and zeros: what lies behind them is not used, but is read.
static inline v128_t load_part(const float *p, u32 count) {
  const v128_t lanes = wasm_i32x4_make(0, 1, 2, 3);
  return wasm_v128_and(LOAD(p), wasm_i32x4_lt(lanes, wasm_i32x4_splat((i32)count)));
}

// 4 halves (in the low 64 bits, finite) as floats.
static inline v128_t widen_f16(v128_t halves) {
  v128_t bits = wasm_u32x4_extend_low_u16x8(halves);
  v128_t sign = wasm_i32x4_shl(wasm_v128_and(bits, wasm_i32x4_splat(0x8000)), 16);
  v128_t magnitude = wasm_i32x4_shl(wasm_v128_and(bits, wasm_i32x4_splat(0x7fff)), 13);
  return wasm_v128_or(wasm_f32x4_mul(magnitude, SPLAT(0x1p112f)), sign);
}
#endif
