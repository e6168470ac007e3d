// LINEAR: which kernel multiplies, and what comes after the sums.
#include "simd.h"
#include "activations.h"

u32 engine_kind;

void activate_rows(float *data, u32 count, u32 act) {
#define EACH(f) for (u32 i = 0; i < count; i += 4) STORE(data + i, f(LOAD(data + i)))
  switch (act) {
    case ACT_GELU_ERF: EACH(gelu_erf4); break;
    case ACT_GELU_TANH: EACH(gelu_tanh4); break;
    case ACT_SILU: for (u32 i = 0; i < count; i += 4) STORE(data + i, activate4(LOAD(data + i), ACT_SILU)); break;
    case ACT_RELU: for (u32 i = 0; i < count; i += 4) STORE(data + i, activate4(LOAD(data + i), ACT_RELU)); break;
    case ACT_TANH: EACH(tanh4); break;
  }
}

ALWAYS void finish(const Target *t, u32 row, u32 column, u32 act) {
  u32 rows = min_u32(4, t->rows - row);
  for (u32 r = 0; r < rows; r++) {
    float *out = t->out + (size_t)(row + r) * t->stride + column;
    v128_t a = activate4(LOAD(out), act), b = activate4(LOAD(out + 4), act);
    if (t->residual) {
      const float *more = t->residual + (size_t)(row + r) * t->stride + column;
      a = wasm_f32x4_add(a, LOAD(more)), b = wasm_f32x4_add(b, LOAD(more + 4));
    }
    STORE(out, a);
    STORE(out + 4, b);
  }
}

void finish_block(const Target *t, u32 row, u32 column) {
  switch (t->act) {
    case ACT_GELU_ERF: finish(t, row, column, ACT_GELU_ERF); break;
    case ACT_GELU_TANH: finish(t, row, column, ACT_GELU_TANH); break;
    case ACT_SILU: finish(t, row, column, ACT_SILU); break;
    case ACT_RELU: finish(t, row, column, ACT_RELU); break;
    case ACT_TANH: finish(t, row, column, ACT_TANH); break;
    default: finish(t, row, column, ACT_NONE);
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
