#include "model/kv_groups.h"

/* Layers of one kind. */
struct kind {
    int32_t window, num_layers;
};

/* The window that decides which blocks a layer reads: 0 where it never ends before the sequence does. */
static int32_t kept_window(const struct model_spec *spec, const struct batch_limits *limits, int32_t layer)
{
    const int32_t window = spec->layers[layer].attention.window;
    return window < limits->max_model_len ? window : 0;
}

/* Full attention first, if a layer has it, then the windows as they come. Returns how many kinds there are; more than
 * KV_MAX_GROUPS are not told apart. */
static int32_t find_kinds(const struct model_spec *spec, const struct batch_limits *limits,
                          struct kind kinds[KV_MAX_GROUPS + 1])
{
    int32_t count = 0, full = 0;
    for (int32_t i = 0; i < spec->num_layers; i++) full += kept_window(spec, limits, i) == 0;
    if (full > 0) kinds[count++] = (struct kind){0, full};
    for (int32_t i = 0; i < spec->num_layers; i++) {
        const int32_t window = kept_window(spec, limits, i);
        int32_t k = 0;
        if (window == 0) continue;
        while (k < count && kinds[k].window != window) k++;
        if (k > KV_MAX_GROUPS) return count;
        if (k == count) kinds[count++] = (struct kind){window, 0};
        kinds[k].num_layers++;
    }
    return count;
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
            limits->windows[limits->num_groups++] = kinds[k].window;
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
    const int64_t size = attention_kv_size(&spec->layers[0].attention);
    for (int32_t i = 1; i < spec->num_layers; i++) {
        const int64_t other = attention_kv_size(&spec->layers[i].attention);
        if (other != size)
            return error_set(err, STATUS_UNSUPPORTED,
                             "layer %d stores %lld elements of K for each token and layer 0 %lld; quire has one size "
                             "for the KV cache of all layers",
                             i, (long long)other, (long long)size);
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
        int32_t first = 0, count = groups_with(limits, spec->layers[i].attention.window, &first);
        if (count == 0) count = groups_with(limits, 0, &first);
        if (count == 0)
            return error_set(err, STATUS_INTERNAL, "no KV cache group keeps what layer %d reads, whose window is %d", i,
                             spec->layers[i].attention.window);
        const int32_t group = first + dealt[first] % count, index = dealt[first] / count;
        dealt[first]++;
        out->group[i] = (int16_t)group;
        out->index[i] = (int16_t)index;
        out->num_layers[group]++;
        if (out->num_tensors <= index) out->num_tensors = index + 1;
    }
    return STATUS_OK;
}
