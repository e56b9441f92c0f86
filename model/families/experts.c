/* What the files of families with mixtures of experts share. */
#include <string.h>

#include "model/families/families.h"

/* The first of the two keys, unless the file has the second one only. */
static const char *find_key(const struct json_reader *r, const char *const keys[2])
{
    return keys[1] && !json_reader_get(r, keys[0]) && json_reader_get(r, keys[1]) ? keys[1] : keys[0];
}

static int32_t read_size(struct json_reader *r, const char *key, int32_t absent, int32_t most)
{
    return absent > 0 ? json_reader_int(r, key, absent, 1, most) : json_reader_require_int(r, key, 1, most);
}

struct experts_spec family_read_experts(struct json_reader *r, const struct experts_keys *keys)
{
    const char *top_k_key = keys->top_k ? keys->top_k : "num_experts_per_tok";
    struct experts_spec e = {.router = {.kind = ROUTER_SOFTMAX, .scaling = 1}};
    e.router.num_experts = read_size(r, find_key(r, keys->num_experts), keys->absent_num_experts, ROUTER_MAX_EXPERTS);
    e.router.top_k = read_size(r, top_k_key, keys->absent_top_k, ROUTER_MAX_TOP_K);
    e.intermediate_size = read_size(r, keys->size, keys->absent_size, 1 << 22);
    if (e.router.top_k > e.router.num_experts)
        json_reader_fail(r, STATUS_INVALID, "%s (%d) is larger than %s (%d)", top_k_key, e.router.top_k,
                         find_key(r, keys->num_experts), e.router.num_experts);
    return e;
}

struct experts_spec family_read_sigmoid_experts(struct json_reader *r, const struct experts_keys *keys)
{
    struct experts_spec e = family_read_experts(r, keys);
    e.router.kind = ROUTER_SIGMOID;
    e.router.normalize = true;
    e.choice_bias = true;
    return e;
}

void family_read_expert_groups(struct json_reader *r, int32_t absent_groups, int32_t absent_top,
                               struct experts_spec *experts)
{
    const int32_t n = experts->router.num_experts;
    struct router_params *router = &experts->router;
    router->num_groups = json_reader_int(r, family_either_key(r, "n_group", "num_expert_group"), absent_groups, 1, n);
    router->top_groups = json_reader_int(r, "topk_group", absent_top, 1, router->num_groups);
    if (n % router->num_groups != 0)
        json_reader_fail(r, STATUS_INVALID, "%d experts cannot be divided into n_group (%d) groups of equal size", n,
                         router->num_groups);
}

struct experts_spec family_read_deepseek_experts(struct json_reader *r, const struct experts_keys *keys, bool normalize)
{
    struct experts_spec e = family_read_sigmoid_experts(r, keys);
    e.router.group_sums = true;
    family_read_expert_groups(r, 1, 1, &e);
    e.router.normalize = json_reader_bool(r, "norm_topk_prob", normalize);
    e.router.scaling = (float)json_reader_number(r, "routed_scaling_factor", 1, 1e-6, 1e6);
    return e;
}

void family_set_experts(struct model_spec *spec, int32_t layer, const struct experts_spec *experts, int32_t shared_size)
{
    spec->layers[layer].experts = *experts;
    spec->layers[layer].mlp.intermediate_size = shared_size;
}

void family_set_deepseek_experts(struct model_spec *spec, const struct experts_spec *experts, int32_t first,
                                 int32_t shared)
{
    for (int32_t i = first; i < spec->num_layers; i++)
        family_set_experts(spec, i, experts, shared * experts->intermediate_size);
    spec->names.shared = "mlp.shared_experts";
}

bool family_list_has_layer(struct json_reader *r, const char *key, int32_t layer)
{
    const json_t *list = json_reader_get(r, key);
    bool found = false;
    if (list && !json_is_array(list)) json_reader_expected(r, key, "an array of numbers of layers", list);
    for (size_t i = 0; i < json_array_size(list); i++)
        found |= json_reader_to_int64(r, key, json_array_get(list, i), 0, INT32_MAX) == layer;
    return found;
}

void family_set_qwen_experts(struct json_reader *r, struct model_spec *spec, const struct experts_spec *experts,
                             int32_t shared_size)
{
    const int32_t step = json_reader_int(r, "decoder_sparse_step", 1, 1, INT32_MAX);
    for (int32_t i = 0; i < spec->num_layers; i++)
        if ((i + 1) % step == 0 && !family_list_has_layer(r, "mlp_only_layers", i))
            family_set_experts(spec, i, experts, shared_size);
}

void family_set_listed_experts(struct json_reader *r, struct model_spec *spec, const struct experts_spec *experts,
                               int32_t first, int32_t shared_size)
{
    const json_t *list = family_get_layer_list(r, "mlp_layer_types", "strings", spec);
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const json_t *element = list ? json_array_get(list, (size_t)i) : NULL;
        const char *type = i < first ? "dense" : "sparse";
        if (element) type = json_is_text(element) ? json_string_value(element) : "";
        if (strcmp(type, "sparse") == 0) {
            family_set_experts(spec, i, experts, shared_size);
        } else if (strcmp(type, "dense") != 0) {
            json_reader_expected(r, "an element of mlp_layer_types", "\"dense\" or \"sparse\"", element);
        }
    }
}
