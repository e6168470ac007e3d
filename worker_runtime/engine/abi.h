// Types shared by the engine's files: what a loaded program is, where its registers and scratch memory are.
#ifndef EDGE_ABI_H
#define EDGE_ABI_H
#include <stdint.h>
#include <stddef.h>

typedef uint8_t u8;
typedef int8_t i8;
typedef uint16_t u16;
typedef int16_t i16;
typedef uint32_t u32;
typedef int32_t i32;
typedef uint64_t u64;

#define EXPORT(name) __attribute__((export_name(#name)))
#define ALWAYS static inline __attribute__((always_inline))
#define NONE 0xffffffffu
#define PAD(count, multiple) (((count) + (multiple)-1) / (multiple) * (multiple))

// Limits of this version. They keep every size below well inside 64-bit arithmetic and 32-bit addresses.
enum {
  MAX_TENSORS = 8192,
  MAX_OPS = 8192,
  MAX_REGISTERS = 2048,
  MAX_WIDTH = 1 << 16,
  MAX_ROWS = 1 << 21,
  MAX_TOKENS = 1 << 15,
  MAX_I8_COLUMNS = 8192,  // 2047 * 128 * 8192 < 2^31: sums of 12-bit activations fit 32 bits
  MAX_ROPES = 8,
  MAX_INTEGER_HEAD = 512,   // 2047 * 2047 * 512 < 2^31, and
  MAX_INTEGER_KEYS = 8192,  // 1023 * 255 * 8192: ATTENTION's sums of integers fit 32 bits
};

// What load() and run() answer; error_detail() then says which tensor, register, op or text.
enum {
  OK = 0,
  ERROR_STATE = 1,     // called out of order
  ERROR_HEADER = 2,    // magic, version or sizes of sections
  ERROR_TENSOR = 3,
  ERROR_REGISTER = 4,
  ERROR_OP = 5,
  ERROR_MEMORY = 6,    // the arena cannot be had
  ERROR_TEXTS = 7,     // no text, too many texts or too many tokens
  ERROR_LENGTH = 8,    // an empty text, or one longer than the model's positions
  ERROR_ID = 9,        // a token id outside an embedding table
};

enum { F32 = 1, F16 = 2, I8 = 3, I4 = 4, I32 = 5 };
enum { ROWS = 0, PANELS = 1 };
enum { SCALES_F16 = 1, ZEROS = 2 };
enum { TOKENS = 0, TEXTS = 1 };
enum { ACT_NONE, ACT_GELU_ERF, ACT_GELU_TANH, ACT_SILU, ACT_RELU, ACT_TANH, ACTS };
enum { POOL_MEAN, POOL_CLS, POOL_LAST, POOL_WEIGHTED_BY_SUM, POOL_WEIGHTED_BY_COUNT, POOLS };
enum { CAUSAL = 1, INTEGERS = 2 };  // flags of ATTENTION
enum { KIND_A7 = 0, KIND_A8 = 1, KIND_A8_SIGNED = 2, KIND_A12 = 3 };
enum {
  OP_EMBED = 1, OP_LINEAR, OP_LAYERNORM, OP_RMSNORM, OP_ROPE, OP_ATTENTION, OP_GLU, OP_ADD, OP_MUL, OP_SCALE,
  OP_ACTIVATE, OP_POOL, OP_L2NORM, OP_CONCAT,
};

// The file's own structures (edgespec/engine/format.py), read in place.
typedef struct {
  char magic[4];
  u32 version, tensors, ops, registers, weights_offset, weights_bytes;
  u32 output, output_kind, output_width, max_position, flags;
  u32 rest[4];
} Header;

typedef struct {
  u8 dtype, layout;
  u16 group;
  u32 rows, columns, offset, bytes, aux_offset, aux_bytes, detail;
} Tensor;

typedef struct {
  u32 kind, width;
} RegisterInfo;

typedef struct {
  u16 opcode, flags;
  u32 args[15];
} Op;

// Views of one operation's args, in the order of the fields in format.py.
typedef struct { u32 out, table, positions, position_offset, types; float scale; } EmbedArgs;
typedef struct { u32 out, source, offset, weight, bias, act, residual; } LinearArgs;
typedef struct { u32 out, source, residual, gamma, beta; float epsilon; } LayerNormArgs;
typedef struct { u32 out, source, residual, gamma; float epsilon; u32 offset, width, head; } RmsNormArgs;
typedef struct { u32 target, offset, heads, head, rotary, frequencies; float scale; } RopeArgs;
typedef struct {
  u32 out, query, query_offset, key, key_offset, value, value_offset, heads, kv_heads, head;
  float scale;
  u32 window;
} AttentionArgs;
typedef struct { u32 out, a, a_offset, b, b_offset, act; } GluArgs;
typedef struct { u32 out, a, b; } PairArgs;
typedef struct { u32 out, source; float factor; u32 weight, bias; } ScaleArgs;
typedef struct { u32 out, source, act; } ActivateArgs;
typedef struct { u32 out, source, mode, weights; } PoolArgs;
typedef struct { u32 out, source; float epsilon; } L2NormArgs;
typedef struct { u32 out, a, a_offset, a_width, b, b_offset, b_width; } ConcatArgs;
#define ARGS(type, op) ((const type *)(op)->args)

// A register's rows: `stride` is its width rounded up to 8. Numbers between width and stride are always 0.
typedef struct {
  float *data;
  u32 kind, width, stride;
} Register;

// A loaded program and the one arena that every run works in.
typedef struct {
  u8 *file;
  u32 file_bytes;
  const Header *header;
  const Tensor *tensors;
  const Op *ops;
  u8 *weights;
  Register *registers;
  u32 max_tokens, max_texts, max_length, vocabulary;
  u32 loaded;
  // one run
  i32 *ids;
  i32 *lengths;
  u32 *starts;     // max_texts + 1
  u32 *places;     // place of each token in its text
  u32 texts, tokens, longest;
  // LINEAR: activations as integers, in panels of 4 rows
  u8 *quantized;
  float *scales;
  i32 *zeros;
  i32 *group_sums;
  float *panel;    // one panel of weights, widened
  float *panel_scales;
  i32 *panel_zeros;
  u32 quantized_register, quantized_offset, quantized_wide, quantized_form;  // what `quantized` holds
  // ATTENTION
  float *keys, *values;
  float *queries;
  float *scores;
  // ATTENTION in integers
  u8 *int_keys, *int_values, *int_queries, *int_shares;
  float *key_scales, *value_scales;
  i32 *key_sums, *value_sums;
  float *int_scores, *int_out;
  // ROPE
  u32 ropes;
  u32 rope_tensor[MAX_ROPES];
  float *rope_table[MAX_ROPES];
} Engine;

extern Engine engine;
extern u32 engine_kind;

static inline const Tensor *tensor_at(u32 index) { return engine.tensors + index; }
static inline const void *data_of(const Tensor *t) { return engine.weights + t->offset; }
static inline const u8 *aux_of(const Tensor *t) { return engine.weights + t->aux_offset; }
static inline u32 rows_of(const Register *r) { return r->kind == TOKENS ? engine.tokens : engine.texts; }
// A vector's numbers, or null.
static inline const float *vector_of(u32 index) { return index == NONE ? 0 : (const float *)data_of(tensor_at(index)); }

u32 groups_of(const Tensor *t);
void run_embed(const EmbedArgs *a);
void run_linear(const LinearArgs *a);
void run_layer_norm(const LayerNormArgs *a);
void run_rms_norm(const RmsNormArgs *a);
void run_rope(const RopeArgs *a);
void run_attention(const AttentionArgs *a, u32 flags);
void attend_integers(const AttentionArgs *a, u32 causal, u32 start, u32 count);
void run_glu(const GluArgs *a);
void run_add(const PairArgs *a);
void run_mul(const PairArgs *a);
void run_scale(const ScaleArgs *a);
void run_activate(const ActivateArgs *a);
void run_pool(const PoolArgs *a);
void run_l2_norm(const L2NormArgs *a);
void run_concat(const ConcatArgs *a);
void fill_rope_table(float *table, const float *frequencies, u32 half, u32 positions);
// LINEAR's parts: the weight's type decides; `finish_block` adds activation and residual to a block just stored.
typedef struct {
  float *out;
  u32 stride, rows, act;
  const float *residual, *bias;
  u32 residual_stride;
} Target;
void linear_float(const Target *t, const float *in, u32 in_stride, const Tensor *w);
void linear_i8(const Target *t, const Tensor *w);
// A matrix of integers in panels of 8 rows, as multiply_i8 reads it against the rows in `engine.quantized`: bytes, or (if
// `words`) 16-bit words as [column / 2][8][2]. `sums` of each row's integers take part where zero points do.
typedef struct {
  const u8 *data;
  const float *scales;
  const i32 *sums;
  u32 panels, wide, pitch, depth, words;  // pitch: columns from one panel to the next
} Integers;
void multiply_i8(const Target *t, const Integers *w);
void linear_i4(const Target *t, const Tensor *w);
// How activations are written: a kind, in bytes or (| WORDS) in 16-bit words.
enum { WORDS = 4 };
void quantize_rows(const float *in, u32 stride, u32 rows, u32 columns, u32 wide, u32 form);
void sum_groups(u32 rows, u32 wide, u32 group, u32 form);
void finish_block(const Target *t, u32 row, u32 rows, u32 column, u32 columns);
void activate_rows(float *data, u32 count, u32 act);
#endif
