/* Random weights, for measuring a model whose files are not there: model_weights_dummy. */
#include <string.h>

#include "base/random.h"
#include "model/weights.h"

enum { DUMMY_ALIGNMENT = 64, DUMMY_VALUES = 4 * 255 + 1 };

struct dummy {
    struct model_weights *weights;
    enum dtype dtype;
    uint64_t seed;
    union {
        uint16_t half[DUMMY_VALUES];
        float single[DUMMY_VALUES];
    } values; /* of dtype: what each sum of four bytes stands for */
    union {
        uint16_t half;
        float single;
    } one; /* 1 in dtype */
};

/* The sums of the four bytes of each half of x: 0 to 1020, nearly normal. */
static inline void byte_sums(uint64_t x, uint32_t *low, uint32_t *high)
{
    const uint64_t pairs = (x & 0x00ff00ff00ff00ffu) + ((x >> 8) & 0x00ff00ff00ff00ffu);
    const uint64_t sums = pairs + (pairs >> 16);
    *low = (uint32_t)(sums & 0xffff);
    *high = (uint32_t)((sums >> 32) & 0xffff);
}

static void fill_random16(uint16_t *out, int64_t count, uint64_t seed, const uint16_t *values)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count / 2; i++) {
        uint32_t low, high;
        byte_sums(random_mix(seed + (uint64_t)i * RANDOM_STEP), &low, &high);
        out[2 * i] = values[low];
        out[2 * i + 1] = values[high];
    }
    if (count % 2) out[count - 1] = values[random_mix(seed) % DUMMY_VALUES];
}

static void fill_random32(float *out, int64_t count, uint64_t seed, const float *values)
{
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < count / 2; i++) {
        uint32_t low, high;
        byte_sums(random_mix(seed + (uint64_t)i * RANDOM_STEP), &low, &high);
        out[2 * i] = values[low];
        out[2 * i + 1] = values[high];
    }
    if (count % 2) out[count - 1] = values[random_mix(seed) % DUMMY_VALUES];
}

static void prepare_values(struct dummy *d)
{
    /* Four bytes, each uniform on 0..255: mean 510, variance 4 * (256^2 - 1) / 12 = 147.8^2. */
    const float deviation = 0.02f / 147.801f;
    for (int i = 0; i < DUMMY_VALUES; i++) dtype_store(&d->values, d->dtype, i, (float)(i - 510) * deviation);
    dtype_store(&d->one, d->dtype, 0, 1);
}

static int64_t aligned(int64_t bytes)
{
    return (bytes + DUMMY_ALIGNMENT - 1) / DUMMY_ALIGNMENT * DUMMY_ALIGNMENT;
}

static int64_t tensor_bytes(const struct dummy *d, int32_t index)
{
    const struct tensor *t = &d->weights->table.tensors[index];
    return t->kind == TENSOR_SCALAR ? 0 : tensor_elements(t) * dtype_size(d->dtype);
}

/* Each tensor has random numbers of its own, which depend on the seed and its index in the table. */
static void fill_tensor(const struct dummy *d, int32_t index, uint8_t *data)
{
    const struct tensor *t = &d->weights->table.tensors[index];
    const int64_t count = tensor_elements(t);
    const int size = dtype_size(d->dtype);
    if (t->kind == TENSOR_SCALAR) return; /* it has the value with which training begins */
    const uint64_t seed = random_mix(d->seed + (uint64_t)(index + 1) * 0xd1342543de82ef95u);
    if (t->kind == TENSOR_GAIN)
        for (int64_t i = 0; i < count; i++) memcpy(data + i * size, &d->one, (size_t)size);
    else if (size == 2)
        fill_random16((uint16_t *)data, count, seed, d->values.half);
    else
        fill_random32((float *)data, count, seed, d->values.single);
    model_weights_set(d->weights, t, data, d->dtype);
}

enum status model_weights_dummy(const struct model_spec *spec, uint64_t seed, struct model_weights *weights,
                                struct error *err)
{
    const bool tied = spec->tie_word_embeddings;
    int64_t bytes = 0, offset = 0;
    enum status status = model_weights_init(spec, tied, weights, err);
    if (status != STATUS_OK) return status;
    struct dummy d = {.weights = weights, .dtype = spec->dtype, .seed = seed};
    prepare_values(&d);
    for (int32_t i = 0; i < weights->table.count; i++) {
        weights->bytes += tensor_bytes(&d, i);
        bytes += aligned(tensor_bytes(&d, i));
    }
    status = model_weights_allocate(weights, bytes, "dummy weights of this config", err);
    if (status != STATUS_OK) {
        model_weights_close(weights);
        return status;
    }
    for (int32_t i = 0; i < weights->table.count; i++) {
        fill_tensor(&d, i, (uint8_t *)weights->memory + offset);
        offset += aligned(tensor_bytes(&d, i));
    }
    if (tied) weights->lm_head = weights->embedding;
    return STATUS_OK;
}
