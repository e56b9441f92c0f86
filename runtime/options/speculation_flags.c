#include "runtime/options/speculation_flags.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/edit_distance.h"
#include "base/json.h"

enum { GIVEN_METHOD = 1, GIVEN_TOKENS = 2 }; /* bits of engine_options.speculative_given */

/* Fields of --speculative-config, but for those that say the method. */
static const struct field {
    const char *name;
    bool real; /* a double; else an int32_t */
    size_t offset;
} fields[] = {
    {"num_speculative_tokens", false, offsetof(struct speculative_config, num_speculative_tokens)},
    {"prompt_lookup_min", false, offsetof(struct speculative_config, prompt_lookup_min)},
    {"prompt_lookup_max", false, offsetof(struct speculative_config, prompt_lookup_max)},
    {"suffix_decoding_max_tree_depth", false, offsetof(struct speculative_config, suffix_decoding_max_tree_depth)},
    {"suffix_decoding_max_cached_requests", false,
     offsetof(struct speculative_config, suffix_decoding_max_cached_requests)},
    {"suffix_decoding_max_spec_factor", true, offsetof(struct speculative_config, suffix_decoding_max_spec_factor)},
    {"suffix_decoding_min_token_prob", true, offsetof(struct speculative_config, suffix_decoding_min_token_prob)},
};
enum { NUM_FIELDS = sizeof fields / sizeof *fields };

/* vLLM's fields and methods that quire has nothing for. */
static const char *const fields_of_models[] = {
    "draft_tensor_parallel_size", "quantization", "max_model_len", "revision", "code_revision", NULL};
static const char *const methods_of_models[] = {"eagle", "medusa", "mlp_speculator", NULL};

static bool is_one_of(const char *const *words, const char *word)
{
    while (*words && strcmp(*words, word) != 0) words++;
    return *words != NULL;
}

/* "ngram"; or, as vLLM's users know it as the name of a model, "[ngram]". An EAGLE-3 head is a draft model whose files
 * say that it is one. */
static bool find_method(const char *word, enum draft_method *out)
{
    *out = DRAFT_MODEL;
    if (strcmp(word, "eagle3") == 0) return true;
    const size_t length = strlen(word);
    const bool brackets = length > 2 && word[0] == '[' && word[length - 1] == ']';
    for (int i = 0; i < NUM_DRAFT_METHODS; i++) {
        const char *name = draft_method_name(i);
        if (strlen(name) != length - 2 * brackets || strncmp(word + brackets, name, strlen(name)) != 0) continue;
        *out = i;
        return true;
    }
    return false;
}

static enum status unknown_method(const char *word, struct error *err)
{
    return error_set(err, STATUS_INVALID, "expected ngram|suffix|grammar|draft_model|mtp|none, got '%s'%s",
                     show_string(word).text,
                     is_one_of(methods_of_models, word) ? ": quire does not have this method yet" : "");
}

/* A method that needs no model, or the model of DRAFT_MODEL. */
static enum status set_model(struct speculative_config *c, const char *text, struct error *err)
{
    c->model[0] = '\0';
    if (find_method(text, &c->method) && c->method != DRAFT_MODEL) return STATUS_OK;
    if (strlen(text) >= sizeof c->model)
        return error_set(err, STATUS_INVALID, "the path of the draft model is too long: at most %zu bytes",
                         sizeof c->model - 1);
    strcpy(c->model, text);
    c->method = DRAFT_MODEL;
    return STATUS_OK;
}

/* --speculative-model. As in vLLM it names a model, or a method that needs none. */
static enum status parse_model(void *target, const char *text, struct error *err)
{
    struct engine_options *o = target;
    return set_model(&o->speculative, text, err);
}

/* ---- --speculative-config ---- */

static void check_name(struct json_reader *r, const char *name)
{
    struct nearest nearest = nearest_begin(name);
    nearest_consider(&nearest, "method");
    for (int i = 0; i < NUM_FIELDS; i++) {
        if (strcmp(name, fields[i].name) == 0) return;
        nearest_consider(&nearest, fields[i].name);
    }
    if (strcmp(name, "method") == 0 || strcmp(name, "model") == 0) return;
    if (r->status != STATUS_OK) return;
    if (is_one_of(fields_of_models, name))
        r->status = error_set(r->err, STATUS_INVALID,
                              "%s does not apply: quire loads a draft model as its checkpoint is", name);
    else
        r->status = error_set(r->err, STATUS_INVALID, "there is no field '%s'%s%s%s", show_string(name).text,
                              nearest.word ? "; did you mean " : "", nearest.word ? nearest.word : "",
                              nearest.word ? "?" : "; --help-all lists them");
}

static int32_t read_int(struct json_reader *r, const char *name, int32_t absent)
{
    const int64_t value = json_reader_int64(r, name, absent, INT64_MIN, INT64_MAX);
    if (value != (int32_t)value)
        json_reader_expected(r, name, "an integer that fits in 32 bits", json_reader_get(r, name));
    return (int32_t)value;
}

/* Sets what `model` and `method` say, which need not both be there. */
static enum status read_method(const struct json_reader *r, struct speculative_config *c, const char *model,
                               const char *method)
{
    enum draft_method named = DRAFT_MODEL;
    if (!model && !method)
        return error_set(r->err, STATUS_INVALID,
                         "method or model must be given: ngram|suffix|grammar|mtp|none, or a draft model");
    if (method && !find_method(method, &named)) return error_prefix(r->err, unknown_method(method, r->err), "method");
    c->method = named;
    if (!model) return STATUS_OK;
    const enum status status = set_model(c, model, r->err);
    if (status != STATUS_OK || !method || named == c->method) return status;
    return error_set(r->err, STATUS_INVALID, "method is %s, but model is '%s'; leave out one of the two", method,
                     show_string(model).text);
}

/* As in vLLM, a prompt_lookup that is given alone is both. */
static void complete_lookup(const struct json_reader *r, struct speculative_config *c)
{
    const bool min = json_reader_get(r, "prompt_lookup_min"), max = json_reader_get(r, "prompt_lookup_max");
    if (min && !max) c->prompt_lookup_max = c->prompt_lookup_min;
    if (max && !min) c->prompt_lookup_min = c->prompt_lookup_max;
}

static void read_fields(struct json_reader *r, struct speculative_config *c)
{
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)r->object, name, value) check_name(r, name);
    for (int i = 0; i < NUM_FIELDS; i++) {
        void *at = (char *)c + fields[i].offset;
        if (fields[i].real)
            *(double *)at = json_reader_number(r, fields[i].name, *(double *)at, -INFINITY, INFINITY);
        else
            *(int32_t *)at = read_int(r, fields[i].name, *(int32_t *)at);
    }
    complete_lookup(r, c);
    const char *model = json_reader_string(r, "model", NULL), *method = json_reader_string(r, "method", NULL);
    if (r->status == STATUS_OK) r->status = read_method(r, c, model, method);
    if (r->status == STATUS_OK) r->status = speculative_config_check(c, r->err);
}

static enum status parse_config(void *target, const char *text, struct error *err)
{
    struct engine_options *o = target;
    struct speculative_config c = speculative_config_default();
    json_t *object;
    enum status status = json_object_parse(text, strlen(text), JSON_REJECT_DUPLICATES, NULL, &object, err);
    if (status != STATUS_OK) return status;
    struct json_reader r = json_reader(object, NULL, err);
    read_fields(&r, &c);
    if (o->speculative_given & GIVEN_METHOD) {
        c.method = o->speculative.method;
        memcpy(c.model, o->speculative.model, sizeof c.model);
    }
    if (o->speculative_given & GIVEN_TOKENS) c.num_speculative_tokens = o->speculative.num_speculative_tokens;
    if (r.status == STATUS_OK) o->speculative = c;
    json_decref(object);
    return r.status;
}

void speculation_flags_add(struct option_table *table, struct engine_options *o)
{
    const struct option_spec specs[] = {
        {"speculative-config", OPTION_CUSTOM, o, "JSON",
         .help = "Draft the next tokens and check several in one step: the same answers, sooner. Fields as in vLLM: "
                 "method or model, num_speculative_tokens; of ngram prompt_lookup_min and prompt_lookup_max; of suffix "
                 "suffix_decoding_max_tree_depth, suffix_decoding_max_cached_requests, "
                 "suffix_decoding_max_spec_factor and suffix_decoding_min_token_prob. Beam searches are computed "
                 "without drafts. Default: none.",
         .letters = "sc", .not_empty = true, .parse = parse_config},
        {"speculative-model", OPTION_CUSTOM, o, "PATH|ngram|suffix|grammar|mtp|none",
         .help =
             "What drafts, over --speculative-config. PATH or ORG/NAME: a smaller model of the same vocabulary; ngram: "
             "what followed the last tokens earlier in the text; suffix: what followed them most often, in earlier "
             "answers, too; grammar: the only text that the grammar of an answer leaves, which ngram and suffix do, "
             "too; "
             "mtp: the model's own layers for multi-token prediction. Default: none.",
         .not_empty = true, .parse = parse_model, .given = &o->speculative_given, .given_bit = GIVEN_METHOD},
        {"num-speculative-tokens", OPTION_INT32, &o->speculative.num_speculative_tokens, "N",
         .help = "Most drafts of a sequence in a step, 1 to 7, over that of --speculative-config; fewer where they are "
                 "rejected or steps are large. Default: 7.",
         .minimum = 1, .maximum = MAX_DRAFTS, .given = &o->speculative_given, .given_bit = GIVEN_TOKENS},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}
