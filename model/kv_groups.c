#include "model/kv_groups.h"

#include "model/layer_cache.h"
#include "model/stage.h"

/* Layers that keep the same tokens, and as many of them in a block. */
struct kind {
    enum cache_kind kind;
    int32_t window, shift;
    int32_t num_layers;
};

static int32_t layers_of_model(const struct model_spec *spec)
{
    return spec->all_stages ? spec->all_stages->num_layers : spec->num_layers;
}

/* What this rank would keep of a layer of the model, whatever its stage. */
static struct layer_cache cache_in_model(const struct model_spec *spec, int32_t layer)
{
    if (!spec->all_stages) return layer_cache_of(&spec->layers[layer]);
    struct layer_spec l = spec->all_stages->layers[layer];
    int32_t *heads = &l.attention.num_kv_heads;
    if (spec->num_ranks > 1) *heads = *heads > spec->num_ranks ? *heads / spec->num_ranks : 1;
    return layer_cache_of(&l);
}

static int64_t most_elements(const struct model_spec *spec)
{
    int64_t most = 0;
    for (int32_t i = 0; i < layers_of_model(spec); i++) {
        const struct layer_cache cache = cache_in_model(spec, i);
        if (layer_cache_room(&cache) > most) most = layer_cache_room(&cache);
    }
    return most;
}

/* By how much a layer's block is larger than block_size, as in limits->block_shifts, if the largest layer stores `most`
 * elements of a token. */
static int32_t block_shift(const struct layer_cache *cache, int64_t most, int32_t block_size)
{
    int32_t shift = 0;
    while (layer_cache_room(cache) << (shift + 1) <= most && block_size << (shift + 1) <= KV_MAX_BLOCK_SIZE) shift++;
    return shift;
}

/* What a layer keeps: all, where its window never ends before the sequence does. */
static struct kind kind_of(const struct layer_cache *cache, const struct batch_limits *limits, int64_t most)
{
    const int32_t shift = block_shift(cache, most, limits->block_size);
    if (cache->window >= limits->max_model_len) return (struct kind){CACHE_FULL, 0, shift, 0};
    return (struct kind){cache->kind, cache->window, shift, 0};
}

/* Adds the kinds of the layers whose cache is of the kind `wanted`. Returns how many kinds there are; more than
 * KV_MAX_GROUPS are not told apart. */
static int32_t add_kinds(const struct model_spec *spec, const struct batch_limits *limits, enum cache_kind wanted,
                         struct kind kinds[KV_MAX_GROUPS + 1], int32_t count)
{
    const int64_t most = most_elements(spec);
    for (int32_t i = 0; i < layers_of_model(spec); i++) {
        const struct layer_cache cache = cache_in_model(spec, i);
        const struct kind kind = kind_of(&cache, limits, most);
        int32_t k = 0;
        if (kind.kind != wanted) continue;
        while (k < count &&
               (kinds[k].kind != kind.kind || kinds[k].window != kind.window || kinds[k].shift != kind.shift))
            k++;
        if (k > KV_MAX_GROUPS) return count;
        if (k == count) kinds[count++] = kind;
        kinds[k].num_layers++;
    }
    return count;
}

/* Full attention first, if a layer has it, then the windows as they come, then the chunks. */
static int32_t find_kinds(const struct model_spec *spec, const struct batch_limits *limits,
                          struct kind kinds[KV_MAX_GROUPS + 1])
{
    const int32_t full = add_kinds(spec, limits, CACHE_FULL, kinds, 0);
    const int32_t windows = add_kinds(spec, limits, CACHE_WINDOW, kinds, full);
    return add_kinds(spec, limits, CACHE_CHUNKED, kinds, windows);
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
    limits->windows[0] = limits->block_shifts[0] = limits->chunked[0] = 0;
    if (num_kinds == 0 || num_kinds > KV_MAX_GROUPS) return;
    const int32_t size = choose_size(kinds, num_kinds);
    limits->num_groups = 0;
    for (int32_t k = 0; k < num_kinds; k++)
        for (int32_t groups = count_groups(&kinds[k], 1, size); groups > 0; groups--) {
            limits->windows[limits->num_groups] = kinds[k].window;
            limits->chunked[limits->num_groups] = kinds[k].kind == CACHE_CHUNKED;
            limits->block_shifts[limits->num_groups++] = kinds[k].shift;
        }
}

/* The groups of this kind are [first, first + the number returned): kv_groups_choose lays them side by side. */
static int32_t groups_with(const struct batch_limits *limits, int32_t window, bool chunked, int32_t shift,
                           int32_t *first)
{
    int32_t count = 0;
    for (int32_t g = limits->num_groups - 1; g >= 0; g--)
        if (limits->windows[g] == window && limits->chunked[g] == chunked && limits->block_shifts[g] == shift)
            *first = g, count++;
    return count;
}

/* The groups that a layer may be in: those of its kind, else those without a window. Any layer's tokens fit into blocks
 * of block_size. */
static int32_t groups_for(const struct batch_limits *limits, const struct layer_cache *cache, int64_t most,
                          int32_t *first)
{
    const int32_t shift = block_shift(cache, most, limits->block_size);
    int32_t count = groups_with(limits, cache->window, cache->kind == CACHE_CHUNKED, shift, first);
    if (count == 0) count = groups_with(limits, 0, false, shift, first);
    return count > 0 ? count : groups_with(limits, 0, false, 0, first);
}

enum status kv_groups_assign(const struct model_spec *spec, const struct batch_limits *limits, struct kv_groups *out,
                             struct error *err)
{
    const int64_t most = most_elements(spec);
    int32_t dealt[KV_MAX_GROUPS] = {0}; /* layers, at a kind's first group */
    *out = (struct kv_groups){.count = limits->num_groups, .num_sides = 1};
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const struct layer_cache cache = layer_cache_of(&spec->layers[i]);
        const int32_t shares = spec->layers[i].attention.shares_kv;
        int32_t first = 0;
        if (cache.kind == CACHE_NONE) continue;
        if (shares) {
            out->group[i] = out->group[i - shares], out->index[i] = out->index[i - shares];
            continue;
        }
        const int32_t count = groups_for(limits, &cache, most, &first);
        if (count == 0)
            return error_set(err, STATUS_INTERNAL, "no KV cache group keeps what layer %d reads, whose window is %d", i,
                             cache.window);
        const int32_t group = first + dealt[first] % count, index = dealt[first] / count;
        dealt[first]++;
        out->group[i] = (int16_t)group;
        out->index[i] = (int16_t)index;
        out->num_layers[group]++;
        if (out->num_tensors <= index) out->num_tensors = index + 1;
        if (cache.v_elements > 0) out->num_sides = 2;
    }
    return STATUS_OK;
}
