#include "model/head.h"

#include "model/checkpoint/tensor_file.h"

/* Whether there is a tensor of that name, with or without the "model." before it. */
static bool is_stored(const struct tensor_file *file, const char *name)
{
    enum { MODEL = sizeof "model." - 1 };
    return tensor_file_find(file, name) || tensor_file_find(file, name + MODEL);
}

void head_read_files(const char *folder, struct model_spec *head)
{
    struct tensor_file *file;
    struct error ignored;
    if (tensor_file_open(folder, &file, &ignored) != STATUS_OK) return;
    if (head->names.only_layer && is_stored(file, "model.layers.0.hidden_norm.weight")) {
        head->names.only_layer = false;
        head->names.layers = "model.layers";
    }
    head->head.own_embedding = is_stored(file, "model.embed_tokens.weight");
    head->head.own_lm_head = head->head.maps_ids || tensor_file_find(file, "lm_head.weight");
    head->head.maps_ids |= tensor_file_find(file, "d2t") != NULL;
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
