#include "model/shard.h"

#include <stdlib.h>

/* ---- quantized matrices ---- */

static bool has_four_bits(const struct weight_scheme *s)
{
    return s->format == WEIGHT_INT4 || s->format == WEIGHT_MXFP4;
}

/* How many rows, and how many columns, from a multiple of that on share a scale or a word. */
struct cuts {
    int64_t rows, columns;
};

static struct cuts cuts_of(const struct weight_scheme *s)
{
    const bool words = s->storage == STORED_PACKED || s->storage == STORED_GPTQ || s->storage == STORED_AWQ;
    const int64_t in_word = words ? (has_four_bits(s) ? 8 : 4) : has_four_bits(s) ? 2 : 1;
    const int64_t group = s->group_size > 0 ? s->group_size : 1;
    if (!s->is_quantized && !s->dequantize) return (struct cuts){1, 1};
    return (struct cuts){.rows = s->blocks                              ? group
                                 : words && s->storage != STORED_PACKED ? in_word
                                                                        : 1,
                         .columns = group % in_word == 0 ? group : in_word};
}

/* ---- sizes ---- */

struct sharding {
    struct model_spec *part;
    int32_t layer; /* that is shared now */
    struct error *err;
};

/* *size becomes a rank's. */
static enum status divide(const struct sharding *s, const char *what, int32_t *size)
{
    const int32_t ranks = s->part->num_ranks;
    if (*size % ranks)
        return error_set(s->err, STATUS_UNSUPPORTED,
                         "layer %d: the number of %s is %d, which %d ranks cannot share equally; use a number of ranks "
                         "that divides it",
                         s->layer, what, *size, ranks);
    *size /= ranks;
    return STATUS_OK;
}

/* The same, but several ranks may have one and the same. */
static enum status divide_or_repeat(const struct sharding *s, const char *what, int32_t *size)
{
    const int32_t ranks = s->part->num_ranks;
    if (*size == 0 || ranks % *size) return divide(s, what, size);
    *size = 1;
    return STATUS_OK;
}

static enum status refuse(const struct sharding *s, const char *what)
{
    return error_set(s->err, STATUS_UNSUPPORTED,
                     "layer %d has %s, which quire does not compute on several ranks; use one", s->layer, what);
}

static enum status shard_attention(const struct sharding *s, struct attention_spec *a)
{
    const int32_t all = a->num_heads;
    enum status status = divide(s, "attention heads", &a->num_heads);
    if (status == STATUS_OK) status = divide_or_repeat(s, "KV heads", &a->num_kv_heads);
    a->all_heads = all;
    a->first_head = s->part->rank * a->num_heads;
    return status;
}

static enum status shard_recurrent(const struct sharding *s, struct recurrent_spec *r)
{
    const int64_t all = recurrent_v_size(r);
    const int32_t all_heads = r->num_v_heads;
    enum status status = divide(s, "value heads in its recurrent mixer", &r->num_v_heads);
    if (status == STATUS_OK) status = divide_or_repeat(s, "key heads in its recurrent mixer", &r->num_k_heads);
    if (status != STATUS_OK) return status;
    const int64_t mine = recurrent_v_size(r);
    const bool whole_groups = r->no_norm || mine % r->norm_group_size == 0;
    if (!whole_groups && (r->norm_size != all || r->norm_group_size % mine))
        return refuse(s, "a norm of its recurrent mixer over some of the heads of several ranks");
    if (r->norm_size == all) r->norm_size = (int32_t)mine;
    r->all_heads = all_heads;
    r->first_head = s->part->rank * r->num_v_heads;
    return STATUS_OK;
}

/* How many of a layer's `size` features of an MLP, or of an expert, are in one rank together: columns of `down`, and
 * rows of `up` and of `gate`, which is as `up` is. Of 4-bit weights as many as the fast kernels take, if ranks get
 * enough. */
static int64_t unit_of(const struct model_spec *part, int32_t layer, int64_t size, enum tensor_role up,
                       enum tensor_role down)
{
    enum { FAST = 64 };
    const struct model_spec *whole = part->whole;
    const uint8_t *schemes = whole->layers[layer].schemes;
    const int64_t rows = cuts_of(&whole->schemes[schemes[up]]).rows;
    const int64_t columns = cuts_of(&whole->schemes[schemes[down]]).columns;
    int64_t unit = rows;
    while (unit % columns) unit += rows;
    int64_t fast = unit;
    while (fast % FAST) fast += unit;
    const bool has_fast = has_four_bits(&whole->schemes[schemes[down]]) && size % fast == 0;
    return has_fast && size / fast >= part->num_ranks ? fast : unit;
}

/* The first feature of a rank; of rank num_ranks: how many there are. Where ranks cannot have equally many without a
 * cut through a unit, some have one unit more. */
static int64_t first_feature(int64_t size, int64_t unit, int64_t rank, int64_t num_ranks)
{
    const int64_t units = size / unit;
    if (size % unit || units < num_ranks || size % (unit * num_ranks) == 0) return rank * size / num_ranks;
    return rank * units / num_ranks * unit;
}

static enum status shard_features(const struct sharding *s, const char *what, enum tensor_role up,
                                  enum tensor_role down, int32_t *size)
{
    const struct model_spec *part = s->part;
    const int64_t unit = unit_of(part, s->layer, *size, up, down), rank = part->rank, ranks = part->num_ranks;
    if (unit == 1 || *size % unit) return divide(s, what, size);
    *size = (int32_t)(first_feature(*size, unit, rank + 1, ranks) - first_feature(*size, unit, rank, ranks));
    return STATUS_OK;
}

/* Rank 0 has as many as any. */
static enum status share_out_experts(const struct sharding *s, struct router_params *router)
{
    const int32_t ranks = s->part->num_ranks, rank = s->part->rank, all = router->num_experts;
    const int32_t each = all / ranks, more = all % ranks;
    if (all > 0 && each == 0)
        return error_set(s->err, STATUS_UNSUPPORTED,
                         "layer %d has %d experts, too few for %d ranks that each have some of them; use fewer ranks, "
                         "or no expert parallelism",
                         s->layer, all, ranks);
    router->first_own = rank * each + (rank < more ? rank : more);
    router->num_own = each + (rank < more);
    return STATUS_OK;
}

static enum status shard_layer(const struct sharding *s, struct layer_spec *l)
{
    enum status status = STATUS_OK;
    if (l->mixer == MIXER_CONV) status = divide(s, "channels of its convolution", &l->conv.channels);
    if (l->mixer == MIXER_ATTENTION) status = shard_attention(s, &l->attention);
    if (layer_is_recurrent(l) && status == STATUS_OK) status = shard_recurrent(s, &l->recurrent);
    if (l->mixer == MIXER_LATENT && status == STATUS_OK) status = divide(s, "attention heads", &l->latent.num_heads);
    if (status == STATUS_OK)
        status = shard_features(s, "features in its MLP", TENSOR_UP, TENSOR_DOWN, &l->mlp.intermediate_size);
    if (status != STATUS_OK) return status;
    if (s->part->expert_parallel) return share_out_experts(s, &l->experts.router);
    return shard_features(s, "features in each expert", TENSOR_EXPERT_UP, TENSOR_EXPERT_DOWN,
                          &l->experts.intermediate_size);
}

struct token_range shard_tokens(int32_t vocab_size, int32_t rank, int32_t num_ranks)
{
    const int32_t count = (int32_t)(((int64_t)vocab_size + num_ranks - 1) / num_ranks);
    const int64_t first = (int64_t)rank * count, rest = vocab_size - first;
    if (rest <= 0) return (struct token_range){vocab_size, 0};
    return (struct token_range){(int32_t)first, rest < count ? (int32_t)rest : count};
}

enum status model_spec_shard(const struct model_spec *whole, int32_t rank, int32_t num_ranks, struct model_spec *part,
                             struct error *err)
{
    struct sharding s = {.part = part, .err = err};
    enum status status = STATUS_OK;
    *part = *whole;
    if (num_ranks <= 1) return STATUS_OK;
    part->whole = whole, part->rank = rank, part->num_ranks = num_ranks;
    if (shard_tokens(model_spec_num_logits(whole), num_ranks - 1, num_ranks).count == 0)
        return error_set(err, STATUS_UNSUPPORTED, "a vocabulary of %d tokens is too small for %d ranks; use fewer",
                         model_spec_num_logits(whole), num_ranks);
    part->vocab_size = shard_tokens(whole->vocab_size, rank, num_ranks).count;
    part->head.num_ids = shard_tokens(whole->head.num_ids, rank, num_ranks).count;
    for (; s.layer < part->num_layers && status == STATUS_OK; s.layer++)
        status = shard_layer(&s, &part->layers[s.layer]);
    return status;
}

/* ---- tensors ---- */

/* Of what ranks have equal parts, as rows or columns of a tensor. */
enum unit { ALL, HEADS, KV_HEADS, K_HEADS, V_HEADS, FEATURES, EXPERT_FEATURES, TOKENS };
static const struct {
    enum unit rows, columns;
    bool is_share; /* though it has all columns */
} units[NUM_TENSOR_ROLES] = {
    [TENSOR_EMBEDDING] = {TOKENS},
    [TENSOR_Q] = {HEADS},
    [TENSOR_K] = {KV_HEADS},
    [TENSOR_V] = {KV_HEADS},
    [TENSOR_OUTPUT_GATE] = {HEADS},
    [TENSOR_Q_NORM] = {HEADS}, /* over all heads; that of one is the same in all ranks */
    [TENSOR_K_NORM] = {KV_HEADS},
    [TENSOR_SINKS] = {HEADS},
    [TENSOR_MIX_Q] = {K_HEADS},
    [TENSOR_MIX_K] = {K_HEADS},
    [TENSOR_MIX_V] = {V_HEADS},
    [TENSOR_MIX_GATE] = {V_HEADS},
    [TENSOR_MIX_A] = {V_HEADS},
    [TENSOR_MIX_B] = {V_HEADS},
    [TENSOR_MIX_GATE_B] = {V_HEADS},
    [TENSOR_MIX_A_B] = {V_HEADS},
    [TENSOR_CONV_BIAS] = {K_HEADS}, /* of a short convolution alone, as TENSOR_CONV */
    [TENSOR_A_LOG] = {V_HEADS},
    [TENSOR_DT_BIAS] = {V_HEADS},
    [TENSOR_SKIP] = {V_HEADS},
    [TENSOR_MIX_NORM] = {V_HEADS},
    [TENSOR_MIX_O] = {ALL, V_HEADS},
    [TENSOR_LATENT_Q] = {HEADS},
    [TENSOR_LATENT_Q_B] = {HEADS},
    [TENSOR_LATENT_KV_B] = {HEADS},
    [TENSOR_O] = {ALL, HEADS},
    [TENSOR_GATE] = {FEATURES},
    [TENSOR_UP] = {FEATURES},
    [TENSOR_DOWN] = {ALL, FEATURES},
    [TENSOR_EXPERT_GATE] = {EXPERT_FEATURES},
    [TENSOR_EXPERT_UP] = {EXPERT_FEATURES},
    [TENSOR_EXPERT_DOWN] = {ALL, EXPERT_FEATURES},
    [TENSOR_EXPERTS_OUT] = {ALL, ALL, true},
    [TENSOR_LM_HEAD] = {TOKENS},
};

/* How many heads of that kind the whole model has. Those of a short convolution are its channels. */
static int64_t count_of(const struct layer_spec *l, enum unit unit)
{
    if (l->mixer == MIXER_CONV) return l->conv.channels;
    switch (unit) {
    case HEADS:
        return l->mixer == MIXER_ATTENTION ? l->attention.num_heads
               : l->mixer == MIXER_LATENT  ? l->latent.num_heads
                                           : l->recurrent.num_v_heads;
    case KV_HEADS:
        return l->attention.num_kv_heads;
    case K_HEADS:
        return l->recurrent.num_k_heads;
    case V_HEADS:
        return l->recurrent.num_v_heads;
    default:
        return 1;
    }
}

/* The first of the rank's, of `size` rows or columns that they are in the whole model. A head that several ranks have
 * is that of all of them. */
static int64_t first_of(const struct model_spec *part, int32_t layer, enum unit unit, int64_t size)
{
    if (unit == ALL) return 0;
    if (unit == TOKENS) return shard_tokens((int32_t)size, part->rank, part->num_ranks).first;
    if (unit == FEATURES || unit == EXPERT_FEATURES) {
        const bool mlp = unit == FEATURES;
        const int64_t together =
            unit_of(part, layer, size, mlp ? TENSOR_UP : TENSOR_EXPERT_UP, mlp ? TENSOR_DOWN : TENSOR_EXPERT_DOWN);
        return first_feature(size, together, part->rank, part->num_ranks);
    }
    const int64_t count = count_of(&part->whole->layers[layer], unit);
    return part->rank * count / part->num_ranks * (size / count);
}

struct column_range shard_columns(const struct model_spec *part, int32_t layer, enum tensor_role role)
{
    const struct layer_spec *l = &part->whole->layers[layer];
    int64_t total = layer_mixer_out_size(l);
    if (role == TENSOR_DOWN) total = l->mlp.intermediate_size;
    if (role == TENSOR_O && l->recurrent_beside) total = attention_out_size(&l->attention);
    if (role == TENSOR_MIX_O) total = recurrent_v_size(&l->recurrent);
    return (struct column_range){first_of(part, layer, units[role].columns, total), total};
}

/* Rows first .. first + t->out_features - 1 of *whole, which are whole runs of it or lie in one. */
static void place_rows(struct tensor *t, const struct tensor *whole, int64_t first)
{
    if (whole->run == 0) return; /* a cache scale */
    t->file_row = whole->file_row + first / whole->run * whole->step + first % whole->run;
    t->run = t->out_features < whole->run ? t->out_features : whole->run;
    t->step = whole->step;
    t->file_rows = whole->file_rows;
}

/* The rank's rows of each of the three parts of what reads the input of a short convolution. */
static void place_conv_rows(struct tensor *t, const struct tensor *whole, const struct model_spec *part)
{
    const int64_t channels = whole->out_features / 3;
    t->file_row = whole->file_row + first_of(part, t->layer, K_HEADS, channels);
    t->run = t->out_features / 3;
    t->step = channels;
    t->file_rows = whole->file_rows;
}

static void place_shard(struct tensor *t, const struct tensor *whole, const struct model_spec *part)
{
    enum unit rows = units[t->role].rows;
    enum unit columns = t->kind == TENSOR_MATRIX ? units[t->role].columns : ALL;
    if (t->role == TENSOR_CONV) rows = t->part < 2 ? K_HEADS : V_HEADS; /* one for each of q, k and v */
    if (t->out_features == whole->out_features) rows = ALL;
    if (t->in_features == whole->in_features) columns = ALL;
    if (t->role == TENSOR_MIX_Q && part->layers[t->layer].mixer == MIXER_CONV)
        place_conv_rows(t, whole, part);
    else
        place_rows(t, whole, first_of(part, t->layer, rows, whole->out_features));
    t->first_column = first_of(part, t->layer, columns, whole->in_features);
    t->file_columns = whole->file_columns;
    t->is_share = units[t->role].columns != ALL || units[t->role].is_share;
}

/* Adds what the rank has of a vector that the file has for all channels of a convolution. */
static void add_channels(struct tensor_table *table, const struct tensor *t, const struct tensor *whole,
                         const struct model_spec *part)
{
    const struct recurrent_spec *mine = &part->layers[t->layer].recurrent;
    const struct recurrent_spec *all = &part->whole->layers[t->layer].recurrent;
    const int64_t width = t->width > 0 ? t->width : 1;
    int64_t file_row = 0, first_row = 0;
    for (int i = 0; i < 3; i++) {
        const bool is_v = i == (mine->value_first ? 0 : 2);
        const int64_t head = width * (is_v ? mine->v_head_size : mine->k_head_size);
        const int64_t rows = head * (is_v ? mine->num_v_heads : mine->num_k_heads);
        const int64_t all_rows = head * (is_v ? all->num_v_heads : all->num_k_heads);
        struct tensor *to = &table->tensors[table->count++];
        *to = *t;
        to->merged = MERGED_QKV, to->part = i, to->num_parts = 3;
        to->first_row = first_row, to->merged_rows = t->out_features;
        to->merged_in_file = true;
        to->out_features = to->run = rows, to->step = 0;
        to->file_row = file_row + first_of(part, t->layer, is_v ? V_HEADS : K_HEADS, all_rows);
        to->file_rows = whole->out_features;
        first_row += rows, file_row += all_rows;
    }
}

/* What shares a scale, or a word, is in one rank. */
static enum status check_quantized(const struct tensor *t, const struct model_spec *part, struct error *err)
{
    const struct cuts cuts = cuts_of(&t->scheme);
    const bool cut_columns =
        t->in_features < t->file_columns && (t->in_features % cuts.columns || t->first_column % cuts.columns);
    const bool cut_rows = t->file_row % cuts.rows || (!t->scheme.blocks && t->out_features % cuts.rows);
    if (t->kind != TENSOR_MATRIX || (!cut_columns && !cut_rows)) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "the quantized matrix \"%s\" would have %lld %s features on rank %d of %d, and %lld of them "
                     "share a scale or a word; use fewer ranks, or the model in bfloat16 or float16",
                     t->name, (long long)(cut_columns ? t->in_features : t->out_features),
                     cut_columns ? "input" : "output", part->rank, part->num_ranks,
                     (long long)(cut_columns ? cuts.columns : cuts.rows));
}

/* Whether *t is a tensor of another rank's expert. */
static bool is_elsewhere(const struct tensor *t, const struct model_spec *part)
{
    if (t->num_experts == 0) return false;
    const struct router_params *router = &part->layers[t->layer].experts.router;
    return t->expert < router->first_own || t->expert >= router->first_own + router_num_own(router);
}

/* Whether it is a bias that rank 0 alone adds. */
static bool is_of_first_rank(const struct tensor *t, const struct model_spec *part)
{
    return t->kind == TENSOR_BIAS && t->is_share && !(part->expert_parallel && t->num_experts > 0);
}

enum status tensor_table_shard(struct tensor_table *table, const struct tensor_table *whole,
                               const struct model_spec *part, struct error *err)
{
    enum { MORE_OF_A_LAYER = 4 }; /* two vectors of a convolution become three each */
    const size_t most = (size_t)table->count + (size_t)part->num_layers * MORE_OF_A_LAYER;
    struct tensor_table shards = {.tensors = malloc(most * sizeof *shards.tensors)};
    enum status status = STATUS_OK;
    if (!shards.tensors) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the table of tensors");
    const struct tensor *of_whole = whole->tensors;
    for (int32_t i = 0; i < table->count && status == STATUS_OK; i++, of_whole++) {
        struct tensor *t = &table->tensors[i];
        while (is_elsewhere(of_whole, part)) of_whole++;
        const bool conv = t->role == TENSOR_CONV || t->role == TENSOR_CONV_BIAS;
        if (conv && part->layers[t->layer].mixer != MIXER_CONV && t->kind == TENSOR_VECTOR && t->num_parts == 1) {
            add_channels(&shards, t, of_whole, part);
            continue;
        }
        place_shard(t, of_whole, part);
        status = check_quantized(t, part, err);
        if (is_of_first_rank(t, part) && part->rank > 0) continue;
        shards.tensors[shards.count++] = *t;
    }
    tensor_table_free(table);
    *table = shards;
    return status;
}
