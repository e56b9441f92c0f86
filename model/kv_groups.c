#include "model/kv_groups.h"

#include "model/layer_cache.h"

/* Layers of one kind. */
struct kind {
    struct layer_cache cache;
    int32_t num_layers;
};

/* What a layer keeps: all, where its window never ends before the sequence does. */
static struct layer_cache kept_cache(const struct model_spec *spec, const struct batch_limits *limits, int32_t layer)
{
    struct layer_cache cache = layer_cache_of(&spec->layers[layer]);
    if (cache.window >= limits->max_model_len) cache.kind = CACHE_FULL, cache.window = 0;
    return cache;
}

/* Adds the layers with a cache of that kind: those whose caches are equal are one kind. Returns how many kinds there
 * are; more than KV_MAX_GROUPS are not told apart. */
static int32_t add_kinds(const struct model_spec *spec, const struct batch_limits *limits, enum cache_kind kind,
                         struct kind kinds[KV_MAX_GROUPS + 1], int32_t count)
{
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_cache cache = kept_cache(spec, limits, i);
        int32_t k = 0;
        if (cache.kind != kind) continue;
        while (k < count && !layer_cache_equal(&kinds[k].cache, &cache)) k++;
        if (k > KV_MAX_GROUPS) return count;
        if (k == count) kinds[count++] = (struct kind){cache, 0};
        kinds[k].num_layers++;
    }
    return count;
}

/* Full attention first, if a layer has it, then the windows as they come. */
static int32_t find_kinds(const struct model_spec *spec, const struct batch_limits *limits,
                          struct kind kinds[KV_MAX_GROUPS + 1])
{
    const int32_t full = add_kinds(spec, limits, CACHE_FULL, kinds, 0);
    return add_kinds(spec, limits, CACHE_WINDOW, kinds, full);
}

static int32_t count_groups(const struct kind *kinds, int32_t num_kinds, int32_t size)
{
    int32_t groups = 0;
    for (int32_t k = 0; k < num_kinds; k++) groups += (kinds[k].num_layers + size - 1) / size;
    return groups;
}

/* Layers of a group. */
static int32_t choose_size(const struct kind *kinds, int32_t num_kinds)
{
    int32_t smallest = kinds[0].num_layers, largest = smallest;
    for (int32_t k = 1; k < num_kinds; k++) {
        if (kinds[k].num_layers < smallest) smallest = kinds[k].num_layers;
        if (kinds[k].num_layers > largest) largest = kinds[k].num_layers;
    }
    int32_t size = largest * 4 < smallest * 5 ? largest : smallest;
    while (count_groups(kinds, num_kinds, size) > KV_MAX_GROUPS) size++;
    return size;
}

void kv_groups_choose(const struct model_spec *spec, struct batch_limits *limits)
{
    struct kind kinds[KV_MAX_GROUPS + 1];
    const int32_t num_kinds = find_kinds(spec, limits, kinds);
    limits->num_groups = 1;
    limits->windows[0] = 0;
    if (num_kinds == 0 || num_kinds > KV_MAX_GROUPS) return;
    const int32_t size = choose_size(kinds, num_kinds);
    limits->num_groups = 0;
    for (int32_t k = 0; k < num_kinds; k++)
        for (int32_t groups = count_groups(&kinds[k], 1, size); groups > 0; groups--)
            limits->windows[limits->num_groups++] = kinds[k].cache.window;
}

/* The groups with this window are [first, first + the number returned): kv_groups_choose lays them side by side. */
static int32_t groups_with(const struct batch_limits *limits, int32_t window, int32_t *first)
{
    int32_t count = 0;
    for (int32_t g = limits->num_groups - 1; g >= 0; g--)
        if (limits->windows[g] == window) *first = g, count++;
    return count;
}

/* Tensor i serves layer i of every group, so its blocks must be of one size. */
static enum status check_sizes(const struct model_spec *spec, struct error *err)
{
    const struct layer_cache first = layer_cache_of(&spec->layers[0]);
    for (int32_t i = 1; i < spec->num_layers; i++) {
        const struct layer_cache cache = layer_cache_of(&spec->layers[i]);
        if (cache.token_elements != first.token_elements)
            return error_set(err, STATUS_UNSUPPORTED,
                             "layer %d stores %lld elements of K for each token and layer 0 %lld; quire has one size "
                             "for the KV cache of all layers",
                             i, (long long)cache.token_elements, (long long)first.token_elements);
    }
    return STATUS_OK;
}

enum status kv_groups_assign(const struct model_spec *spec, const struct batch_limits *limits, struct kv_groups *out,
                             struct error *err)
{
    int32_t dealt[KV_MAX_GROUPS] = {0}; /* layers, at a kind's first group */
    *out = (struct kv_groups){.count = limits->num_groups};
    enum status status = check_sizes(spec, err);
    if (status != STATUS_OK) return status;
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_cache cache = layer_cache_of(&spec->layers[i]);
        int32_t first = 0, count = groups_with(limits, cache.window, &first);
        if (count == 0) count = groups_with(limits, 0, &first);
        if (count == 0)
            return error_set(err, STATUS_INTERNAL, "no KV cache group keeps what layer %d reads, whose window is %d", i,
                             cache.window);
        const int32_t group = first + dealt[first] % count, index = dealt[first] / count;
        dealt[first]++;
        out->group[i] = (int16_t)group;
        out->index[i] = (int16_t)index;
        out->num_layers[group]++;
        if (out->num_tensors <= index) out->num_tensors = index + 1;
    }
    return STATUS_OK;
}
