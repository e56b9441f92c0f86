#include "runtime/inspect/inspection.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "model/quantization.h"
#include "runtime/engine/plan.h"

/* ---- names ---- */

bool inspect_rope_has_factor(const struct rope_config *rope)
{
    return rope->type != ROPE_DEFAULT && rope->type != ROPE_LONGROPE;
}

bool inspect_rope_has_original(const struct rope_config *rope)
{
    return rope->type == ROPE_YARN || rope->type == ROPE_LLAMA3 || rope->type == ROPE_LONGROPE;
}

const char *inspect_norm_type(enum norm_type type)
{
    return type == NORM_RMS ? "RMSNorm" : "LayerNorm";
}

const char *inspect_activation(const struct layer_spec *layer)
{
    return activation_names[layer->mlp.activation];
}

const char *inspect_norm_placement(enum norm_placement placement)
{
    static const char *const names[] = {[NORM_BEFORE] = "before",
                                        [NORM_AFTER] = "after",
                                        [NORM_AROUND] = "around",
                                        [NORM_PARALLEL] = "parallel",
                                        [NORM_PARALLEL_TWO] = "parallel, two norms",
                                        [NORM_STREAM] = "residual stream"};
    return names[placement];
}

const char *inspect_qk_norm(enum qk_norm norm)
{
    return norm == QK_NORM_NONE ? NULL : norm == QK_NORM_HEAD ? "head" : "projection";
}

/* ---- lengths ---- */

int32_t inspect_length(const struct inspection *i, int32_t k)
{
    const int32_t longest = i->info.limits->max_model_len;
    int64_t length = 1024, before = 0;
    for (; k > 0; k--) {
        before = length;
        length *= 4;
    }
    return before >= longest ? 0 : length < longest ? (int32_t)length : longest;
}

/* ---- special tokens ---- */

int32_t inspect_bos(const struct inspection *i)
{
    return i->info.tokenizer ? tokenizer_bos_id(i->info.tokenizer) : i->info.config->bos_token_id;
}

int32_t inspect_eos(const struct inspection *i, int32_t ids[CONFIG_MAX_EOS])
{
    const struct model_config *config = i->info.config;
    memcpy(ids, config->eos_token_ids, sizeof config->eos_token_ids);
    if (config->num_eos > 0 || !i->info.tokenizer) return config->num_eos;
    ids[0] = tokenizer_eos_id(i->info.tokenizer);
    return ids[0] >= 0;
}

struct shown inspect_token(const struct inspection *i, int32_t id)
{
    const struct tokenizer_config *c = &i->tokenizer_config;
    struct shown out = {""};
    size_t length;
    if (i->info.tokenizer) {
        const char *bytes = tokenizer_token_bytes(i->info.tokenizer, id, true, &length);
        snprintf(out.text, sizeof out.text, "%.*s", (int)length, bytes);
        return show_string(out.text);
    }
    for (size_t t = 0; t < c->num_added; t++)
        if (c->added[t].id == id) return show_string(c->added[t].content);
    return out;
}

/* ---- reading ---- */

/* The bytes that a forward pass of one token reads of a tensor that it uses. */
static int64_t bytes_read(const struct inspection *i, const struct tensor *t)
{
    const struct weights_place place = model_weights_place(i->info.weights, t);
    if (!tensor_is_weight(t)) return 0;
    if (t->kind != TENSOR_MATRIX) return tensor_elements(t) * dtype_size(*place.vector_dtype);
    if (t->role == TENSOR_EMBEDDING && !i->tied) return weight_row_bytes(place.matrix);
    return model_weights_tensor_bytes(t, place.matrix);
}

/* The experts of a layer have the same sizes: the first top_k ones stand for those that a token goes to. */
static void count_parameters(struct inspection *i)
{
    const struct tensor_table *table = &i->info.weights->table;
    i->tied = !tensor_table_find(table, TENSOR_LM_HEAD, -1);
    for (int32_t k = 0; k < table->count; k++) {
        const struct tensor *t = &table->tensors[k];
        const int64_t count = tensor_elements(t);
        if (!tensor_is_stored(t)) continue;
        if (t->role == TENSOR_V && i->info.config->spec.layers[t->layer].attention.v_is_k) continue;
        i->num_parameters += count;
        if (t->role == TENSOR_EMBEDDING) i->num_embedding_parameters = count;
        if (t->num_experts > 0 && t->expert >= i->info.config->spec.layers[t->layer].experts.router.top_k) continue;
        i->num_active_parameters += count;
        i->token_bytes += bytes_read(i, t);
    }
}

static void count_draft_parameters(struct inspection *i)
{
    const struct model_weights *w = i->info.draft_weights;
    for (int32_t k = 0; w && k < w->table.count; k++)
        if (w->table.tensors[k].kind != TENSOR_ONES) i->num_draft_parameters += tensor_elements(&w->table.tensors[k]);
}

/* Whether the drafter mtp could use what the files have behind the last layer. */
static void try_head(struct inspection *i)
{
    struct model_config *head = malloc(sizeof *head);
    struct error ignored;
    i->can_draft = head && i->info.weights->next_tensors > 0 &&
                   model_config_load_mtp(i->options->model, NULL, head, &ignored) == STATUS_OK;
    free(head);
}

static enum status count_float_bytes(struct inspection *i, struct error *err)
{
    struct model_spec spec = i->info.config->spec;
    struct model_weights floats;
    quantization_remove(&spec);
    enum status status = model_weights_sizes(&spec, &floats, err);
    i->float_bytes = floats.bytes;
    model_weights_close(&floats);
    return status;
}

/* The weights of a whole model, as those of the ranks were found. */
static enum status find_whole(const struct inspection *i, const char *folder, const struct model_spec *spec,
                              struct model_weights *out, struct error *err)
{
    struct error ignored;
    const bool dummy = i->options->load_format == LOAD_FORMAT_DUMMY;
    if (!dummy && model_weights_open(folder, spec, NULL, out, &ignored) == STATUS_OK) return STATUS_OK;
    return model_weights_sizes(spec, out, err);
}

static enum status find_whole_weights(struct inspection *i, struct error *err)
{
    const struct engine_options *o = i->options;
    const char *drafter = o->speculative.method == DRAFT_MTP ? o->model : o->speculative.model;
    if (i->info.num_ranks == 1) return STATUS_OK;
    enum status status = find_whole(i, o->model, &i->info.config->spec, &i->whole, err);
    if (status != STATUS_OK) return status;
    i->info.weights = &i->whole;
    if (!i->info.draft_config) return STATUS_OK;
    status = find_whole(i, drafter, &i->info.draft_config->spec, &i->whole_draft, err);
    if (status == STATUS_OK) i->info.draft_weights = &i->whole_draft;
    return status;
}

/* The tensors are in order of file name. */
static void count_files(struct inspection *i)
{
    const struct tensor_file *file = i->info.weights->file;
    const char *last = "";
    for (int64_t t = 0; file && t < tensor_file_count(file); t++) {
        const char *path = tensor_file_at(file, t)->path;
        struct stat info;
        if (strcmp(path, last) == 0) continue;
        last = path;
        i->num_files++;
        if (stat(path, &info) == 0) i->file_bytes += info.st_size;
    }
}

/* Advises blocks of so many bytes in all, in a rank, if a plan can be made with them. */
static void advise_smaller_cache(struct inspection *i, int64_t bytes)
{
    const struct memory_profile *p = i->info.memory;
    const double GIB = 1024.0 * 1024.0 * 1024.0;
    struct engine_options smaller = *i->options;
    char value[32];
    if (p->num_blocks_override > 0) {
        smaller.num_gpu_blocks_override = (int32_t)(bytes / p->block_bytes);
        snprintf(value, sizeof value, "%d", smaller.num_gpu_blocks_override);
    } else {
        smaller.kv_cache_space = floor((double)bytes / GIB * 1000) / 1000;
        snprintf(value, sizeof value, "%.3f", smaller.kv_cache_space);
    }
    if (bytes >= p->block_bytes && strtod(value, NULL) > 0 && plan_succeeds(&smaller, i->loaded))
        error_advise(&i->memory_error, ADVICE_LOWER, memory_profile_blocks_setting(p), "%s", value);
}

/* On the CPU the plan leaves out the weights, which stay in their file. There they are read in every step, so a model
 * that does not fit runs at the speed of the disk. */
static void check_host_memory(struct inspection *i)
{
    const struct memory_profile *p = i->info.memory;
    const double GIB = 1024.0 * 1024.0 * 1024.0;
    const int64_t free_bytes = p->total - p->others;
    int64_t weights = 0, budget = 0, cache = 0; /* of all ranks */
    for (int32_t r = 0; r < i->info.num_ranks; r++) {
        weights += i->info.rank_memory[r].weights;
        budget += i->info.rank_memory[r].budget;
        cache += i->info.rank_memory[r].kv_cache;
    }
    if (p->discrete || budget <= free_bytes) return;
    error_set(&i->memory_error, STATUS_OUT_OF_MEMORY,
              "the weights take %.2f GiB and everything together %.2f GiB, but %.2f GiB are free, so that %s",
              (double)weights / GIB, (double)budget / GIB, (double)free_bytes / GIB,
              model_weights_to_pack(i->info.weights) > 0
                  ? "there is no room to pack the weights"
                  : "parts of the weights would be read from the file in every step");
    advise_smaller_cache(i, (free_bytes - (budget - cache)) / i->info.num_ranks);
}

static enum status plan(struct inspection *i, struct error *err)
{
    const enum status status = loaded_model_plan(i->options, i->loaded, false, err);
    if (status == STATUS_OUT_OF_MEMORY)
        i->memory_error = *err;
    else if (status == STATUS_OK)
        check_host_memory(i);
    else
        return status;
    return STATUS_OK;
}

/* The sentence of template_error, if the templates have an error in them. */
static void try_templates(struct inspection *i)
{
    struct chat_template *template = NULL;
    if (i->info.tokenizer && i->tokenizer_config.num_templates > 0)
        chat_template_open(i->info.tokenizer, NULL, &template, &i->template_error);
    chat_template_close(template);
}

enum status inspection_read(struct inspection *i, struct error *err)
{
    const struct engine_options *o = i->options;
    struct error same; /* as that of the tokenizer */
    enum status status = loaded_model_describe(o, &i->loaded, &i->weights_error, err);
    if (status != STATUS_OK) return status;
    loaded_model_open_tokenizer(o, i->loaded, &i->tokenizer_error);
    i->info = loaded_model_info(o, i->loaded);
    status = find_whole_weights(i, err);
    if (status != STATUS_OK) return status;
    count_parameters(i);
    count_draft_parameters(i);
    try_head(i);
    status = count_float_bytes(i, err);
    if (status != STATUS_OK) return status;
    count_files(i);
    tokenizer_config_read(o->model, &i->tokenizer_config, &same);
    try_templates(i);
    return plan(i, err);
}

void inspection_free(struct inspection *i)
{
    tokenizer_config_free(&i->tokenizer_config);
    loaded_model_close(i->loaded);
    model_weights_close(&i->whole);
    model_weights_close(&i->whole_draft);
}
