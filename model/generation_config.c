#include "model/generation_config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct generation_config generation_config_none(void)
{
    return (struct generation_config){
        .temperature = NAN, .top_p = NAN, .min_p = NAN, .repetition_penalty = NAN, .top_k = -1, .max_new_tokens = -1};
}

void generation_config_forgive(struct json_reader *r)
{
    if (r->status != STATUS_OK) log_write(r->log, LOG_WARNING, "%s; it is ignored", r->err->text);
    r->status = STATUS_OK;
}

static double read_number(struct json_reader *r, const char *key, double min, double max)
{
    const double number = json_reader_number(r, key, NAN, min, max);
    generation_config_forgive(r);
    return number;
}

static int32_t read_int(struct json_reader *r, const char *key, int32_t min)
{
    const int32_t number = json_reader_int(r, key, -1, min, INT32_MAX);
    generation_config_forgive(r);
    return number;
}

/* Keys by which transformers changes an answer, and quire does not. */
static const struct unused_key {
    const char *key;
    double neutral;    /* a number that changes nothing; false, null and what is empty do not either */
    bool sampled_only; /* changes nothing without do_sample */
} unused_keys[] = {
    {"num_beams", 1, false},
    {"num_beam_groups", 1, false},
    {"penalty_alpha", 0, false},
    {"guidance_scale", 1, false},
    {"no_repeat_ngram_size", 0, false},
    {"min_length", 0, false},
    {"min_new_tokens", 0, false},
    {"exponential_decay_length_penalty", 0, false},
    {"stop_strings", NAN, false},
    {"bad_words_ids", NAN, false},
    {"force_words_ids", NAN, false},
    {"sequence_bias", NAN, false},
    {"suppress_tokens", NAN, false},
    {"begin_suppress_tokens", NAN, false},
    {"forced_bos_token_id", NAN, false},
    {"forced_eos_token_id", NAN, false},
    {"watermarking_config", NAN, false},
    {"dola_layers", NAN, false},
    {"typical_p", 1, true},
    {"epsilon_cutoff", 0, true},
    {"eta_cutoff", 0, true},
};

/* max_length counts the prompt, too, and gives way to max_new_tokens. */
static bool is_shortened(const struct json_reader *r, int32_t max_length)
{
    const json_t *most = json_reader_get(r, "max_length");
    return json_is_number(most) && json_number_value(most) < max_length && !json_reader_get(r, "max_new_tokens");
}

static void warn_of_unused_keys(const struct json_reader *r, int32_t max_length, bool sampled)
{
    char list[448] = "";
    size_t n = 0;
    if (is_shortened(r, max_length)) n = (size_t)snprintf(list, sizeof list, "max_length");
    for (size_t i = 0; i < sizeof unused_keys / sizeof *unused_keys; i++) {
        const struct unused_key *unused = &unused_keys[i];
        const json_t *value = json_reader_get(r, unused->key);
        if (!value || (unused->sampled_only && !sampled)) continue;
        if (json_is_number(value) ? json_number_value(value) == unused->neutral : json_is_off(value)) continue;
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "", unused->key);
    }
    if (n) json_reader_warn(r, "quire does not use what would change answers in transformers: %s", list);
}

void generation_config_read(struct json_reader *r, int32_t max_length, struct generation_config *out)
{
    *out = (struct generation_config){
        .present = true,
        .temperature = read_number(r, "temperature", 0, 1e6),
        .top_p = read_number(r, "top_p", 1e-9, 1),
        .min_p = read_number(r, "min_p", 0, 1),
        .repetition_penalty = read_number(r, "repetition_penalty", 1e-9, 1e6),
        .top_k = read_int(r, "top_k", -1),
        .max_new_tokens = read_int(r, "max_new_tokens", 1),
    };
    out->do_sample = json_reader_bool(r, "do_sample", false);
    out->do_sample_given = json_reader_get(r, "do_sample") != NULL && r->status == STATUS_OK;
    generation_config_forgive(r);
    warn_of_unused_keys(r, max_length, out->do_sample);
}
