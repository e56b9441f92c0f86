/* The flags that several commands share, and where the shipped model lies. */
#include "runtime/options/options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

/* ---- the engine ---- */

static enum status parse_load_format(void *target, const char *text, struct error *err)
{
    enum load_format *format = target;
    if (strcmp(text, "auto") == 0) {
        *format = LOAD_FORMAT_AUTO;
    } else if (strcmp(text, "dummy") == 0) {
        *format = LOAD_FORMAT_DUMMY;
    } else {
        return error_set(err, STATUS_INVALID, "expected auto|dummy, got '%s'", text);
    }
    return STATUS_OK;
}

static enum status parse_preemption_mode(void *target, const char *text, struct error *err)
{
    static const char *const names[] = {
        [PREEMPTION_AUTO] = "auto", [PREEMPTION_RECOMPUTE] = "recompute", [PREEMPTION_SWAP] = "swap"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(text, names[i]) != 0) continue;
        *(enum preemption_mode *)target = (enum preemption_mode)i;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "expected auto|recompute|swap, got '%s'", text);
}

static enum status parse_device(void *target, const char *text, struct error *err)
{
    bool numbered = strncmp(text, "cuda:", 5) == 0 && text[5] && text[5 + strspn(text + 5, "0123456789")] == '\0';
    if (!numbered && strcmp(text, "auto") != 0 && strcmp(text, "cpu") != 0 && strcmp(text, "cuda") != 0) {
        return error_set(err, STATUS_INVALID, "expected auto|cpu|cuda|cuda:N, got '%s'", text);
    }
    *(const char **)target = text;
    return STATUS_OK;
}

enum status options_parse_block_size(void *target, const char *text, struct error *err)
{
    static const int32_t sizes[] = {8, 16, 32, 64, 128};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char name[8];
        snprintf(name, sizeof name, "%d", (int)sizes[i]);
        if (strcmp(name, text) != 0) continue;
        *(int32_t *)target = sizes[i];
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID, "expected 8|16|32|64|128, got '%s'", text);
}

/* Warnings only; once: what is being done; twice: everything. */
static enum status parse_verbose(void *target, const char *text, struct error *err)
{
    (void)text, (void)err;
    enum log_level *level = target;
    if (*level < LOG_DEBUG) (*level)++;
    return STATUS_OK;
}

void options_add_engine(struct option_table *table, struct engine_options *o, struct log *log)
{
    const struct option_spec specs[] = {
        {.heading = "Model and device:",
         .name = "model",
         .letter = 'm',
         .kind = OPTION_STRING,
         .target = &o->model,
         .argument = "PATH",
         .help = "Checkpoint folder. Default: the model that ships with quire."},
        {.name = "device",
         .kind = OPTION_CUSTOM,
         .target = &o->device,
         .parse = parse_device,
         .argument = "auto|cpu|cuda|cuda:N",
         .help = "Where to compute. Default: auto, a GPU if there is one."},
        {.name = "dtype",
         .kind = OPTION_STRING,
         .target = &o->dtype,
         .choices = "auto|float32|float16|bfloat16",
         .help = "Type of weights and activations. Default: auto, the checkpoint's on a GPU, float32 on the CPU."},
        {.name = "load-format",
         .kind = OPTION_CUSTOM,
         .target = &o->load_format,
         .parse = parse_load_format,
         .argument = "auto|dummy",
         .help =
             "dummy: random weights; config.json, and a tokenizer where texts are read, are enough. Default: auto."},
        {.name = "max-model-len",
         .kind = OPTION_INT32,
         .target = &o->max_model_len,
         .minimum = 1,
         .maximum = INFINITY,
         .argument = "N",
         .help = "Longest sequence, prompt and answer, in tokens. Default: the model's, or the "
                 "longest that fits in memory."},
        {.name = "threads",
         .letter = 't',
         .kind = OPTION_INT32,
         .target = &o->threads,
         .minimum = 0,
         .maximum = 4096,
         .argument = "N",
         .help = "Threads of the CPU. Default: 0, every processor that may be used."},
        {.name = "seed",
         .kind = OPTION_UINT64,
         .target = &o->seed,
         .argument = "N",
         .help = "Seed of sampling, and of dummy weights. Default: 0; for quire chat, another one each time."},
        {.name = "verbose",
         .letter = 'v',
         .kind = OPTION_CUSTOM,
         .target = &log->level,
         .parse = parse_verbose,
         .help = "Say what is being done, on stderr; twice: say everything."},
        {.heading = "KV cache and scheduling:",
         .name = "kv-cache-dtype",
         .kind = OPTION_STRING,
         .target = &o->kv_cache_dtype,
         .choices = "auto|float32|float16|bfloat16",
         .help = "Type of the cached keys and values. Default: auto, as --dtype."},
        {.name = "block-size",
         .kind = OPTION_CUSTOM,
         .target = &o->block_size,
         .parse = options_parse_block_size,
         .argument = "8|16|32|64|128",
         .help = "Tokens in a block of the KV cache. Default: 16."},
        {.name = "max-num-seqs",
         .kind = OPTION_INT32,
         .target = &o->max_num_seqs,
         .minimum = 1,
         .maximum = 65535,
         .argument = "N",
         .help = "Most sequences in one step. Default: 256."},
        {.name = "max-num-batched-tokens",
         .kind = OPTION_INT32,
         .target = &o->max_num_batched_tokens,
         .minimum = 1,
         .maximum = INFINITY,
         .argument = "N",
         .help = "Most tokens in one step. Default: 8192."},
        {.name = "gpu-memory-utilization",
         .kind = OPTION_DOUBLE,
         .target = &o->gpu_memory_utilization,
         .minimum = 0.01,
         .maximum = 1,
         .argument = "F",
         .help = "Share of the GPU's memory to use. Default: 0.9."},
        {.name = "kv-cache-space",
         .kind = OPTION_DOUBLE,
         .target = &o->kv_cache_space,
         .minimum = 0,
         .maximum = 1 << 20,
         .argument = "GIB",
         .help = "Memory of the KV cache on the CPU, in GiB. Default: 0, the lesser of 4 and a quarter of what is "
                 "free."},
        {.name = "num-gpu-blocks-override",
         .kind = OPTION_INT32,
         .target = &o->num_gpu_blocks_override,
         .minimum = 0,
         .maximum = INFINITY,
         .argument = "N",
         .help = "Number of KV blocks, on either device. Default: 0, computed from memory."},
        {.name = "swap-space",
         .kind = OPTION_DOUBLE,
         .target = &o->swap_space,
         .minimum = 0,
         .maximum = 1 << 20,
         .argument = "GIB",
         .help = "Host memory for the KV blocks of preempted requests, in GiB; taken as it is needed. Default: 4."},
        {.name = "preemption-mode",
         .kind = OPTION_CUSTOM,
         .target = &o->preemption_mode,
         .parse = parse_preemption_mode,
         .argument = "auto|recompute|swap",
         .help = "What becomes of a request that has to make room: it is computed again, or swapped to host memory. "
                 "Default: auto, swap where several answers are being written."},
        {.name = "enable-prefix-caching",
         .kind = OPTION_SWITCH,
         .target = &o->enable_prefix_caching,
         .help = "Reuse the blocks of prompts that begin alike. Default: on."},
        {.name = "enable-chunked-prefill",
         .kind = OPTION_SWITCH,
         .target = &o->enable_chunked_prefill,
         .help = "Cut long prompts into chunks, computed beside other requests. Default: on."},
        {.name = "enforce-eager",
         .kind = OPTION_SWITCH,
         .target = &o->enforce_eager,
         .help = "On a GPU, launch every kernel of every step instead of replaying captured graphs. Default: off."},
        {.name = "async-scheduling",
         .kind = OPTION_TRISTATE,
         .target = &o->async_scheduling,
         .help = "Schedule a step while the last one runs. Default: on, except on the CPU."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

/* ---- sampling ---- */

static enum status parse_stop(void *target, const char *text, struct error *err)
{
    struct sampling_params *params = target;
    size_t length = strlen(text);
    if (length == 0) return error_set(err, STATUS_INVALID, "expected a text, got an empty one");
    if (length >= SAMPLING_PARAMS_MAX_STOP_BYTES) {
        return error_set(err, STATUS_INVALID, "expected at most %d bytes, got %zu", SAMPLING_PARAMS_MAX_STOP_BYTES - 1,
                         length);
    }
    if (params->num_stop >= SAMPLING_PARAMS_MAX_STOP) {
        return error_set(err, STATUS_INVALID, "at most %d stop strings may be given", SAMPLING_PARAMS_MAX_STOP);
    }
    memcpy(params->stop[params->num_stop++], text, length + 1);
    return STATUS_OK;
}

/* A token id at *text; moves past it. */
static bool read_id(const char **text, int32_t *id)
{
    char *end;
    if (**text < '0' || **text > '9') return false;
    errno = 0;
    long value = strtol(*text, &end, 10);
    if (errno || value > INT32_MAX) return false;
    *id = (int32_t)value;
    *text = end;
    return true;
}

static enum status parse_stop_ids(void *target, const char *text, struct error *err)
{
    struct sampling_params *params = target;
    for (const char *at = text;; at++) {
        int32_t id;
        if (!read_id(&at, &id) || (*at && *at != ',')) {
            return error_set(err, STATUS_INVALID, "expected token ids as in 2,13,29, got '%s'", text);
        }
        if (params->num_stop_token_ids >= SAMPLING_PARAMS_MAX_STOP_IDS) {
            return error_set(err, STATUS_INVALID, "at most %d ids may be given", SAMPLING_PARAMS_MAX_STOP_IDS);
        }
        params->stop_token_ids[params->num_stop_token_ids++] = id;
        if (!*at) return STATUS_OK;
    }
}

static enum status parse_logit_bias(void *target, const char *text, struct error *err)
{
    struct sampling_params *params = target;
    for (const char *at = text;; at++) {
        int32_t id;
        char *end = NULL;
        double value = 0;
        bool good = read_id(&at, &id) && *at++ == ':' && *at > ' ';
        if (good) value = strtod(at, &end);
        if (!good || end == at || (*end && *end != ',') || !isfinite(value)) {
            return error_set(err, STATUS_INVALID, "expected token ids and what to add as in 13:-100,29:2.5, got '%s'",
                             text);
        }
        if (params->num_logit_bias >= SAMPLING_PARAMS_MAX_BIAS) {
            return error_set(err, STATUS_INVALID, "at most %d ids may be given", SAMPLING_PARAMS_MAX_BIAS);
        }
        params->bias_ids[params->num_logit_bias] = id;
        params->bias_values[params->num_logit_bias++] = (float)value;
        if (!*end) return STATUS_OK;
        at = end;
    }
}

/* Ranges are left to sampling_params_check, which has them once for flags and for files. */
void options_add_sampling(struct option_table *table, struct sampling_flags *flags)
{
    struct sampling_params *p = &flags->params;
    uint64_t *given = &flags->given;
    bool chat = p->max_tokens < 0;
#define GIVEN(field) .given = given, .given_bit = UINT64_C(1) << (field)
    const struct option_spec specs[] = {
        {.heading = "Sampling:",
         .name = "max-tokens",
         .kind = OPTION_INT32,
         .target = &p->max_tokens,
         .argument = "N",
         .help = chat ? "Longest answer in tokens. Default: -1, until --max-model-len."
                      : "Longest answer in tokens; -1: until --max-model-len. Default: 16.",
         GIVEN(FIELD_MAX_TOKENS)},
        {.name = "min-tokens",
         .kind = OPTION_INT32,
         .target = &p->min_tokens,
         .argument = "N",
         .help = "Shortest answer in tokens. Default: 0.",
         GIVEN(FIELD_MIN_TOKENS)},
        {.name = "temperature",
         .kind = OPTION_DOUBLE,
         .target = &p->temperature,
         .argument = "F",
         .help = "0: always the most probable token; above 1: more surprise. Default: the model's, or 1.",
         GIVEN(FIELD_TEMPERATURE)},
        {.name = "top-p",
         .kind = OPTION_DOUBLE,
         .target = &p->top_p,
         .argument = "F",
         .help = "Only the most probable tokens that together have this probability. Default: the model's, or 1.",
         GIVEN(FIELD_TOP_P)},
        {.name = "top-k",
         .kind = OPTION_INT32,
         .target = &p->top_k,
         .argument = "N",
         .help = "Only the N most probable tokens; 0 or -1: all. Default: the model's, or 0.",
         GIVEN(FIELD_TOP_K)},
        {.name = "min-p",
         .kind = OPTION_DOUBLE,
         .target = &p->min_p,
         .argument = "F",
         .help = "Only tokens at least F times as probable as the most probable one. Default: the model's, or 0.",
         GIVEN(FIELD_MIN_P)},
        {.name = "repetition-penalty",
         .kind = OPTION_DOUBLE,
         .target = &p->repetition_penalty,
         .argument = "F",
         .help = "Above 1: tokens of the prompt and the answer become less probable. Default: the model's, or 1.",
         GIVEN(FIELD_REPETITION_PENALTY)},
        {.name = "presence-penalty",
         .kind = OPTION_DOUBLE,
         .target = &p->presence_penalty,
         .argument = "F",
         .help = "Taken from the logit of every token already in the answer, -2 to 2. Default: 0.",
         GIVEN(FIELD_PRESENCE_PENALTY)},
        {.name = "frequency-penalty",
         .kind = OPTION_DOUBLE,
         .target = &p->frequency_penalty,
         .argument = "F",
         .help = "The same, once for each time it is there. Default: 0.",
         GIVEN(FIELD_FREQUENCY_PENALTY)},
        {.name = "logit-bias",
         .kind = OPTION_CUSTOM,
         .target = p,
         .parse = parse_logit_bias,
         .argument = "ID:VALUE,...",
         .help = "Added to the logits of these tokens, -100 to 100.",
         GIVEN(FIELD_LOGIT_BIAS)},
        {.name = "seed",
         .kind = OPTION_UINT64,
         .target = &p->seed,
         .argument = "N",
         .help = "Seed of sampling.",
         GIVEN(FIELD_SEED)},
        {.heading = "Where answers end:",
         .name = "stop",
         .kind = OPTION_CUSTOM,
         .target = p,
         .parse = parse_stop,
         .argument = "TEXT",
         .help = "End the answer before this text; may be given up to 16 times.",
         GIVEN(FIELD_STOP)},
        {.name = "stop-token-ids",
         .kind = OPTION_CUSTOM,
         .target = p,
         .parse = parse_stop_ids,
         .argument = "ID,...",
         .help = "End the answer at one of these tokens.",
         GIVEN(FIELD_STOP_TOKEN_IDS)},
        {.name = "ignore-eos",
         .kind = OPTION_SWITCH,
         .target = &p->ignore_eos,
         .help = "Go on past the model's own end. Default: off.",
         GIVEN(FIELD_IGNORE_EOS)},
        {.name = "include-stop-str-in-output",
         .kind = OPTION_SWITCH,
         .target = &p->include_stop_str_in_output,
         .help = "Keep the stop text in the answer. Default: off.",
         GIVEN(FIELD_INCLUDE_STOP_STR)},
        {.name = "skip-special-tokens",
         .kind = OPTION_SWITCH,
         .target = &p->skip_special_tokens,
         .help = "Leave special tokens out of the text. Default: on.",
         GIVEN(FIELD_SKIP_SPECIAL_TOKENS)},
    };
#undef GIVEN
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

void sampling_flags_apply(const struct sampling_flags *flags, struct sampling_params *to)
{
    const struct sampling_params *p = &flags->params;
    uint64_t given = flags->given;
#define IS_GIVEN(field) (given & (UINT64_C(1) << (field)))
    if (IS_GIVEN(FIELD_N)) to->n = p->n;
    if (IS_GIVEN(FIELD_TEMPERATURE)) to->temperature = p->temperature;
    if (IS_GIVEN(FIELD_TOP_P)) to->top_p = p->top_p;
    if (IS_GIVEN(FIELD_TOP_K)) to->top_k = p->top_k;
    if (IS_GIVEN(FIELD_MIN_P)) to->min_p = p->min_p;
    if (IS_GIVEN(FIELD_REPETITION_PENALTY)) to->repetition_penalty = p->repetition_penalty;
    if (IS_GIVEN(FIELD_PRESENCE_PENALTY)) to->presence_penalty = p->presence_penalty;
    if (IS_GIVEN(FIELD_FREQUENCY_PENALTY)) to->frequency_penalty = p->frequency_penalty;
    if (IS_GIVEN(FIELD_MAX_TOKENS)) to->max_tokens = p->max_tokens;
    if (IS_GIVEN(FIELD_MIN_TOKENS)) to->min_tokens = p->min_tokens;
    if (IS_GIVEN(FIELD_IGNORE_EOS)) to->ignore_eos = p->ignore_eos;
    if (IS_GIVEN(FIELD_LOGPROBS)) to->logprobs = p->logprobs;
    if (IS_GIVEN(FIELD_SKIP_SPECIAL_TOKENS)) to->skip_special_tokens = p->skip_special_tokens;
    if (IS_GIVEN(FIELD_INCLUDE_STOP_STR)) to->include_stop_str_in_output = p->include_stop_str_in_output;
    if (IS_GIVEN(FIELD_SEED)) {
        to->has_seed = true;
        to->seed = p->seed;
    }
    if (IS_GIVEN(FIELD_STOP)) {
        to->num_stop = p->num_stop;
        memcpy(to->stop, p->stop, sizeof to->stop);
    }
    if (IS_GIVEN(FIELD_STOP_TOKEN_IDS)) {
        to->num_stop_token_ids = p->num_stop_token_ids;
        memcpy(to->stop_token_ids, p->stop_token_ids, sizeof to->stop_token_ids);
    }
    if (IS_GIVEN(FIELD_LOGIT_BIAS)) {
        to->num_logit_bias = p->num_logit_bias;
        memcpy(to->bias_ids, p->bias_ids, sizeof to->bias_ids);
        memcpy(to->bias_values, p->bias_values, sizeof to->bias_values);
    }
#undef IS_GIVEN
}

/* ---- the shipped model ---- */

static bool has_model(const char *folder, const char *name, char *path, size_t size)
{
    char config[4096];
    return path_join(path, size, folder, name) && path_join(config, sizeof config, path, "config.json") &&
           file_exists(config);
}

bool options_default_model(char *path, size_t size)
{
    const char *from_environment = getenv("QUIRE_MODEL");
    if (from_environment && *from_environment) {
        return (size_t)snprintf(path, size, "%s", from_environment) < size;
    }
    char folder[4096];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);
    if (length <= 0) return false;
    folder[length] = '\0';
    for (int level = 0; level < 4; level++) { /* the executable's folder, then up: build/NAME/quire is two below */
        char *slash = strrchr(folder, '/');
        if (!slash) return false;
        *slash = '\0';
        if (level == 1 && has_model(folder, "share/quire/models/guide", path, size)) return true;
        if (has_model(folder, "models/guide", path, size)) return true;
    }
    return false;
}

enum status options_require_model(struct engine_options *options, char *path, size_t size, struct error *err)
{
    if (options->model) return STATUS_OK;
    if (!options_default_model(path, size)) {
        return error_set(err, STATUS_INVALID,
                         "the model that ships with quire was not found beside the executable; name a checkpoint "
                         "folder with --model PATH");
    }
    options->model = path;
    return STATUS_OK;
}
