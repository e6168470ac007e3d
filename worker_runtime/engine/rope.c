// ROPE: pairs of columns rotated by (place in the text) * frequency, from tables that loading computed.
#include "simd.h"

// Cosine and sine of x >= 0, to float accuracy: x is reduced by multiples of pi / 2 in double.
static void cos_sin(double x, float *cosine, float *sine) {
  i32 quarter = (i32)(x * 0.6366197723675814 + 0.5);
  double y = (x - quarter * 1.5707963267341256) - quarter * 6.077100506506192e-11, u = y * y;
  double s = y + y * u * (-1.0 / 6 + u * (1.0 / 120 + u * (-1.0 / 5040 + u * (1.0 / 362880 - u / 39916800))));
  double c = 1 + u * (-0.5 + u * (1.0 / 24 + u * (-1.0 / 720 + u * (1.0 / 40320 - u / 3628800))));
  double cs[4] = {c, -s, -c, s}, sn[4] = {s, c, -s, -c};
  *cosine = (float)cs[quarter & 3];
  *sine = (float)sn[quarter & 3];
}

// [position][cosines, sines]. Frequencies outside [0, 1e4] count as 0, so that the reduction stays exact.
void fill_rope_table(float *table, const float *frequencies, u32 half, u32 positions) {
  for (u32 p = 0; p < positions; p++, table += 2 * half)
    for (u32 i = 0; i < half; i++) {
      float angle = (float)p * frequencies[i];
      cos_sin(angle >= 0 && angle <= 1e8f ? angle : 0, table + i, table + half + i);
    }
}

static void rotate(float *head, const float *table, u32 half, float scale) {
  const v128_t factor = SPLAT(scale);
  u32 i = 0;
  for (; i + 4 <= half; i += 4) {
    v128_t c = wasm_f32x4_mul(LOAD(table + i), factor), s = wasm_f32x4_mul(LOAD(table + half + i), factor);
    v128_t a = LOAD(head + i), b = LOAD(head + half + i);
    STORE(head + i, wasm_f32x4_sub(wasm_f32x4_mul(a, c), wasm_f32x4_mul(b, s)));
    STORE(head + half + i, wasm_f32x4_add(wasm_f32x4_mul(b, c), wasm_f32x4_mul(a, s)));
  }
  for (; i < half; i++) {
    float c = table[i] * scale, s = table[half + i] * scale, a = head[i], b = head[half + i];
    head[i] = a * c - b * s;
    head[half + i] = b * c + a * s;
  }
}

void run_rope(const RopeArgs *a) {
  const Register *target = engine.registers + a->target;
  const float *table = 0;
  for (u32 i = 0; i < engine.ropes; i++)
    if (engine.rope_tensor[i] == a->frequencies) table = engine.rope_table[i];
  for (u32 row = 0; row < engine.tokens; row++) {
    float *data = target->data + (size_t)row * target->stride + a->offset;
    const float *angles = table + (size_t)engine.places[row] * a->rotary;
    for (u32 h = 0; h < a->heads; h++) rotate(data + h * a->head, angles, a->rotary / 2, a->scale);
  }
}
