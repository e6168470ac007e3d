// LINEAR: which kernel multiplies, and what comes after the sums.
#include "simd.h"
#include "activations.h"

u32 engine_kind;

#define X(name, value) {value, value, value, value},
const float activation_constants[][4] = {ACTIVATION_CONSTANTS(X)};
#undef X

ALWAYS void each(float *data, u32 count, u32 act) {
  Constants k = constants();
  for (u32 i = 0; i < count; i += 4) STORE(data + i, activate4(LOAD(data + i), act, k));
}

void activate_rows(float *data, u32 count, u32 act) {
  switch (act) {
    case ACT_GELU_ERF: each(data, count, ACT_GELU_ERF); break;
    case ACT_GELU_TANH: each(data, count, ACT_GELU_TANH); break;
    case ACT_SILU: each(data, count, ACT_SILU); break;
    case ACT_RELU: each(data, count, ACT_RELU); break;
    case ACT_TANH: each(data, count, ACT_TANH); break;
  }
}

ALWAYS void finish(const Target *t, u32 row, u32 rows, u32 column, u32 columns, u32 act) {
  Constants k = constants();
  rows = min_u32(rows, t->rows - row);
  for (u32 r = 0; r < rows; r++) {
    float *out = t->out + (size_t)(row + r) * t->stride + column;
    const float *more = t->residual ? t->residual + (size_t)(row + r) * t->stride + column : 0;
    for (u32 i = 0; i < columns; i += 8) {
      v128_t a = activate4(LOAD(out + i), act, k), b = activate4(LOAD(out + i + 4), act, k);
      if (more) a = wasm_f32x4_add(a, LOAD(more + i)), b = wasm_f32x4_add(b, LOAD(more + i + 4));
      STORE(out + i, a);
      STORE(out + i + 4, b);
    }
  }
}

void finish_block(const Target *t, u32 row, u32 rows, u32 column, u32 columns) {
  switch (t->act) {
    case ACT_GELU_ERF: finish(t, row, rows, column, columns, ACT_GELU_ERF); break;
    case ACT_GELU_TANH: finish(t, row, rows, column, columns, ACT_GELU_TANH); break;
    case ACT_SILU: finish(t, row, rows, column, columns, ACT_SILU); break;
    case ACT_RELU: finish(t, row, rows, column, columns, ACT_RELU); break;
    case ACT_TANH: finish(t, row, rows, column, columns, ACT_TANH); break;
    default: finish(t, row, rows, column, columns, ACT_NONE);
  }
}

// The form in which this kind of arithmetic reads activations in this build.
static u32 form_of(const Tensor *w) {
#if RELAXED
  if (w->dtype == I4) return KIND_A8_SIGNED;
  return engine_kind == KIND_A12 ? KIND_A12 | WORDS : engine_kind;
#else
  return (w->dtype == I4 ? KIND_A8_SIGNED : engine_kind) | WORDS;
#endif
}

// Several LINEARs often read the same rows: they are quantised once.
static void quantize_once(const LinearArgs *a, const Register *in, u32 rows, const Tensor *w) {
  u32 wide = w->dtype == I4 ? groups_of(w) * w->group : PAD(w->columns, 8u), form = form_of(w);
  if (engine.quantized_register != a->source || engine.quantized_offset != a->offset || engine.quantized_wide != wide ||
      engine.quantized_form != form) {
    quantize_rows(in->data + a->offset, in->stride, rows, w->columns, wide, form);
    engine.quantized_register = a->source, engine.quantized_offset = a->offset;
    engine.quantized_wide = wide, engine.quantized_form = form;
  }
  if (w->dtype == I4) sum_groups(rows, wide, w->group, form);
}

void run_linear(const LinearArgs *a) {
  const Tensor *w = tensor_at(a->weight);
  const Register *in = engine.registers + a->source, *out = engine.registers + a->out;
  Target t = {
      .out = out->data, .stride = out->stride, .rows = rows_of(out), .act = a->act, .bias = vector_of(a->bias),
      .residual = a->residual == NONE ? 0 : engine.registers[a->residual].data,
  };
  if (w->dtype == F32 || w->dtype == F16) {
    linear_float(&t, in->data + a->offset, in->stride, w);
    return;
  }
  quantize_once(a, in, t.rows, w);
  if (w->dtype == I8)
    linear_i8(&t, w);
  else
    linear_i4(&t, w);
}
