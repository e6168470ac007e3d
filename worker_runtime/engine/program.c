// Reading a program: every number of the file is checked here, so that running it needs no checks but of ids and lengths.
#include "abi.h"

extern u8 __heap_base;
Engine engine;
static u32 detail;
static u32 heap_end;
static Register registers[MAX_REGISTERS];
static u32 defined[MAX_REGISTERS], first_op[MAX_REGISTERS], last_op[MAX_REGISTERS];

EXPORT(error_detail) u32 error_detail(void) { return detail; }
void set_error_detail(u32 index) { detail = index; }

// Memory up to `end` (bytes), or 0.
static u32 reserve(u64 end) {
  u64 pages = (end + 65535) >> 16, have = __builtin_wasm_memory_size(0);
  if (pages > 65535) return 0;
  return pages <= have || __builtin_wasm_memory_grow(0, (size_t)(pages - have)) != (size_t)-1;
}

// Where the host writes the file, 0 when it cannot be had. Call once, and again only after reset().
EXPORT(alloc_file) u32 alloc_file(u32 bytes) {
  if (engine.file || bytes < sizeof(Header)) return 0;
  u32 start = PAD((u32)&__heap_base, 64u);
  if (!reserve((u64)start + bytes)) return 0;
  engine.file = (u8 *)start;
  engine.file_bytes = bytes;
  return start;
}

// Forget the model; its memory is used again by the next one.
EXPORT(reset) void reset(void) { engine = (Engine){0}; }

static u64 pad64(u64 bytes) { return (bytes + 63) & ~(u64)63; }

u32 groups_of(const Tensor *t) { return (t->columns + t->group - 1) / t->group; }

// What `data` has to hold, 0 for a type that does not exist in this layout.
static u64 data_bytes(const Tensor *t) {
  u64 rows = t->rows, columns = t->columns, high = PAD((u64)t->rows, 8), wide = PAD((u64)t->columns, 8);
  if (t->layout == ROWS) {
    switch (t->dtype) {
      case F32: case I32: return rows * wide * 4;
      case F16: return rows * wide * 2;
      case I8: return rows * wide;
      case I4: return rows * (wide / 2);
    }
    return 0;
  }
  switch (t->dtype) {
    case F32: return high * columns * 4;
    case F16: return high * columns * 2;
    case I8: return high * wide;
    case I4: return high * groups_of(t) * t->group / 2;
  }
  return 0;
}

static u64 aux_bytes(const Tensor *t) {
  u64 high = PAD((u64)t->rows, 8);
  if (t->dtype == I8) return t->layout == ROWS ? (u64)t->rows * 4 : high * 8;
  if (t->dtype != I4) return 0;
  u64 count = (t->layout == ROWS ? t->rows : high) * (u64)groups_of(t);
  u64 bytes = pad64(count * (t->detail & SCALES_F16 ? 2 : 4));
  if (t->layout == PANELS) bytes += pad64(high * 4);
  if (t->detail & ZEROS) bytes += pad64(count);
  return bytes;
}

static u32 inside(u32 offset, u32 bytes, u32 limit) {
  return offset % 64 == 0 && offset <= limit && bytes <= limit - offset;
}

static u32 tensor_is_sound(const Tensor *t, u32 limit) {
  if (!t->rows || t->rows > MAX_ROWS || !t->columns || t->columns > MAX_ROWS || t->layout > PANELS) return 0;
  if (t->dtype == I4) {
    if ((t->group != 32 && t->group != 64 && t->group != 128) || t->detail > (SCALES_F16 | ZEROS)) return 0;
  } else if (t->group) {
    return 0;
  } else if (t->dtype == I8 && t->layout == PANELS) {
    if (t->detail != 1 && t->detail != 2 && t->detail != 4) return 0;
  } else if (t->detail) {
    return 0;
  }
  if (t->layout == PANELS && (t->rows > MAX_WIDTH || t->columns > MAX_WIDTH)) return 0;
  if (t->layout == PANELS && t->dtype == I8 && t->columns > MAX_I8_COLUMNS) return 0;
  u64 data = data_bytes(t);
  return data && data == t->bytes && aux_bytes(t) == t->aux_bytes && inside(t->offset, t->bytes, limit) &&
         inside(t->aux_offset, t->aux_bytes, limit);
}

// Sections follow one another as format.py writes them, and the file ends where the last one does.
static u32 check_sections(void) {
  const Header *h = (const Header *)engine.file;
  const u32 *magic = (const u32 *)h->magic;
  if (*magic != 0x50474445 || h->version != 1 || h->flags) return ERROR_HEADER;
  if (h->tensors > MAX_TENSORS || !h->ops || h->ops > MAX_OPS || !h->registers || h->registers > MAX_REGISTERS)
    return ERROR_HEADER;
  u32 tensors = sizeof(Header), infos = tensors + (u32)pad64(h->tensors * sizeof(Tensor));
  u32 ops = infos + (u32)pad64(h->registers * sizeof(RegisterInfo)), weights = ops + h->ops * (u32)sizeof(Op);
  if (h->weights_offset != weights || (u64)weights + h->weights_bytes != engine.file_bytes) return ERROR_HEADER;
  if (h->max_position > MAX_TOKENS) return ERROR_HEADER;
  engine.header = h;
  engine.tensors = (const Tensor *)(engine.file + tensors);
  engine.ops = (const Op *)(engine.file + ops);
  engine.weights = engine.file + weights;
  engine.registers = registers;
  for (u32 i = 0; i < h->tensors; i++)
    if (!tensor_is_sound(engine.tensors + i, h->weights_bytes)) return detail = i, ERROR_TENSOR;
  const RegisterInfo *info = (const RegisterInfo *)(engine.file + infos);
  for (u32 i = 0; i < h->registers; i++) {
    if (info[i].kind > TEXTS || !info[i].width || info[i].width > MAX_WIDTH) return detail = i, ERROR_REGISTER;
    registers[i] = (Register){0, info[i].kind, info[i].width, PAD(info[i].width, 8u)};
    defined[i] = 0;
  }
  return OK;
}

// ---- Operations. Each check answers 1 when the operation may run. `now` is the operation's index.

static u32 now;

static u32 reads(u32 r) {
  if (r >= engine.header->registers || !defined[r]) return 0;
  last_op[r] = now;
  return 1;
}

static u32 writes(u32 r) {
  if (r >= engine.header->registers) return 0;
  if (!defined[r]) first_op[r] = now;
  defined[r] = 1;
  last_op[r] = now;
  return 1;
}

static u32 part_of(u32 r, u32 offset, u32 width) {
  u32 whole = registers[r].width;
  return width && offset <= whole && width <= whole - offset;
}

static u32 alike(u32 a, u32 b) { return registers[a].kind == registers[b].kind && registers[a].width == registers[b].width; }

static u32 is_vector(u32 index, u32 width) {
  if (index >= engine.header->tensors) return 0;
  const Tensor *t = engine.tensors + index;
  return t->dtype == F32 && t->layout == ROWS && t->rows == 1 && t->columns == width;
}

static u32 no_or_vector(u32 index, u32 width) { return index == NONE || is_vector(index, width); }

static u32 no_or_alike(u32 r, u32 other) { return r == NONE || (reads(r) && alike(r, other)); }

static u32 is_table(u32 index, u32 width, u64 rows) {
  if (index >= engine.header->tensors) return 0;
  const Tensor *t = engine.tensors + index;
  return t->layout == ROWS && t->dtype != I32 && t->columns == width && t->rows >= rows;
}

// A token id must be below every table's rows.
static void limit_ids(u32 rows) {
  if (rows < engine.vocabulary) engine.vocabulary = rows;
}

static u32 check_embed(const EmbedArgs *a) {
  if (!writes(a->out) || registers[a->out].kind != TOKENS) return 0;
  u32 width = registers[a->out].width, longest = engine.header->max_position;
  if (!is_table(a->table, width, 1)) return 0;
  limit_ids(tensor_at(a->table)->rows);
  if (a->positions != NONE && (!longest || !is_table(a->positions, width, (u64)a->position_offset + longest))) return 0;
  return a->types == NONE || is_table(a->types, width, 1);
}

static u32 check_linear(const LinearArgs *a) {
  if (!reads(a->source) || a->weight >= engine.header->tensors) return 0;
  const Tensor *w = engine.tensors + a->weight;
  if (w->layout != PANELS || !part_of(a->source, a->offset, w->columns) || a->act >= ACTS) return 0;
  if (a->out == a->source || a->out == a->residual || a->out >= engine.header->registers || registers[a->out].width != w->rows) return 0;
  if (registers[a->out].kind != registers[a->source].kind || !no_or_vector(a->bias, w->rows)) return 0;
  return no_or_alike(a->residual, a->out) && writes(a->out);
}

static u32 check_layer_norm(const LayerNormArgs *a) {
  if (!reads(a->source) || !writes(a->out) || !alike(a->out, a->source)) return 0;
  u32 width = registers[a->out].width;
  return no_or_alike(a->residual, a->out) && no_or_vector(a->gamma, width) && no_or_vector(a->beta, width);
}

static u32 check_rms_norm(const RmsNormArgs *a) {
  if (!reads(a->source) || !writes(a->out) || !alike(a->out, a->source) || !no_or_alike(a->residual, a->out)) return 0;
  u32 width = a->width ? a->width : registers[a->out].width;
  if (a->width && (a->out != a->source || a->residual != NONE)) return 0;
  if (!part_of(a->source, a->offset, width)) return 0;
  u32 head = a->head ? a->head : width;
  return head <= width && width % head == 0 && no_or_vector(a->gamma, head);
}

static u32 check_rope(const RopeArgs *a) {
  if (!reads(a->target) || registers[a->target].kind != TOKENS || !writes(a->target)) return 0;
  if (!a->heads || a->heads > MAX_WIDTH || !a->head || a->head > MAX_WIDTH || a->rotary > a->head || a->rotary % 2 || !a->rotary)
    return 0;
  u64 width = (u64)a->heads * a->head;
  return width <= MAX_WIDTH && part_of(a->target, a->offset, (u32)width) && is_vector(a->frequencies, a->rotary / 2);
}

static u32 check_attention(const AttentionArgs *a, u32 flags) {
  if (flags > (CAUSAL | INTEGERS) || (flags & INTEGERS && a->head > MAX_INTEGER_HEAD)) return 0;
  if (!(a->scale > 0) || !a->heads || a->heads > MAX_WIDTH || !a->head || a->head > MAX_WIDTH || !a->kv_heads) return 0;
  if (a->kv_heads > a->heads || a->heads % a->kv_heads || (u64)a->heads * a->head > MAX_WIDTH) return 0;
  if (!reads(a->query) || !reads(a->key) || !reads(a->value)) return 0;
  if (!part_of(a->query, a->query_offset, a->heads * a->head)) return 0;
  if (!part_of(a->key, a->key_offset, a->kv_heads * a->head)) return 0;
  if (!part_of(a->value, a->value_offset, a->kv_heads * a->head)) return 0;
  if (a->out == a->query || a->out == a->key || a->out == a->value || !writes(a->out)) return 0;
  if (registers[a->query].kind | registers[a->key].kind | registers[a->value].kind | registers[a->out].kind) return 0;
  return registers[a->out].width == a->heads * a->head;
}

static u32 check_glu(const GluArgs *a) {
  if (!reads(a->a) || !reads(a->b) || a->act >= ACTS || a->out == a->a || a->out == a->b || !writes(a->out)) return 0;
  u32 width = registers[a->out].width, kind = registers[a->out].kind;
  if (registers[a->a].kind != kind || registers[a->b].kind != kind) return 0;
  return part_of(a->a, a->a_offset, width) && part_of(a->b, a->b_offset, width);
}

static u32 check_pair(const PairArgs *a) {
  return reads(a->a) && reads(a->b) && writes(a->out) && alike(a->out, a->a) && alike(a->out, a->b);
}

static u32 check_scale(const ScaleArgs *a) {
  if (!reads(a->source) || !writes(a->out) || !alike(a->out, a->source)) return 0;
  return no_or_vector(a->weight, registers[a->out].width) && no_or_vector(a->bias, registers[a->out].width);
}

static u32 check_pool(const PoolArgs *a) {
  if (!reads(a->source) || !writes(a->out) || registers[a->source].kind != TOKENS || registers[a->out].kind != TEXTS) return 0;
  if (registers[a->source].width != registers[a->out].width || a->mode >= POOLS) return 0;
  if (a->mode < POOL_WEIGHTED_BY_SUM) return a->weights == NONE;
  if (a->weights >= engine.header->tensors) return 0;
  limit_ids(tensor_at(a->weights)->columns);
  return is_vector(a->weights, tensor_at(a->weights)->columns);
}

static u32 check_concat(const ConcatArgs *a) {
  if (!reads(a->a) || !part_of(a->a, a->a_offset, a->a_width)) return 0;
  u32 width = a->a_width, kind = registers[a->a].kind;
  if (a->b != NONE) {
    if (!reads(a->b) || !part_of(a->b, a->b_offset, a->b_width) || registers[a->b].kind != kind) return 0;
    width += a->b_width;
  }
  if (a->out == a->a || a->out == a->b || !writes(a->out)) return 0;
  return registers[a->out].width == width && registers[a->out].kind == kind;
}

static u32 check_op(const Op *op) {
  if (op->flags && op->opcode != OP_ATTENTION) return 0;
  switch (op->opcode) {
    case OP_EMBED: return check_embed(ARGS(EmbedArgs, op));
    case OP_LINEAR: return check_linear(ARGS(LinearArgs, op));
    case OP_LAYERNORM: return check_layer_norm(ARGS(LayerNormArgs, op));
    case OP_RMSNORM: return check_rms_norm(ARGS(RmsNormArgs, op));
    case OP_ROPE: return check_rope(ARGS(RopeArgs, op));
    case OP_ATTENTION: return check_attention(ARGS(AttentionArgs, op), op->flags);
    case OP_GLU: return check_glu(ARGS(GluArgs, op));
    case OP_ADD: case OP_MUL: return check_pair(ARGS(PairArgs, op));
    case OP_SCALE: return check_scale(ARGS(ScaleArgs, op));
    case OP_ACTIVATE: {
      const ActivateArgs *a = ARGS(ActivateArgs, op);
      return reads(a->source) && writes(a->out) && alike(a->out, a->source) && a->act < ACTS;
    }
    case OP_POOL: return check_pool(ARGS(PoolArgs, op));
    case OP_L2NORM: {
      const L2NormArgs *a = ARGS(L2NormArgs, op);
      return reads(a->source) && writes(a->out) && alike(a->out, a->source);
    }
    case OP_CONCAT: return check_concat(ARGS(ConcatArgs, op));
  }
  return 0;
}

static u32 check_ops(void) {
  const Header *h = engine.header;
  for (now = 0; now < h->ops; now++)
    if (!check_op(engine.ops + now)) return detail = now, ERROR_OP;
  if (!reads(h->output)) return detail = h->output, ERROR_REGISTER;
  const Register *out = registers + h->output;
  if (h->output_kind != (out->kind == TOKENS) || h->output_width != out->width) return detail = h->output, ERROR_REGISTER;
  return OK;
}

// ---- Memory: one arena behind the file, laid out twice: first to learn its size, then for real.

static u64 cursor;

static void *take(u64 bytes) {
  void *place = (void *)(size_t)cursor;
  cursor += pad64(bytes);
  return place;
}

static u64 register_bytes(const Register *r) {
  // 32 bytes more: a row's last vectors may be read whole.
  return pad64((u64)(r->kind == TOKENS ? engine.max_tokens : engine.max_texts) * r->stride * 4 + 32);
}

// First fit over the time that each register lives, in order of definition.
static u64 place_registers(u64 base) {
  u64 end = base;
  u32 count = engine.header->registers;
  for (u32 i = 0; i < count; i++) registers[i].data = 0;
  for (u32 op = 0; op < engine.header->ops; op++) {
    for (u32 i = 0; i < count; i++) {
      if (!defined[i] || first_op[i] != op || registers[i].data) continue;
      u64 at = base, bytes = register_bytes(registers + i);
      for (u32 moved = 1; moved;) {
        moved = 0;
        for (u32 j = 0; j < count; j++) {
          if (!registers[j].data || last_op[j] < first_op[i] || last_op[i] < first_op[j]) continue;
          u64 start = (size_t)registers[j].data, stop = start + register_bytes(registers + j);
          if (at < stop && start < at + bytes) at = stop, moved = 1;
        }
      }
      if (at + bytes > 0xffff0000u) return 0;
      registers[i].data = (float *)(size_t)at;
      if (at + bytes > end) end = at + bytes;
    }
  }
  return end;
}

typedef struct {
  u64 quantized, group_sums, panel, groups, head, integer_head;
  u32 linear;
} Scratch;

static Scratch measure_scratch(void) {
  Scratch s = {0};
  u64 high = PAD((u64)(engine.max_tokens > engine.max_texts ? engine.max_tokens : engine.max_texts), 4);
  for (u32 i = 0; i < engine.header->ops; i++) {
    const Op *op = engine.ops + i;
    if (op->opcode == OP_ATTENTION) {
      u64 head = PAD((u64)ARGS(AttentionArgs, op)->head, 8);
      if (head > s.head) s.head = head;
      if (op->flags & INTEGERS && head > s.integer_head) s.integer_head = head;
    }
    if (op->opcode != OP_LINEAR) continue;
    const Tensor *w = tensor_at(ARGS(LinearArgs, op)->weight);
    u64 wide = w->dtype == I4 ? (u64)groups_of(w) * w->group : PAD((u64)w->columns, 8);
    if (w->dtype == I8 || w->dtype == I4) {
      if (high * wide * 2 > s.quantized) s.quantized = high * wide * 2;
    }
    if (wide * 8 > s.panel) s.panel = wide * 8;
    if (w->dtype == I4) {
      u64 groups = groups_of(w);
      if (groups > s.groups) s.groups = groups;
      if (high * groups > s.group_sums) s.group_sums = high * groups;
    }
  }
  return s;
}

// ATTENTION in integers: of 16 bits at most, 16 queries at once.
static void place_integers(u64 head) {
  u64 keys = PAD((u64)(engine.max_length < MAX_INTEGER_KEYS ? engine.max_length : MAX_INTEGER_KEYS), 8);
  engine.int_keys = take(keys * head * 2);
  engine.int_values = take(keys * head * 2);
  engine.int_queries = take(head * 32);
  engine.int_shares = take(keys * 32);
  engine.key_scales = take(keys * 4);
  engine.key_sums = take(keys * 4);
  engine.value_scales = take(head * 4);
  engine.value_sums = take(head * 4);
  engine.int_scores = take(keys * 64);
  engine.int_out = take(head * 64);
}

static void place_scratch(const Scratch *s) {
  u32 high = PAD(engine.max_tokens > engine.max_texts ? engine.max_tokens : engine.max_texts, 4u);
  engine.ids = take((u64)engine.max_tokens * 4);
  engine.lengths = take((u64)engine.max_texts * 4);
  engine.starts = take((u64)engine.max_texts * 4 + 4);
  engine.places = take((u64)engine.max_tokens * 4);
  engine.quantized = take(s->quantized);
  // ATTENTION uses the first 16, and one beyond.
  engine.scales = take((u64)high * 4 + 128);
  engine.zeros = take((u64)high * 4 + 128);
  engine.group_sums = take(s->group_sums * 4);
  engine.panel = take(s->panel * 4);
  engine.panel_scales = take(s->groups * 32);
  engine.panel_zeros = take(s->groups * 32);
  u64 keys = PAD((u64)engine.max_length, 4);
  engine.keys = take(keys * s->head * 4);
  engine.values = take(keys * s->head * 4);
  engine.queries = take(s->head * 32);
  engine.scores = take(keys * 32);
  if (s->integer_head) place_integers(s->integer_head);
  for (u32 i = 0; i < engine.ropes; i++)
    engine.rope_table[i] = take((u64)engine.max_length * tensor_at(engine.rope_tensor[i])->columns * 8);
}

// One table of cosines and sines for each vector of frequencies with each factor: the factor is applied when rotating.
static u32 find_ropes(void) {
  for (u32 i = 0; i < engine.header->ops; i++) {
    const Op *op = engine.ops + i;
    if (op->opcode != OP_ROPE) continue;
    u32 wanted = ARGS(RopeArgs, op)->frequencies, known = 0;
    for (u32 j = 0; j < engine.ropes; j++) known |= engine.rope_tensor[j] == wanted;
    if (known) continue;
    if (engine.ropes == MAX_ROPES) return detail = i, ERROR_OP;
    engine.rope_tensor[engine.ropes++] = wanted;
  }
  return OK;
}

static u32 place_arena(void) {
  u32 failure = find_ropes();
  if (failure) return failure;
  Scratch scratch = measure_scratch();
  cursor = pad64((size_t)engine.file + (u64)engine.file_bytes);
  place_scratch(&scratch);
  u64 end = cursor > 0xffff0000u ? 0 : place_registers(cursor);
  if (!end || !reserve(end + 64)) return ERROR_MEMORY;
  heap_end = (u32)end;
  for (u32 i = 0; i < engine.ropes; i++) {
    const Tensor *t = tensor_at(engine.rope_tensor[i]);
    fill_rope_table(engine.rope_table[i], data_of(t), t->columns, engine.max_length);
  }
  return OK;
}

// Check the file that alloc_file's memory holds and get all the memory that runs will need.
EXPORT(load) u32 load(u32 bytes, u32 max_tokens, u32 max_texts) {
  detail = 0;
  if (!engine.file || engine.loaded || bytes != engine.file_bytes) return ERROR_STATE;
  if (!max_tokens || max_tokens > MAX_TOKENS || !max_texts || max_texts > MAX_TOKENS) return ERROR_TEXTS;
  u32 failure = check_sections();
  if (failure) return failure;
  engine.max_tokens = max_tokens;
  engine.max_texts = max_texts;
  engine.vocabulary = MAX_ROWS;
  u32 longest = engine.header->max_position;
  engine.max_length = longest && longest < max_tokens ? longest : max_tokens;
  if ((failure = check_ops()) || (failure = place_arena())) return failure;
  engine.loaded = 1;
  return OK;
}

// One past the last byte that runs touch.
EXPORT(arena_end) u32 arena_end(void) { return heap_end; }
EXPORT(arena_start) u32 arena_start(void) { return (u32)(size_t)engine.ids; }
EXPORT(ids_ptr) u32 ids_ptr(void) { return (u32)(size_t)engine.ids; }
EXPORT(lens_ptr) u32 lens_ptr(void) { return (u32)(size_t)engine.lengths; }
