// GLU, ADD, MUL, SCALE, ACTIVATE, CONCAT. Columns between width and stride stay 0 by themselves where only whole rows
// are combined; slices have to clear them.
#include "activations.h"

static void clear_rest(const Register *r) {
  u32 rows = rows_of(r);
  if (r->width == r->stride) return;
  for (u32 row = 0; row < rows; row++)
    for (u32 i = r->width; i < r->stride; i++) r->data[(size_t)row * r->stride + i] = 0;
}

ALWAYS void glu(const GluArgs *args, u32 act) {
  Constants k = constants();
  const Register *out = engine.registers + args->out, *a = engine.registers + args->a, *b = engine.registers + args->b;
  u32 rows = rows_of(out);
  for (u32 row = 0; row < rows; row++) {
    const float *x = a->data + (size_t)row * a->stride + args->a_offset;
    const float *y = b->data + (size_t)row * b->stride + args->b_offset;
    float *z = out->data + (size_t)row * out->stride;
    for (u32 i = 0; i < out->width; i += 4) STORE(z + i, wasm_f32x4_mul(activate4(LOAD(x + i), act, k), LOAD(y + i)));
  }
  clear_rest(out);
}

void run_glu(const GluArgs *a) {
  switch (a->act) {
    case ACT_GELU_ERF: glu(a, ACT_GELU_ERF); break;
    case ACT_GELU_TANH: glu(a, ACT_GELU_TANH); break;
    case ACT_SILU: glu(a, ACT_SILU); break;
    case ACT_RELU: glu(a, ACT_RELU); break;
    case ACT_TANH: glu(a, ACT_TANH); break;
    default: glu(a, ACT_NONE);
  }
}

static u32 count_of(const Register *r) { return rows_of(r) * r->stride; }

void run_add(const PairArgs *args) {
  const Register *out = engine.registers + args->out;
  const float *a = engine.registers[args->a].data, *b = engine.registers[args->b].data;
  u32 count = count_of(out);
  for (u32 i = 0; i < count; i += 4) STORE(out->data + i, wasm_f32x4_add(LOAD(a + i), LOAD(b + i)));
}

void run_mul(const PairArgs *args) {
  const Register *out = engine.registers + args->out;
  const float *a = engine.registers[args->a].data, *b = engine.registers[args->b].data;
  u32 count = count_of(out);
  for (u32 i = 0; i < count; i += 4) STORE(out->data + i, wasm_f32x4_mul(LOAD(a + i), LOAD(b + i)));
}

void run_scale(const ScaleArgs *a) {
  const Register *out = engine.registers + a->out, *in = engine.registers + a->source;
  const float *weight = vector_of(a->weight), *bias = vector_of(a->bias);
  const v128_t factor = SPLAT(a->factor);
  u32 rows = rows_of(out);
  for (u32 row = 0; row < rows; row++) {
    size_t at = (size_t)row * out->stride;
    for (u32 i = 0; i < out->stride; i += 4) {
      v128_t x = wasm_f32x4_mul(LOAD(in->data + at + i), factor);
      if (weight) x = wasm_f32x4_mul(x, LOAD(weight + i));
      if (bias) x = wasm_f32x4_add(x, LOAD(bias + i));
      STORE(out->data + at + i, x);
    }
  }
}

void run_activate(const ActivateArgs *a) {
  const Register *out = engine.registers + a->out, *in = engine.registers + a->source;
  u32 count = count_of(out);
  if (out != in) __builtin_memcpy(out->data, in->data, (size_t)count * 4);
  activate_rows(out->data, count, a->act);
}

void run_concat(const ConcatArgs *args) {
  const Register *out = engine.registers + args->out, *a = engine.registers + args->a;
  const Register *b = args->b == NONE ? 0 : engine.registers + args->b;
  u32 rows = rows_of(out);
  for (u32 row = 0; row < rows; row++) {
    float *to = out->data + (size_t)row * out->stride;
    __builtin_memcpy(to, a->data + (size_t)row * a->stride + args->a_offset, (size_t)args->a_width * 4);
    if (b) {
      const float *from = b->data + (size_t)row * b->stride + args->b_offset;
      __builtin_memcpy(to + args->a_width, from, (size_t)args->b_width * 4);
    }
  }
  clear_rest(out);
}
