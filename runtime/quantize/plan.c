#include "runtime/quantize/plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "model/checkpoint/compressed_weight.h"
#include "model/quantization.h"

static enum status out_of_memory(struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the plan of the files");
}

/* ---- tensors ---- */

static bool ends_in_weight(const char *name)
{
    const size_t length = strlen(name), end = strlen(".weight");
    return length > end && strcmp(name + length - end, ".weight") == 0;
}

/* Adds an entry of that stored tensor; NULL: memory ran out. */
static struct planned_tensor *add_tensor(struct quantize_plan *p, const struct stored_tensor *t, uint64_t bytes)
{
    const size_t count = (size_t)p->num_tensors + 1;
    if (!array_reserve(&p->tensors, &p->tensors_capacity, count, sizeof *p->tensors)) return NULL;
    struct planned_tensor *planned = &p->tensors[p->num_tensors++];
    *planned = (struct planned_tensor){.stored = t, .bytes = bytes};
    return planned;
}

static enum status list_tensors(struct quantize_plan *p, struct error *err)
{
    for (int64_t i = 0; i < tensor_file_count(p->weights.file); i++) {
        const struct stored_tensor *t = tensor_file_at(p->weights.file, i);
        struct planned_tensor *planned = add_tensor(p, t, t->bytes);
        if (!planned) return out_of_memory(err);
        planned->is_linear = t->num_dims == 2 && element_is_float(t->type) && ends_in_weight(t->name);
    }
    return STATUS_OK;
}

static const char *name_of(const struct planned_tensor *t)
{
    return t->matrix ? t->matrix : t->stored->name;
}

/* ---- experts ---- */

/* The name of an expert's matrix in place of that of the tensor that holds all. The caller frees it; NULL: memory ran
 * out. */
static char *matrix_name(const struct tensor_names *names, const struct tensor *t, const struct stored_tensor *stored)
{
    const bool down = t->role == TENSOR_EXPERT_DOWN;
    const size_t end = strlen(down ? names->expert_down : names->expert_gate_up);
    const char *part = down                            ? tensor_names_llama.expert_down
                       : t->role == TENSOR_EXPERT_GATE ? tensor_names_llama.expert_gate
                                                       : tensor_names_llama.expert_up;
    struct text name = {0};
    if (text_printf(&name, "%.*s%s.%d.%s.weight", (int)(strlen(stored->name) - end), stored->name,
                    names->quantized_experts, t->expert, part))
        return name.data;
    text_free(&name);
    return NULL;
}

/* Of a tensor of all experts: this one's matrix is written, and the tensor is not. */
static enum status cut_expert(struct quantize_plan *p, const struct tensor *t, const struct weight_source *source,
                              struct error *err)
{
    const struct stored_tensor *stored = source->data;
    const uint64_t elements = (uint64_t)t->out_features * (uint64_t)t->in_features;
    struct planned_tensor *planned = add_tensor(p, stored, elements * (uint64_t)stored->type->bytes);
    if (!planned) return out_of_memory(err);
    planned->matrix = matrix_name(&p->spec->names, t, stored);
    if (!planned->matrix) return out_of_memory(err);
    planned->source = *source;
    planned->scheme = p->spec->layers[t->layer].schemes[t->role];
    planned->is_linear = true;
    p->tensors[tensor_file_index(p->weights.file, stored)].bytes = 0;
    p->cuts_experts = true;
    p->num_quantized++;
    return STATUS_OK;
}

/* ---- schemes ---- */

/* A matrix must be one, with a row for each output feature, in the file, too. */
static enum status check_form(const struct tensor *t, const struct stored_tensor *stored, struct error *err)
{
    if (stored->num_dims == 2 && !t->flat && !t->transposed) return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s: tensor \"%s\" holds several matrices, or a transposed one, which quire does not read from "
                     "compressed-tensors; give --quantization where the model is loaded instead",
                     stored->path, stored->name);
}

/* Several tensors of the table may lie in one that is stored; rows are quantized each by itself. One of all experts is
 * checked where it stays in floats, too: quantization_config cannot name it. */
static enum status set_scheme(struct quantize_plan *p, const struct tensor *t, struct error *err)
{
    const struct weight_source *source = model_weights_source(&p->weights, t);
    if (!source->data) return STATUS_OK; /* optional, and not there */
    struct planned_tensor *planned = &p->tensors[tensor_file_index(p->weights.file, source->data)];
    if (t->role == TENSOR_EMBEDDING) planned->is_linear = false;
    const bool are_experts = t->num_experts > 0 && t->merged_in_file;
    if (t->layer < 0 || (!t->scheme.is_quantized && !are_experts)) return STATUS_OK;
    if (are_experts && t->scheme.is_quantized && p->spec->names.quantized_experts) return cut_expert(p, t, source, err);
    if (planned->scheme == 0) p->num_quantized++;
    planned->scheme = p->spec->layers[t->layer].schemes[t->role];
    planned->source = *source;
    planned->source.first_row = 0;
    planned->source.weight.out_features = planned->source.run = planned->stored->shape[0];
    return check_form(t, planned->stored, err);
}

static enum status set_schemes(struct quantize_plan *p, struct error *err)
{
    const struct tensor_table *table = &p->weights.table;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < table->count && status == STATUS_OK; i++)
        if (table->tensors[i].kind == TENSOR_MATRIX) status = set_scheme(p, &table->tensors[i], err);
    if (status == STATUS_OK && p->num_quantized == 0)
        status = error_set(err, STATUS_UNSUPPORTED,
                           "no matrix can be quantized to int4, because none has a multiple of 32 input features; "
                           "quantize to fp8 or int8");
    return status;
}

/* ---- shards ---- */

/* Two tensors of one name cannot be read. */
static enum status check_name(const struct quantize_plan *p, const struct planned_tensor *t,
                              const struct tensor_layout *layout, struct error *err)
{
    for (size_t i = t->first_placed; i < layout->count; i++) {
        const struct stored_tensor *other = tensor_file_find(p->weights.file, layout->tensors[i].name);
        if (other && other != t->stored)
            return error_set(err, STATUS_UNSUPPORTED,
                             "%s: tensor \"%s\" has the name that a part of the quantized \"%s\" would get",
                             other->path, show_string(other->name).text, name_of(t));
    }
    return STATUS_OK;
}

static enum status place_tensor(const struct quantize_plan *p, struct planned_tensor *t, struct tensor_layout *layout,
                                struct error *err)
{
    const struct stored_tensor *s = t->stored;
    t->first_placed = layout->count;
    if (t->bytes == 0 && s->bytes > 0) return STATUS_OK; /* it is cut */
    const bool ok = t->scheme ? compressed_weight_place(layout, &t->source, name_of(t))
                              : tensor_layout_add(layout, s->name, s->type, s->shape, s->num_dims);
    return ok ? check_name(p, t, layout, err) : out_of_memory(err);
}

/* No fewer than are written of it. */
static uint64_t most_bytes(const struct planned_tensor *t)
{
    if (t->scheme == 0) return t->bytes;
    const struct weight *w = &t->source.weight;
    const struct weight_part_bytes bytes = weight_part_bytes(w, t->source.scheme->has_zeros, w->out_features);
    return (uint64_t)(bytes.of[WEIGHT_DATA] + bytes.of[WEIGHT_SCALES] + bytes.of[WEIGHT_ZEROS]);
}

static enum status fill_shards(struct quantize_plan *p, double shard_bytes, struct error *err)
{
    enum status status = STATUS_OK;
    uint64_t bytes = 0; /* of the last shard */
    for (int64_t i = 0; i < p->num_tensors && status == STATUS_OK; i++) {
        struct planned_tensor *t = &p->tensors[i];
        const uint64_t more = most_bytes(t);
        if (p->num_shards == 0 || (bytes > 0 && (double)(bytes + more) > shard_bytes)) {
            if (!array_reserve(&p->shards, &p->shards_capacity, (size_t)p->num_shards + 1, sizeof *p->shards))
                return out_of_memory(err);
            p->shards[p->num_shards++] = (struct planned_shard){.first = i};
            bytes = 0;
        }
        struct planned_shard *shard = &p->shards[p->num_shards - 1];
        bytes += more;
        shard->count++;
        shard->stored_bytes += t->bytes;
        status = place_tensor(p, t, &shard->layout, err);
    }
    return status;
}

/* Hugging Face's names. */
static enum status finish_shards(struct quantize_plan *p, struct error *err)
{
    for (int64_t i = 0; i < p->num_shards; i++) {
        struct planned_shard *shard = &p->shards[i];
        if (p->num_shards == 1)
            snprintf(shard->name, sizeof shard->name, "model.safetensors");
        else
            snprintf(shard->name, sizeof shard->name, "model-%05lld-of-%05lld.safetensors", (long long)i + 1,
                     (long long)p->num_shards);
        if (!tensor_layout_finish(&shard->layout)) return out_of_memory(err);
        p->file_bytes += shard->layout.file_bytes;
    }
    return STATUS_OK;
}

/* ---- */

enum status quantize_plan_make(const char *folder, const struct model_spec *spec, double shard_bytes,
                               struct quantize_plan *plan, struct error *err)
{
    *plan = (struct quantize_plan){.spec = spec};
    enum status status = model_weights_open(folder, spec, NULL, &plan->weights, err);
    if (status != STATUS_OK) return status;
    status = list_tensors(plan, err);
    if (status == STATUS_OK) status = set_schemes(plan, err);
    if (status == STATUS_OK) status = fill_shards(plan, shard_bytes, err);
    return status == STATUS_OK ? finish_shards(plan, err) : status;
}

void quantize_plan_free(struct quantize_plan *plan)
{
    for (int64_t i = 0; i < plan->num_shards; i++) tensor_layout_free(&plan->shards[i].layout);
    for (int64_t i = 0; i < plan->num_tensors; i++) free(plan->tensors[i].matrix);
    free(plan->shards);
    free(plan->tensors);
    model_weights_close(&plan->weights);
    *plan = (struct quantize_plan){0};
}

/* ---- JSON ---- */

/* lm_head is a linear layer for others where it is the embedding, too. */
json_t *quantize_plan_config(const struct quantize_plan *plan)
{
    const char head[] = "lm_head.weight";
    struct quantized_module *modules = malloc(((size_t)plan->num_tensors + 1) * sizeof *modules);
    size_t count = 0;
    if (!modules) return NULL;
    for (int64_t i = 0; i < plan->num_tensors; i++) {
        const struct planned_tensor *t = &plan->tensors[i];
        if (t->is_linear) modules[count++] = (struct quantized_module){name_of(t), t->scheme};
    }
    if (!tensor_file_find(plan->weights.file, head)) modules[count++] = (struct quantized_module){head, 0};
    json_t *config = quantization_config_of(plan->spec, modules, count);
    free(modules);
    return config;
}

json_t *quantize_plan_index(const struct quantize_plan *plan)
{
    json_t *map = json_object();
    uint64_t bytes = 0;
    for (int64_t i = 0; i < plan->num_shards; i++) {
        const struct planned_shard *shard = &plan->shards[i];
        bytes += shard->layout.file_bytes - shard->layout.head.length;
        for (size_t t = 0; t < shard->layout.count; t++)
            if (json_object_set_new(map, shard->layout.tensors[t].name, json_string(shard->name)) != 0) {
                json_decref(map);
                return NULL;
            }
    }
    return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)bytes, "weight_map", map);
}
