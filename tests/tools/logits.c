/* The logits after the last token of each prompt, for comparison with another implementation.
 *
 * usage: logits FOLDER DEVICE DTYPE PROMPTS OUT [QUANTIZATION [CACHE_DTYPE]]
 * PROMPTS: a JSON array of arrays of token ids. OUT gets float32 [prompts, vocab_size], little-endian.
 * QUANTIZATION: fp8, int8 or int4, weights are quantized while they are loaded; none. The KV cache has DTYPE unless
 * CACHE_DTYPE is given. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/config.h"
#include "model/model.h"
#include "model/quantization.h"

struct tool {
    struct backend *backend;
    struct model_config config;
    struct model_weights weights;
    struct model *model;
    struct batch batch;
    float *logits; /* [vocab_size] on the host */
};

static void must(enum status status, const struct error *err)
{
    if (status == STATUS_OK) return;
    fprintf(stderr, "logits: %s\n", err->text);
    exit(1);
}

static void open_model(struct tool *t, char **argv, const char *quantization, const char *cache_dtype, int32_t longest)
{
    const char *folder = argv[1], *device = argv[2], *dtype = argv[3];
    struct error err;
    struct model_options options = {
        .limits =
            {.max_num_tokens = longest, .max_num_seqs = 1, .max_model_len = longest, .block_size = 16, .num_groups = 1},
        .keep_logits = true,
    };
    if (dtype_parse(dtype, &options.dtype) != 0) must(error_set(&err, STATUS_INVALID, "no type %s", dtype), &err);
    options.cache_dtype = options.dtype;
    if (cache_dtype && dtype_parse(cache_dtype, &options.cache_dtype) != 0)
        must(error_set(&err, STATUS_INVALID, "no type %s", cache_dtype), &err);
    must(model_config_load(folder, NULL, NULL, &t->config, &err), &err);
    must(quantization_apply(&t->config.spec, quantization, &err), &err);
    must(backend_open(device, 0, &t->backend, &err), &err);
    must(model_weights_open(folder, &t->config.spec, NULL, &t->weights, &err), &err);
    options.copy_weights = t->backend->discrete;
    must(model_create(t->backend, &t->config.spec, &t->weights, &options, &t->model, &err), &err);
    must(model_allocate_cache(t->model, longest / 16 + 1, &err), &err);
    must(model_wait_for_weights(t->model, &err), &err);
    must(batch_init(&t->batch, &options.limits, &err), &err);
    t->logits = malloc((size_t)t->config.spec.vocab_size * sizeof *t->logits);
}

static void run_prompt(struct tool *t, const json_t *prompt, FILE *out)
{
    const struct sampling_state greedy = {.num_logprobs = -1, .repetition_penalty = 1};
    const int32_t n = (int32_t)json_array_size(prompt);
    const int64_t bytes = t->config.spec.vocab_size * (int64_t)sizeof *t->logits;
    struct batch *b = &t->batch;
    struct sample_output sampled;
    struct error err;
    batch_clear(b);
    b->num_tokens = b->max_query_len = b->max_seq_len = b->seq_lens[0] = b->query_start[1] = n;
    b->num_seqs = b->num_samples = 1;
    b->num_decodes = n == 1;
    b->query_start[0] = b->state_indices[0] = b->sample_state_indices[0] = b->output_positions[0] = 0;
    b->logits_indices[0] = n - 1;
    for (int32_t i = 0; i < n; i++) {
        b->token_ids[i] = (int32_t)json_integer_value(json_array_get(prompt, (size_t)i));
        b->positions[i] = i;
        b->slot_mapping[i] = 16 + i;
        if (i % 16 == 0) b->deltas[b->num_deltas++] = (struct block_table_delta){.index = i / 16, .block = 1 + i / 16};
    }
    model_set_sampling_state(t->model, 0, &greedy, NULL, 0);
    must(model_submit(t->model, b, &err), &err);
    must(model_collect(t->model, &sampled, &err), &err);
    t->backend->copy(t->backend, t->logits, model_logits(t->model), bytes, NULL);
    must(t->backend->stream_synchronize(t->backend, NULL, &err), &err);
    fwrite(t->logits, 1, (size_t)bytes, out);
}

int main(int argc, char **argv)
{
    if (argc < 6 || argc > 8) {
        fprintf(stderr, "usage: logits FOLDER DEVICE DTYPE PROMPTS OUT [QUANTIZATION [CACHE_DTYPE]]\n");
        return 2;
    }
    struct tool t = {0};
    json_error_t where;
    json_t *prompts = json_load_file(argv[4], 0, &where);
    FILE *out = fopen(argv[5], "wb");
    if (!prompts || !out) {
        fprintf(stderr, "logits: %s: %s\n", prompts ? argv[5] : argv[4], prompts ? "cannot be written" : where.text);
        return 1;
    }
    size_t longest = 1;
    for (size_t i = 0; i < json_array_size(prompts); i++)
        if (json_array_size(json_array_get(prompts, i)) > longest)
            longest = json_array_size(json_array_get(prompts, i));
    open_model(&t, argv, argc > 6 ? argv[6] : NULL, argc > 7 ? argv[7] : NULL, (int32_t)longest);
    for (size_t i = 0; i < json_array_size(prompts); i++) run_prompt(&t, json_array_get(prompts, i), out);
    json_decref(prompts);
    free(t.logits);
    batch_free(&t.batch);
    model_destroy(t.model);
    model_weights_close(&t.weights);
    t.backend->destroy(t.backend);
    return fclose(out) == 0 ? 0 : 1;
}
