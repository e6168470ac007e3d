// Running a loaded program, and which dot products this machine has.
#include "simd.h"

void set_error_detail(u32 index);
static u32 probed;

#if RELAXED
// A sum of 4 products of these bytes, by the instruction that machines may read differently.
static i32 dot4(i32 a, i32 b) {
  volatile i32 left = a, right = b;  // else the compiler would answer by itself
  v128_t sum = wasm_i32x4_relaxed_dot_i8x16_i7x16_add(wasm_i8x16_splat((i8)left), wasm_i8x16_splat((i8)right), wasm_i32x4_splat(0));
  return wasm_i32x4_extract_lane(sum, 0);
}
#endif

// The widest exact kind: KIND_A8 with u8 * s8 dot products, KIND_A8_SIGNED with s8 * s8, else KIND_A7 (KIND_A12 without
// relaxed instructions). Sets the kind.
EXPORT(probe) u32 probe(void) {
#if RELAXED
  probed = dot4(127, 255) == 4 * 127 * 255 && dot4(-128, 255) == 4 * -128 * 255 ? KIND_A8
           : dot4(127, 255) == -4 * 127 && dot4(-128, 128) == 4 * 128 * 128     ? KIND_A8_SIGNED
                                                                                : KIND_A7;
#else
  probed = KIND_A12;
#endif
  return engine_kind = probed;
}

EXPORT(kind) u32 kind(void) { return engine_kind; }

// Force a kind; 0 when this build or machine cannot compute it exactly.
EXPORT(set_kind) u32 set_kind(u32 wanted) {
  u32 exact = wanted == KIND_A7 || wanted == KIND_A12;
#if RELAXED
  exact |= wanted == probed;
#else
  exact |= wanted == KIND_A8;
#endif
  if (exact) {
    engine_kind = wanted;
    engine.quantized_register = NONE;
  }
  return exact;
}

EXPORT(version) u32 version(void) { return 1; }

// The texts' places, and the ids' range. The lengths and ids are where the host has just written them.
static u32 take_texts(u32 texts) {
  if (!texts || texts > engine.max_texts) return ERROR_TEXTS;
  u32 total = 0;
  for (u32 i = 0; i < texts; i++) {
    u32 length = (u32)engine.lengths[i];
    if (!length || length > engine.max_length) return set_error_detail(i), ERROR_LENGTH;
    if (length > engine.max_tokens - total) return set_error_detail(i), ERROR_TEXTS;
    engine.starts[i] = total;
    for (u32 place = 0; place < length; place++) engine.places[total + place] = place;
    total += length;
  }
  engine.starts[texts] = total;
  engine.texts = texts;
  engine.tokens = total;
  for (u32 i = 0; i < total; i++)
    if ((u32)engine.ids[i] >= engine.vocabulary) return set_error_detail(i), ERROR_ID;
  return OK;
}

static void run_op(const Op *op) {
  switch (op->opcode) {
    case OP_EMBED: run_embed(ARGS(EmbedArgs, op)); break;
    case OP_LINEAR: run_linear(ARGS(LinearArgs, op)); break;
    case OP_LAYERNORM: run_layer_norm(ARGS(LayerNormArgs, op)); break;
    case OP_RMSNORM: run_rms_norm(ARGS(RmsNormArgs, op)); break;
    case OP_ROPE: run_rope(ARGS(RopeArgs, op)); break;
    case OP_ATTENTION: run_attention(ARGS(AttentionArgs, op), op->flags); break;
    case OP_GLU: run_glu(ARGS(GluArgs, op)); break;
    case OP_ADD: run_add(ARGS(PairArgs, op)); break;
    case OP_MUL: run_mul(ARGS(PairArgs, op)); break;
    case OP_SCALE: run_scale(ARGS(ScaleArgs, op)); break;
    case OP_ACTIVATE: run_activate(ARGS(ActivateArgs, op)); break;
    case OP_POOL: run_pool(ARGS(PoolArgs, op)); break;
    case OP_L2NORM: run_l2_norm(ARGS(L2NormArgs, op)); break;
    case OP_CONCAT: run_concat(ARGS(ConcatArgs, op)); break;
  }
  // Every operation writes the register that its first argument names.
  if (op->args[0] == engine.quantized_register) engine.quantized_register = NONE;
}

// The texts whose ids are at ids_ptr, one after the other, and whose lengths are at lens_ptr.
EXPORT(run) u32 run(u32 texts) {
  set_error_detail(0);
  if (!engine.loaded) return ERROR_STATE;
  u32 failure = take_texts(texts);
  if (failure) return failure;
  engine.quantized_register = NONE;
  for (u32 i = 0; i < engine.header->ops; i++) run_op(engine.ops + i);
  return OK;
}

#if PROFILE
// One operation again, on what the last run left.
EXPORT(run_one) void run_one(u32 index) {
  engine.quantized_register = NONE;
  run_op(engine.ops + index);
}
#endif

static const Register *output(void) { return engine.registers + engine.header->output; }
EXPORT(out_ptr) u32 out_ptr(void) { return engine.loaded ? (u32)(size_t)output()->data : 0; }
EXPORT(out_rows) u32 out_rows(void) { return engine.loaded ? rows_of(output()) : 0; }
EXPORT(out_cols) u32 out_cols(void) { return engine.loaded ? output()->width : 0; }
// Floats from one row to the next.
EXPORT(out_stride) u32 out_stride(void) { return engine.loaded ? output()->stride : 0; }
