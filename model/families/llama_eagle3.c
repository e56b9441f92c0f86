/* EAGLE-3 (Li et al., 2025): a layer of Llama that drafts from hidden states of its target. Files have Llama's
 * model_type. */
#include "model/families/families.h"

/* Those of the target whose states the head reads; -1 each: the file does not say. */
static void read_state_layers(struct json_reader *r, struct head_spec *head)
{
    static const char key[] = "eagle_aux_hidden_state_layer_ids";
    const json_t *list = json_reader_get(r, key);
    for (int i = 0; i < HEAD_MAX_STATES; i++) {
        head->state_layers[i] = -1;
        if (!list) continue;
        if (!json_is_array(list) || json_array_size(list) != HEAD_MAX_STATES) {
            json_reader_expected(r, key, "an array of 3 numbers of layers", list);
            return;
        }
        head->state_layers[i] = (int32_t)json_reader_to_int64(r, "an element of eagle_aux_hidden_state_layer_ids",
                                                              json_array_get(list, (size_t)i), 0, MODEL_MAX_LAYERS - 1);
    }
}

static void read_eagle_config(struct json_reader *r, struct head_spec *head)
{
    const json_t *object = json_reader_get(r, "eagle_config");
    struct json_reader eagle = *r;
    if (object && !json_is_object(object)) json_reader_expected(r, "eagle_config", "an object", object);
    if (json_is_object(object)) eagle.object = object, eagle.prefix = "eagle_config.";
    read_state_layers(&eagle, head);
    if (json_is_object(object)) {
        family_require_bool(&eagle, "use_aux_hidden_state", true, "heads that read one state");
        family_require_bool(&eagle, "use_input_layernorm_in_first_layer", true, "embeddings without a norm");
        family_require_bool(&eagle, "use_last_layernorm", true, "logits without a norm");
    }
    r->status = eagle.status;
}

static void set_names(struct model_spec *spec)
{
    struct tensor_names *names = &spec->names;
    names->only_layer = spec->num_layers == 1;
    names->layers = names->only_layer ? "model.midlayer" : "model.layers";
    names->head_state_norm = ".hidden_norm";
    names->head_projection = "model.fc";
    names->target_ids = "d2t";
}

static void read(struct json_reader *r, struct model_spec *spec)
{
    struct layer_spec layer = family_read_llama(r, &(struct size_defaults){.max_position = 2048}, spec);
    struct head_spec *head = &spec->head;
    *head = (struct head_spec){.kind = HEAD_EAGLE3, .num_states = HEAD_MAX_STATES, .own_lm_head = true};
    head->state_size = json_reader_int(r, "target_hidden_size", spec->hidden_size, 1, 1 << 20);
    head->num_ids = json_reader_int(r, "draft_vocab_size", spec->vocab_size, 1, spec->vocab_size);
    head->maps_ids = head->num_ids < spec->vocab_size;
    read_eagle_config(r, head);
    family_require_bool(r, "norm_before_residual", false, "a normed residual stream");
    family_require_bool(r, "parallel_drafting", false, "all drafts in one pass");
    layer.attention.qkv_bias = layer.attention.o_bias = json_reader_bool(r, "attention_bias", false);
    layer.mlp.bias = json_reader_bool(r, "mlp_bias", false);
    spec->tie_word_embeddings = false;
    family_set_layers(spec, &layer);
    set_names(spec);
}

const struct family family_llama_eagle3 = {.model_type = "llama",
                                           .architecture = "LlamaForCausalLMEagle3",
                                           .is_head = true,
                                           .read = read,
                                           .reads = "attention_bias mlp_bias"};
