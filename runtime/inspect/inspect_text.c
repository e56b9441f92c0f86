#include "runtime/inspect/inspection.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "base/json.h"
#include "model/kv_cache.h"
#include "model/quantization.h"
#include "runtime/options/command.h"
#include "runtime/profile/memory_report.h"
#include "runtime/table.h"

/* ---- values ---- */

struct words {
    char text[128];
};

/* 1.5 MiB, 8.03 billion. */
static struct words in_units(double value, double unit, const char *const *units, int num_units)
{
    struct words out;
    int i = 0;
    for (; value >= unit && i + 1 < num_units; i++) value /= unit;
    snprintf(out.text, sizeof out.text, "%.*f%s", i == 0 ? 0 : 2, value, units[i]);
    return out;
}

static struct words size_words(int64_t bytes)
{
    static const char *const units[] = {" bytes", " KiB", " MiB", " GiB", " TiB"};
    return in_units((double)bytes, 1024, units, 5);
}

static struct words count_words(int64_t count)
{
    static const char *const units[] = {"", " thousand", " million", " billion", " trillion"};
    return in_units((double)count, 1000, units, 5);
}

/* The kinds that things are of, in the order in which they were met, and how many things are of each. */
enum { TALLY_MAX = 16 };
struct tally {
    const char *thing; /* what is counted: "layer" */
    int64_t total;     /* things in all */
    bool has_commas;   /* names of kinds may have commas in them */
    struct words kinds[TALLY_MAX];
    int64_t counts[TALLY_MAX];
    int num_kinds;
};

static void tally_add(struct tally *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void tally_add(struct tally *t, const char *format, ...)
{
    struct words kind;
    va_list args;
    va_start(args, format);
    vsnprintf(kind.text, sizeof kind.text, format, args);
    va_end(args);
    int k = 0;
    while (k < t->num_kinds && strcmp(t->kinds[k].text, kind.text) != 0) k++;
    if (k == TALLY_MAX) snprintf(t->kinds[--k].text, sizeof kind.text, "others");
    if (k == t->num_kinds) t->kinds[t->num_kinds++] = kind;
    t->counts[k]++;
}

/* A row: "full attention", or "sliding window 4096 (13 layers), full attention (13 layers)", or with "; " between. */
static void tally_row(struct table *table, const char *name, const char *before, const struct tally *t)
{
    struct text value = {0};
    bool ok = text_append_string(&value, before);
    for (int k = 0; k < t->num_kinds && ok; k++) {
        ok = text_printf(&value, "%s%s", k == 0 ? "" : t->has_commas ? "; " : ", ", t->kinds[k].text);
        if (ok && t->counts[k] < t->total)
            ok = text_printf(&value, " (%lld %s%s)", (long long)t->counts[k], t->thing, plural(t->counts[k]));
    }
    table_cell(table, "%s", name);
    table_cell(table, "%s", ok ? value.data : "");
    if (!ok) table->failed = true;
    text_free(&value);
}

static void row(struct table *table, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void row(struct table *table, const char *name, const char *format, ...)
{
    struct text value = {0};
    va_list args;
    va_start(args, format);
    if (!text_vprintf(&value, format, args)) table->failed = true;
    va_end(args);
    table_cell(table, "%s", name);
    table_cell(table, "%s", value.data ? value.data : "");
    text_free(&value);
}

static void end_group(struct table *table)
{
    row(table, "", "%s", "");
}

/* ---- the checkpoint ---- */

/* Files may hold another type than config.json says, or several. */
static void dtype_rows(struct table *t, const struct inspection *i)
{
    const struct tensor_file *file = i->info.weights->file;
    const enum dtype dtype = i->info.config->spec.dtype;
    struct tally stored = {.thing = "tensor", .total = file ? tensor_file_count(file) : 0};
    bool as_said = true;
    for (int64_t s = 0; s < stored.total; s++) {
        const struct element_type *found = tensor_file_at(file, s)->type;
        tally_add(&stored, "%s", found->name);
        as_said = as_said && found->has_dtype && found->dtype == dtype;
    }
    row(t, "dtype", "%s", dtype_name(dtype));
    if (!as_said) tally_row(t, "  stored", "", &stored);
}

/* Counts the schemes of the matrices but the embedding, which is never quantized. */
static void quantization_rows(struct table *t, const struct inspection *i)
{
    const struct model_weights *w = i->info.weights;
    struct tally schemes = {.thing = "weight", .has_commas = true};
    if (!quantization_words(&i->info.config->spec).text[0]) return;
    for (int32_t k = 0; k < w->table.count; k++) {
        const struct tensor *tensor = &w->table.tensors[k];
        if (tensor->kind != TENSOR_MATRIX || tensor->role == TENSOR_EMBEDDING) continue;
        tally_add(&schemes, "%s", weight_scheme_words(&tensor->scheme).text);
        schemes.total++;
    }
    tally_row(t, "quantized", "", &schemes);
    row(t, "  size", "%s; in %s %s", size_words(w->bytes).text, dtype_name(i->info.config->spec.dtype),
        size_words(i->float_bytes).text);
}

/* A head has neither the embedding nor lm_head. */
static void draft_rows(struct table *t, const struct inspection *i)
{
    const struct model_config *config = i->info.draft_config;
    if (!config) return;
    row(t, "drafter", "%s, %d layer%s", config->spec.head.kind == HEAD_MTP ? "mtp" : config->model_type,
        config->spec.num_layers, plural(config->spec.num_layers));
    row(t, "  parameters", "%lld, %s, in %s", (long long)i->num_draft_parameters,
        count_words(i->num_draft_parameters).text, size_words(i->info.draft_weights->bytes).text);
}

static void checkpoint_rows(struct table *t, const struct inspection *i)
{
    const struct model_config *config = i->info.config;
    const struct model_weights *w = i->info.weights;
    row(t, "checkpoint", "%s", i->options->model);
    row(t, "family", "%s (%s)", config->model_type, config->architecture);
    if (w->other_tensors > 0)
        row(t, "not used", "%s: %lld tensors, %s; text alone is read", model_spec_other_parts(&config->spec),
            (long long)w->other_tensors, size_words(w->other_bytes).text);
    if (w->next_tensors > 0)
        row(t, "MTP layers", "%d, with %lld tensors, %s; %s", config->spec.num_next_layers, (long long)w->next_tensors,
            size_words(w->next_bytes).text, i->can_draft ? "the drafter mtp uses the first" : "not used");
    row(t, "parameters", "%lld, %s", (long long)i->num_parameters, count_words(i->num_parameters).text);
    if (i->num_active_parameters < i->num_parameters)
        row(t, "  active", "%lld, %s, of which a token reads %s", (long long)i->num_active_parameters,
            count_words(i->num_active_parameters).text, size_words(i->token_bytes).text);
    row(t, "  embedding", "%lld%s", (long long)i->num_embedding_parameters,
        i->tied ? ", which is lm_head too" : ", and as many in lm_head");
    dtype_rows(t, i);
    quantization_rows(t, i);
    draft_rows(t, i);
    if (i->weights_error.text[0])
        row(t, "weights", "cannot be loaded: %s", command_sentence(&i->weights_error).text);
    else if (i->num_files)
        row(t, "size on disk", "%lld bytes, %s, in %d file%s", (long long)i->file_bytes, size_words(i->file_bytes).text,
            i->num_files, plural(i->num_files));
    end_group(t);
}

/* ---- the layers ---- */

static struct tally layer_tally(const struct model_spec *spec)
{
    return (struct tally){.thing = "layer", .total = spec->num_layers};
}

/* Whether a layer is attention, of whatever kind: its heads, scores and rotation are shown. */
static bool attends(const struct layer_spec *l)
{
    return l->mixer == MIXER_ATTENTION || l->mixer == MIXER_LATENT;
}

/* What mixes tokens in a layer that is no attention, or beside attention. */
static struct words mixer_words(const struct layer_spec *l)
{
    static const char *const kinds[] = {[RECURRENCE_DELTA] = "gated delta net",
                                        [RECURRENCE_DELTA_CHANNELS] = "gated delta net by channel",
                                        [RECURRENCE_SSD] = "Mamba 2",
                                        [RECURRENCE_FIXED] = "lightning attention"};
    const struct recurrent_spec *r = &l->recurrent;
    struct words out = {"an MLP alone"};
    if (layer_is_recurrent(l))
        snprintf(out.text, sizeof out.text, "%s of %d heads of %d x %d", kinds[r->kind], r->num_v_heads, r->v_head_size,
                 r->k_head_size);
    else if (l->mixer == MIXER_CONV)
        snprintf(out.text, sizeof out.text, "convolution of %d tokens", l->conv.width);
    return out;
}

static void attention_row(struct table *t, const struct model_spec *spec)
{
    struct tally kinds = layer_tally(spec);
    char before[32];
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct attention_spec *a = &spec->layers[i].attention;
        if (!attends(&spec->layers[i]))
            tally_add(&kinds, "%s", mixer_words(&spec->layers[i]).text);
        else if (a->window)
            tally_add(&kinds, "sliding window %d", a->window);
        else if (a->chunk)
            tally_add(&kinds, "chunks of %d", a->chunk);
        else if (spec->layers[i].mixer == MIXER_LATENT)
            tally_add(&kinds, "latent attention of %d elements", latent_vector_size(&spec->layers[i].latent));
        else if (spec->layers[i].recurrent_beside)
            tally_add(&kinds, "full attention beside %s", mixer_words(&spec->layers[i]).text);
        else
            tally_add(&kinds, "full attention");
    }
    snprintf(before, sizeof before, "%d: ", spec->num_layers);
    tally_row(t, "layers", before, &kinds);
}

static void rotation_row(struct table *t, const struct model_spec *spec)
{
    struct tally kinds = layer_tally(spec);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct attention_spec *a = &spec->layers[i].attention;
        const struct latent_spec *l = &spec->layers[i].latent;
        if (!attends(&spec->layers[i])) continue;
        if (spec->layers[i].mixer == MIXER_LATENT && !l->no_rotation)
            tally_add(&kinds, "%d of %d elements of a head", l->rope, latent_head_size(l));
        else if (a->rotary_dim)
            tally_add(&kinds, "%d of %d elements of a head", a->rotary_dim, a->head_size);
        else if (a->alibi_bias_max > 0)
            tally_add(&kinds, "none, ALiBi");
        else
            tally_add(&kinds, "none%s", spec->names.position_embedding ? ", learned positions" : "");
    }
    tally_row(t, "  rotation",
              spec->rope_interleaved ? "interleaved, "
              : spec->rope_reversed  ? "reversed, "
                                     : "",
              &kinds);
}

static void heads_row(struct table *t, const struct model_spec *spec)
{
    struct tally kinds = layer_tally(spec);
    kinds.has_commas = true;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct attention_spec *a = &spec->layers[i].attention;
        const struct latent_spec *l = &spec->layers[i].latent;
        if (!attends(&spec->layers[i])) continue;
        if (spec->layers[i].mixer == MIXER_LATENT)
            tally_add(&kinds, "%d of %d elements, those of V of %d", l->num_heads, latent_head_size(l), l->v_head_size);
        else if (attention_v_head_size(a) == a->head_size)
            tally_add(&kinds, "%d of %d elements, %d of K and V", a->num_heads, a->head_size, a->num_kv_heads);
        else
            tally_add(&kinds, "%d of %d elements, %d of K and V, those of V of %d", a->num_heads, a->head_size,
                      a->num_kv_heads, a->v_head_size);
    }
    tally_row(t, "heads", "", &kinds);
}

static void norm_row(struct table *t, const struct model_spec *spec)
{
    static const char *const places[] = {[NORM_BEFORE] = "before each sublayer",
                                         [NORM_AFTER] = "after each sublayer",
                                         [NORM_AROUND] = "before and after each sublayer",
                                         [NORM_PARALLEL] = "before attention and MLP in parallel",
                                         [NORM_PARALLEL_TWO] = "before each of attention and MLP in parallel",
                                         [NORM_STREAM] = "of the residual stream, before each sublayer"};
    struct tally kinds = layer_tally(spec);
    char before[64];
    for (int32_t i = 0; i < spec->num_layers; i++) tally_add(&kinds, "%s", places[spec->layers[i].norm_placement]);
    snprintf(before, sizeof before, "%s%s, eps %g, ", inspect_norm_type(spec->norm_type),
             spec->no_gains ? " without gains" : "", spec->norm_eps);
    tally_row(t, "  norms", before, &kinds);
}

/* What is done to scores or logits: "times 0.0625, soft cap 30". */
static struct words scaling_words(double multiplier, double soft_cap)
{
    struct words out = {"as they are"};
    if (multiplier != 1 && soft_cap > 0)
        snprintf(out.text, sizeof out.text, "times %g, soft cap %g", multiplier, soft_cap);
    else if (multiplier != 1)
        snprintf(out.text, sizeof out.text, "times %g", multiplier);
    else if (soft_cap > 0)
        snprintf(out.text, sizeof out.text, "soft cap %g", soft_cap);
    return out;
}

/* "silu with a gate", "8 of 128 experts", "4 of 60 experts beside silu with a gate", "6 of 128 experts without a gate
 * beside relu2 without a gate", "22 of 512 experts without a gate on latents of 1024" */
static struct words mlp_words(const struct layer_spec *l)
{
    struct words mlp = {""}, out = {""};
    char latent[32] = "";
    const struct router_params *router = &l->experts.router;
    if (l->mlp.intermediate_size > 0)
        snprintf(mlp.text, sizeof mlp.text, "%s %s a gate", inspect_activation(l),
                 l->mlp.kind == MLP_GATED ? "with" : "without");
    if (router->num_experts == 0) return mlp;
    if (l->experts.latent_size > 0) snprintf(latent, sizeof latent, " on latents of %d", l->experts.latent_size);
    snprintf(out.text, sizeof out.text, "%d of %d experts%s%s%s%.30s", router->top_k, router->num_experts,
             l->experts.gate.kind == GATE_NONE ? " without a gate" : "", latent, mlp.text[0] ? " beside " : "",
             mlp.text);
    return out;
}

static double multiplier(float own, float all)
{
    return (double)(own == 0 ? all : own * all);
}

/* What the outputs of a layer's sublayers are multiplied by. */
static struct words output_words(const struct layer_spec *l)
{
    struct words out;
    const float all = l->residual_multiplier;
    if (l->norm_placement == NORM_STREAM)
        snprintf(out.text, sizeof out.text, "times %g and %g", (double)l->mixer_scaling.output,
                 (double)l->mlp_scaling.output);
    else if (!l->recurrent_beside)
        snprintf(out.text, sizeof out.text, "times %g", (double)all);
    else
        snprintf(out.text, sizeof out.text, "attention times %g, what is beside it times %g, MLP times %g",
                 multiplier(l->attention.out_multiplier, all), multiplier(l->recurrent.out_multiplier, all),
                 multiplier(l->mlp.out_multiplier, all));
    return out;
}

static void sublayer_rows(struct table *t, const struct model_spec *spec)
{
    struct tally qk_norms = layer_tally(spec), scores = qk_norms, mlps = qk_norms, biases = qk_norms,
                 outputs = qk_norms, clips = qk_norms, queries = qk_norms, values = qk_norms, shared = qk_norms;
    bool scaled = false;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_spec *l = &spec->layers[i];
        const char *qk_norm = inspect_qk_norm(l->attention.qk_norm);
        if (attends(l))
            tally_add(&qk_norms, qk_norm ? "of each %s%s" : "none", qk_norm,
                      l->attention.norm_after_rotation ? ", after the rotation" : "");
        if (l->attention.shares_kv) tally_add(&shared, "of an earlier layer");
        if (l->attention.query_scaling.length)
            tally_add(&queries, "by position / %d", l->attention.query_scaling.length);
        if (l->latent.query_scaling.length) tally_add(&queries, "by position / %d", l->latent.query_scaling.length);
        if (l->attention.clip > 0) tally_add(&clips, "to %g", (double)l->attention.clip);
        if (l->mixer == MIXER_ATTENTION && l->attention.v_multiplier != 1)
            tally_add(&values, "times %g", (double)l->attention.v_multiplier);
        const float scale = l->mixer == MIXER_LATENT ? l->latent.scale : l->attention.scale;
        if (attends(l)) tally_add(&scores, "%s", scaling_words((double)scale, (double)l->attention.soft_cap).text);
        if (layer_has_mlp(l)) tally_add(&mlps, "%s", mlp_words(l).text);
        if (l->attention.qkv_bias) tally_add(&biases, "qkv");
        if (l->attention.o_bias) tally_add(&biases, "o");
        if (l->latent.bias) tally_add(&biases, "q_a, kv_a and o");
        if (l->mlp.bias) tally_add(&biases, "MLP");
        tally_add(&outputs, "%s", output_words(l).text);
        scaled = scaled || l->residual_multiplier != 1 || l->recurrent_beside || l->norm_placement == NORM_STREAM;
    }
    if (shared.num_kinds) tally_row(t, "  K and V", "", &shared);
    if (clips.num_kinds) tally_row(t, "  q, k and v", "clipped ", &clips);
    if (queries.num_kinds) tally_row(t, "  queries", "scaled ", &queries);
    tally_row(t, "  QK norm", "", &qk_norms);
    tally_row(t, "  scores", "", &scores);
    if (values.num_kinds) tally_row(t, "  values", "", &values);
    tally_row(t, "  MLP", "", &mlps);
    if (biases.num_kinds) tally_row(t, "  biases", "", &biases);
    if (scaled) tally_row(t, "  outputs", "of the sublayers, ", &outputs);
}

static void merged_row(struct table *t, const struct tensor_names *names)
{
    struct words qkv = {""}, gate_up = {""};
    if (names->qkv) snprintf(qkv.text, sizeof qkv.text, "q, k and v in %s", names->qkv);
    if (names->gate_up) snprintf(gate_up.text, sizeof gate_up.text, "gate and up in %s", names->gate_up);
    if (names->qkv || names->gate_up)
        row(t, "  merged", "%s%s%s", qkv.text, names->qkv && names->gate_up ? ", " : "", gate_up.text);
}

/* A line for each rope, with the number of its layers where there are several. */
static void rope_rows(struct table *t, const struct model_spec *spec)
{
    for (int32_t r = 0; r < spec->num_ropes; r++) {
        const struct rope_config *rope = &spec->ropes[r];
        struct words factor = {""}, original = {""}, layers = {""};
        int32_t count = 0;
        if (rope_rotary_dim(spec, r) == 0) continue;
        for (int32_t i = 0; i < spec->num_layers; i++) count += layer_rotary_dim(&spec->layers[i], r) > 0;
        if (inspect_rope_has_factor(rope)) snprintf(factor.text, sizeof factor.text, ", factor %g", rope->factor);
        if (inspect_rope_has_original(rope))
            snprintf(original.text, sizeof original.text, ", original length %d", rope->original_max_position);
        if (spec->num_ropes > 1) snprintf(layers.text, sizeof layers.text, " (%d layer%s)", count, plural(count));
        row(t, "rope", "%s, theta %.10g%s%s%s", rope_type_names[rope->type], rope->theta, factor.text, original.text,
            layers.text);
    }
}

static void model_rows(struct table *t, const struct inspection *i)
{
    const struct model_spec *spec = &i->info.config->spec;
    const struct layer_sizes largest = model_spec_largest(spec);
    const struct memory_profile *p = i->info.memory;
    attention_row(t, spec);
    rotation_row(t, spec);
    norm_row(t, spec);
    sublayer_rows(t, spec);
    merged_row(t, &spec->names);
    row(t, "hidden size", "%d", spec->hidden_size);
    if (largest.intermediate_size > 0) row(t, "intermediate", "%d", largest.intermediate_size);
    if (largest.expert_size > 0) row(t, "  of an expert", "%d", largest.expert_size);
    heads_row(t, spec);
    row(t, "vocabulary", "%d", spec->vocab_size);
    if (spec->per_layer_size) row(t, "per layer", "%d more elements of each token", spec->per_layer_size);
    if (spec->embedding_multiplier != 1) row(t, "embedding", "times %g", spec->embedding_multiplier);
    if (spec->logits_multiplier != 1 || spec->logits_soft_cap > 0)
        row(t, "logits", "%s", scaling_words(spec->logits_multiplier, spec->logits_soft_cap).text);
    row(t, "context", "%d tokens", model_spec_max_length(spec));
    rope_rows(t, spec);
    row(t, "KV cache", "%lld bytes a token, %s a block of %d tokens%s, %s",
        (long long)kv_cache_token_bytes(spec, p->cache_dtype), size_words(p->block_bytes).text,
        i->info.limits->block_size, i->info.num_ranks > 1 ? " in a rank" : "", dtype_name(p->cache_dtype));
    if (p->slot_bytes > 0)
        row(t, "state", "%s a sequence, as much as the KV cache of %lld tokens", size_words(p->slot_bytes).text,
            (long long)(p->slot_bytes / kv_cache_token_bytes(spec, p->cache_dtype)));
    end_group(t);
}

/* ---- the tokenizer ---- */

static void token_row(struct table *t, const struct inspection *i, const char *name, const int32_t *ids, int32_t count)
{
    struct text value = {0};
    bool ok = text_append_string(&value, count ? "" : "none");
    for (int32_t k = 0; k < count && ok; k++) {
        const struct shown text = inspect_token(i, ids[k]);
        ok = text_printf(&value, "%s%d%s%s", k ? ", " : "", ids[k], text.text[0] ? " " : "", text.text);
    }
    row(t, name, "%s", ok ? value.data : "");
    text_free(&value);
}

static void template_row(struct table *t, const struct inspection *i)
{
    const struct tokenizer_config *c = &i->tokenizer_config;
    struct text names = {0};
    bool ok = text_append_string(&names, c->num_templates ? "yes" : "no");
    for (size_t k = 0; k < c->num_templates && c->num_templates > 1 && ok; k++)
        ok = text_printf(&names, "%s%s", k ? ", " : ": ", c->templates[k].name);
    if (i->template_error.text[0])
        row(t, "chat template", "cannot be used: %s", command_sentence(&i->template_error).text);
    else
        row(t, "chat template", "%s", ok ? names.data : "");
    text_free(&names);
}

static void tokenizer_rows(struct table *t, const struct inspection *i)
{
    const int32_t bos = inspect_bos(i);
    int32_t eos[CONFIG_MAX_EOS];
    const int32_t num_eos = inspect_eos(i, eos);
    if (i->info.tokenizer)
        row(t, "tokenizer", "%s, %d tokens", tokenizer_file(i->info.tokenizer), tokenizer_size(i->info.tokenizer));
    else
        row(t, "tokenizer", "cannot be used: %s", command_sentence(&i->tokenizer_error).text);
    token_row(t, i, "bos", &bos, bos >= 0);
    token_row(t, i, "eos", eos, num_eos);
    template_row(t, i);
}

static void sampling_row(struct table *t, const struct generation_config *g)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"temperature", g->temperature},
                   {"top_p", g->top_p},
                   {"min_p", g->min_p},
                   {"repetition_penalty", g->repetition_penalty},
                   {"top_k", g->top_k < 0 ? NAN : g->top_k},
                   {"max_new_tokens", g->max_new_tokens < 0 ? NAN : g->max_new_tokens}};
    struct text value = {0};
    bool ok = text_append_string(&value, !g->do_sample_given ? ""
                                         : g->do_sample      ? "do_sample true"
                                                             : "do_sample false");
    for (size_t n = 0; n < sizeof numbers / sizeof *numbers && ok; n++)
        if (!isnan(numbers[n].value))
            ok = text_printf(&value, "%s%s %g", value.length ? ", " : "", numbers[n].name, numbers[n].value);
    row(t, "sampling", "%s",
        !g->present          ? "no generation_config.json"
        : ok && value.length ? value.data
                             : "no defaults");
    text_free(&value);
    end_group(t);
}

/* ---- this machine ---- */

static void groups_row(struct table *t, const struct inspection *i)
{
    struct text groups = {0};
    const bool ok = memory_report_groups(&groups, i->info.memory, i->info.limits);
    row(t, "KV groups", "%s", ok ? groups.data : "");
    text_free(&groups);
}

/* The most blocks that a request of max_model_len tokens holds. */
static void request_row(struct table *t, const struct batch_limits *limits)
{
    const int32_t held = batch_sequence_blocks(limits, limits->max_model_len);
    const int32_t all = memory_report_unwindowed_blocks(limits);
    row(t, "  a request", held < all ? "%d at most; without windows %d" : "%d", held, all);
}

static void states_row(struct table *t, const struct memory_profile *p, int32_t sequences)
{
    if (p->num_state_slots == 0) return;
    row(t, "  states", "%s: %d slots of %s for %d sequence%s, %d for snapshots", size_words(p->state_slots).text,
        p->num_state_slots - p->num_snapshot_slots, size_words(p->slot_bytes).text, sequences, plural(sequences),
        p->num_snapshot_slots);
}

/* How many requests run at once, by their length. */
static void requests_rows(struct table *t, const struct inspection *i)
{
    const struct memory_profile *p = i->info.memory;
    const struct batch_limits *limits = i->info.limits;
    struct text by_length = {0};
    bool ok = true;
    for (int32_t k = 0, tokens; ok && (tokens = inspect_length(i, k)) > 0; k++)
        ok = text_printf(&by_length, "%s%d of %d", k ? ", " : "", memory_profile_requests(p, limits, tokens), tokens);
    row(t, "requests", "%.2f of max_model_len tokens each, nothing shared", memory_profile_concurrency(p, limits));
    row(t, "  at once", "%s tokens", ok ? by_length.data : "");
    text_free(&by_length);
}

/* The devices of all ranks; those on the CPU share one. */
static void device_rows(struct table *t, const struct inspection *i)
{
    const char *gpu = i->info.device_description;
    for (int32_t r = 0; r < (i->info.discrete ? i->info.num_ranks : 1); r++) {
        const struct memory_profile *p = &i->info.rank_memory[r];
        row(t, "device", "%s%s%s%s, %s free of %s", p->device, gpu ? " (" : "", gpu ? gpu : "", gpu ? ")" : "",
            size_words(p->total - p->others - p->context).text, size_words(p->total).text);
    }
    if (i->info.num_ranks > 1) row(t, "ranks", "%d, of which each has", i->info.num_ranks);
}

/* The most that a rank has of it. */
static struct words rank_words(const struct inspection *i, int64_t (*size)(const struct memory_profile *p))
{
    int64_t most = 0;
    for (int32_t r = 0; r < i->info.num_ranks; r++)
        if (size(&i->info.rank_memory[r]) > most) most = size(&i->info.rank_memory[r]);
    return size_words(most);
}

static int64_t weights_of(const struct memory_profile *p)
{
    return p->weights;
}

static int64_t step_of(const struct memory_profile *p)
{
    return memory_profile_fixed(p) - p->others - p->context - p->weights - p->state_slots;
}

static void machine_rows(struct table *t, const struct inspection *i)
{
    const struct memory_profile *p = i->info.memory;
    const struct batch_limits *limits = i->info.limits;
    device_rows(t, i);
    if (p->discrete) row(t, "  for quire", "%s, %.2f of it", size_words(p->budget).text, p->utilization);
    row(t, "  weights", "%s", rank_words(i, weights_of).text);
    if (p->host_embeddings > 0)
        row(t, "  on the host", "%s, embeddings that the GPU reads there", size_words(p->host_embeddings).text);
    if (p->host_experts > 0)
        row(t, "  on the host", "%s, the experts of the first %d layer%s, computed by the CPU; a token reads %s there",
            size_words(p->host_experts).text, p->host_expert_layers, plural(p->host_expert_layers),
            size_words(p->host_token_bytes).text);
    row(t, "  step", "%s for the largest, computed in %s", rank_words(i, step_of).text, dtype_name(p->dtype));
    states_row(t, p, limits->max_num_seqs);
    row(t, "  KV cache", "%s", size_words(p->kv_cache).text);
    groups_row(t, i);
    row(t, "blocks", "%d", p->num_blocks);
    request_row(t, limits);
    row(t, "tokens", "%lld", (long long)memory_profile_tokens(p, limits));
    row(t, "max_model_len", limits->max_model_len < p->model_max_len ? "%d of the model's %d" : "%d",
        limits->max_model_len, p->model_max_len);
    requests_rows(t, i);
    row(t, "fits", "%s%s", i->memory_error.text[0] ? "no: " : "yes", command_sentence(&i->memory_error).text);
}

bool inspection_print(const struct inspection *i)
{
    struct table t = {.columns = "ll"};
    checkpoint_rows(&t, i);
    model_rows(&t, i);
    tokenizer_rows(&t, i);
    sampling_row(&t, &i->info.config->generation);
    machine_rows(&t, i);
    const bool ok = table_print(&t, stdout);
    table_free(&t);
    return ok;
}
