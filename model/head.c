#include "model/head.h"

#include <stdio.h>
#include <string.h>

#include "model/checkpoint/tensor_file.h"
#include "model/tensors.h"

/* Whether there is a tensor of that name, with or without the "model." before it. */
static bool is_stored(const struct tensor_file *file, const char *name)
{
    enum { MODEL = sizeof "model." - 1 };
    return tensor_file_find(file, name) || tensor_file_find(file, name + MODEL);
}

static void read_eagle3(const struct tensor_file *file, struct model_spec *head)
{
    if (head->names.only_layer && is_stored(file, "model.layers.0.hidden_norm.weight")) {
        head->names.only_layer = false;
        head->names.layers = "model.layers";
    }
    head->head.own_embedding = is_stored(file, "model.embed_tokens.weight");
    head->head.own_lm_head = head->head.maps_ids || tensor_file_find(file, "lm_head.weight");
    head->head.maps_ids |= tensor_file_find(file, "d2t") != NULL;
}

/* Most files of a target whose layers have one tensor for all experts have those of its next layer apart. */
static void separate_experts(const struct tensor_file *file, struct model_spec *head)
{
    struct tensor_names *names = &head->names;
    if (names->experts || !names->quantized_experts) return;
    const struct tensor_name layer = tensor_module_name(head, ".");
    struct tensor_name stacked = layer;
    strncat(stacked.text, names->expert_gate_up, sizeof stacked.text - strlen(stacked.text) - 1);
    if (tensor_file_find(file, stacked.text)) return;
    names->experts = names->quantized_experts;
    names->expert_down = tensor_names_llama.expert_down;
}

/* Programs that quantize a model copy what they do not know as it is, and do not name it in quantization_config. */
static void leave_floats(const struct tensor_file *file, struct model_spec *head)
{
    struct tensor_table table;
    struct error ignored;
    if (head->num_schemes == 1 || tensor_table_make(head, false, &table, &ignored) != STATUS_OK) return;
    for (int32_t i = 0; i < table.count; i++) {
        const struct tensor *t = &table.tensors[i];
        const struct stored_tensor *found = tensor_file_find(file, tensor_name_ending(t, ".weight").text);
        if (t->kind == TENSOR_MATRIX && t->layer >= 0 && found && element_is_float(found->type))
            head->layers[t->layer].schemes[t->role] = 0;
    }
    tensor_table_free(&table);
}

void head_read_files(const char *folder, struct model_spec *head)
{
    struct tensor_file *file;
    struct error ignored;
    if (tensor_file_open(folder, &file, &ignored) != STATUS_OK) return;
    if (head->head.kind == HEAD_EAGLE3) {
        read_eagle3(file, head);
    } else {
        separate_experts(file, head);
        leave_floats(file, head);
    }
    tensor_file_close(file);
}

/* The layers that vLLM takes where the head's config.json names none: an early one, the middle, and a late one. */
static enum status choose_state_layers(struct head_spec *head, const struct model_spec *target, struct error *err)
{
    const int32_t n = target->num_layers, usual[HEAD_MAX_STATES] = {2, n / 2, n - 3};
    for (int i = 0; i < head->num_states; i++) {
        if (head->state_layers[i] < 0) head->state_layers[i] = usual[i];
        if (head->state_layers[i] < 0 || head->state_layers[i] >= n)
            return error_set(err, STATUS_INVALID, "the head reads states of layer %d, but the model has %d layers",
                             head->state_layers[i], n);
    }
    return STATUS_OK;
}

enum status head_fit(struct model_spec *head, const struct model_spec *target, struct error *err)
{
    struct head_spec *h = &head->head;
    if (h->state_size != target->hidden_size)
        return error_set(err, STATUS_INVALID,
                         "the head is made for hidden states of %d elements, but those of the model have %d",
                         h->state_size, target->hidden_size);
    if (head->vocab_size != target->vocab_size)
        return error_set(err, STATUS_INVALID,
                         "the head is made for a vocabulary of %d tokens, but that of the model has %d",
                         head->vocab_size, target->vocab_size);
    if (head->hidden_size != target->hidden_size && (!h->own_embedding || !h->own_lm_head))
        return error_set(err, STATUS_INVALID,
                         "the head has %d elements a token, so it cannot use the %s of the model, which has %d",
                         head->hidden_size, h->own_embedding ? "lm_head" : "embedding", target->hidden_size);
    return h->kind == HEAD_EAGLE3 ? choose_state_layers(h, target, err) : STATUS_OK;
}
