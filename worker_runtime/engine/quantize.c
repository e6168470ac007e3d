// Activations of one LINEAR as integers: q, scale and zero point per row, as edgespec/engine/reference.py defines them.
//
// Rows go into panels of 4: bytes as [row / 4][column / 4][4 rows][4 columns], words as [row / 4][column / 2][4 rows][2
// columns]. Columns beyond the last and rows that only fill a panel are 0.
#include "simd.h"

typedef struct {
  v128_t inverse[4], offset[4];
  const float *rows[4];
} Panel;

static const float MAGIC = 12582912.f;  // 1.5 * 2^23: adding it rounds to a whole number
static const i32 MAGIC_BITS = 0x4B400000;

static void find_range(const float *row, u32 columns, float *low, float *high) {
  v128_t min0 = SPLAT(0.f), max0 = min0, min1 = min0, max1 = min0;
  u32 k = 0;
  for (; k + 8 <= columns; k += 8) {
    v128_t a = LOAD(row + k), b = LOAD(row + k + 4);
    min0 = wasm_f32x4_pmin(min0, a), max0 = wasm_f32x4_pmax(max0, a);
    min1 = wasm_f32x4_pmin(min1, b), max1 = wasm_f32x4_pmax(max1, b);
  }
  for (; k < columns; k += 4) {
    v128_t a = k + 4 <= columns ? LOAD(row + k) : load_part(row + k, columns - k);
    min0 = wasm_f32x4_pmin(min0, a), max0 = wasm_f32x4_pmax(max0, a);
  }
  *low = min4(wasm_f32x4_pmin(min0, min1));
  *high = max4(wasm_f32x4_pmax(max0, max1));
}

static void choose_scale(u32 row, u32 kind, float low, float high) {
  float top = kind == KIND_A7 ? 127.f : kind == KIND_A12 ? 2047.f : 255.f;
  float range = kind == KIND_A12 ? (high > -low ? high : -low) : high - low;
  float scale = range / top;
  if (!(scale >= 1e-20f)) scale = 1e-20f;
  i32 zero = 0;
  if (kind != KIND_A12) {
    float shifted = -low * (1.f / scale) + MAGIC;
    __builtin_memcpy(&zero, &shifted, 4);
    zero -= MAGIC_BITS + (kind == KIND_A8_SIGNED ? 128 : 0);
  }
  engine.scales[row] = scale;
  engine.zeros[row] = zero;
}

ALWAYS v128_t whole(const Panel *p, u32 row, v128_t x, v128_t magic) {
  return wasm_i32x4_sub(wasm_f32x4_add(wasm_f32x4_mul(x, p->inverse[row]), magic), p->offset[row]);
}

// 4 columns of 4 rows, from their whole numbers in words: rows 0 and 1, rows 2 and 3.
ALWAYS u8 *put(u8 *out, v128_t a, v128_t b, u32 form, v128_t top) {
  if (form != KIND_A12 && form != (KIND_A12 | WORDS)) a = wasm_i16x8_min(a, top), b = wasm_i16x8_min(b, top);
  if (form & WORDS) {
    if ((form & 3) == KIND_A8_SIGNED) {
      a = wasm_i16x8_max(a, wasm_i16x8_splat(-128)), b = wasm_i16x8_max(b, wasm_i16x8_splat(-128));
    } else if ((form & 3) != KIND_A12) {
      a = wasm_i16x8_max(a, wasm_i16x8_splat(0)), b = wasm_i16x8_max(b, wasm_i16x8_splat(0));
    }
    wasm_v128_store(out, wasm_i32x4_shuffle(a, b, 0, 2, 4, 6));
    wasm_v128_store(out + 16, wasm_i32x4_shuffle(a, b, 1, 3, 5, 7));
    return out + 32;
  }
  wasm_v128_store(out, form == KIND_A8_SIGNED ? wasm_i8x16_narrow_i16x8(a, b) : wasm_u8x16_narrow_i16x8(a, b));
  return out + 16;
}

ALWAYS void quantize_panel(const Panel *given, u8 *out, u32 columns, u32 wide, u32 form) {
  const Panel p = *given;
  v128_t top = wasm_i16x8_splat((form & 3) == KIND_A8 ? 255 : 127), magic = SPLAT(MAGIC);
  HOLD(top);
  HOLD(magic);
  u32 k = 0;
  for (; k + 4 <= columns; k += 4)
    out = put(out, wasm_i16x8_narrow_i32x4(whole(&p, 0, LOAD(p.rows[0] + k), magic), whole(&p, 1, LOAD(p.rows[1] + k), magic)),
              wasm_i16x8_narrow_i32x4(whole(&p, 2, LOAD(p.rows[2] + k), magic), whole(&p, 3, LOAD(p.rows[3] + k), magic)), form, top);
  const v128_t zero = wasm_i32x4_splat(0);
  if (k < columns) {
    v128_t part[4], mask = wasm_i32x4_lt(wasm_i32x4_make(0, 1, 2, 3), wasm_i32x4_splat((i32)(columns - k)));
    for (u32 r = 0; r < 4; r++) part[r] = wasm_v128_and(whole(&p, r, LOAD(p.rows[r] + k), magic), mask);
    out = put(out, wasm_i16x8_narrow_i32x4(part[0], part[1]), wasm_i16x8_narrow_i32x4(part[2], part[3]), form, top);
    k += 4;
  }
  for (; k < wide; k += 4) out = put(out, zero, zero, form, top);
}

void quantize_rows(const float *in, u32 stride, u32 rows, u32 columns, u32 wide, u32 form) {
  u32 kind = form & 3;
  u8 *out = engine.quantized;
  for (u32 row = 0; row < rows; row += 4, out += wide * (form & WORDS ? 8 : 4)) {
    Panel p;
    for (u32 r = 0; r < 4; r++) {
      u32 real = row + r < rows;
      p.rows[r] = in + (size_t)(real ? row + r : rows - 1) * stride;
      float low = 0, high = 0;
      if (real) find_range(p.rows[r], columns, &low, &high);
      choose_scale(row + r, kind, low, high);
      p.inverse[r] = SPLAT(real ? 1.f / engine.scales[row + r] : 0.f);
      p.offset[r] = wasm_i32x4_splat(MAGIC_BITS - (real ? engine.zeros[row + r] : 0));
    }
    switch (form) {
#if RELAXED
      case KIND_A7: quantize_panel(&p, out, columns, wide, KIND_A7); break;
      case KIND_A8: quantize_panel(&p, out, columns, wide, KIND_A8); break;
      case KIND_A8_SIGNED: quantize_panel(&p, out, columns, wide, KIND_A8_SIGNED); break;
#endif
      case KIND_A7 | WORDS: quantize_panel(&p, out, columns, wide, KIND_A7 | WORDS); break;
      case KIND_A8 | WORDS: quantize_panel(&p, out, columns, wide, KIND_A8 | WORDS); break;
      case KIND_A8_SIGNED | WORDS: quantize_panel(&p, out, columns, wide, KIND_A8_SIGNED | WORDS); break;
      default: quantize_panel(&p, out, columns, wide, KIND_A12 | WORDS);
    }
  }
}

// Sums of q over each group of columns, as [row / 4][group][4 rows].
void sum_groups(u32 rows, u32 wide, u32 group, u32 form) {
  const u8 *in = engine.quantized;
  i32 *out = engine.group_sums;
  for (u32 row = 0; row < rows; row += 4)
    for (u32 k = 0; k < wide; k += group, out += 4) {
      v128_t sum = wasm_i32x4_splat(0);
      for (u32 i = 0; i < group; i += 4) {
        if (form & WORDS) {
          sum = wasm_i32x4_add(sum, wasm_i32x4_extadd_pairwise_i16x8(wasm_v128_load(in)));
          sum = wasm_i32x4_add(sum, wasm_i32x4_extadd_pairwise_i16x8(wasm_v128_load(in + 16)));
          in += 32;
        } else {
          v128_t pairs = wasm_i16x8_extadd_pairwise_i8x16(wasm_v128_load(in));
          sum = wasm_i32x4_add(sum, wasm_i32x4_extadd_pairwise_i16x8(pairs));
          in += 16;
        }
      }
      wasm_v128_store(out, sum);
    }
}
