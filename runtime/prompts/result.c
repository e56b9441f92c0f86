#include "runtime/prompts/result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "runtime/prompts/logprob_text.h"
#include "scheduler/sequence.h"

struct result *result_create(const struct result_rules *rules, struct result_place place, struct prompt *prompt)
{
    struct result *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->rules = rules;
    r->place = place;
    r->id = prompt->id;
    r->openai = prompt->openai;
    r->prompt_len = (int32_t)prompt->tokens.count;
    prompt->id = NULL;
    prompt->openai = (struct openai_request){0};
    r->n = prompt->params.n > 0 ? prompt->params.n : 1;
    if (sampling_params_ranks(&prompt->params))
        r->score_name = prompt->params.beam_width > 1 ? "score" : "cumulative_logprob";
    r->answers = calloc((size_t)r->n, sizeof *r->answers);
    bool ok = r->answers != NULL;
    if (prompt->params.prompt_logprobs >= 0) ok = ok && (r->prompt_logprobs = json_array()) != NULL;
    for (int32_t i = 0; ok && i < r->n; i++) {
        if (rules->return_token_ids) ok = (r->answers[i].token_ids = json_array()) != NULL;
        if (ok && prompt->params.logprobs >= 0) ok = (r->answers[i].logprobs = json_array()) != NULL;
    }
    if (ok) return r;
    result_free(r);
    return NULL;
}

void result_free(struct result *r)
{
    if (!r) return;
    for (int32_t i = 0; r->answers && i < r->n; i++) {
        text_free(&r->answers[i].text);
        json_decref(r->answers[i].token_ids);
        json_decref(r->answers[i].logprobs);
    }
    free(r->answers);
    json_decref(r->prompt_logprobs);
    json_decref(r->id);
    openai_request_free(&r->openai);
    free(r->error);
    free(r);
}

/* ---- gathering ---- */

json_t *result_json_text(const char *bytes, size_t length)
{
    struct text text = {0};
    const bool ok = text_append(&text, "", 0) && utf8_append_valid(&text, bytes, length);
    json_t *json = ok ? json_stringn(text.data, text.length) : NULL;
    text_free(&text);
    return json;
}

/* {"token_id", "token", "logprob"} */
static json_t *json_token(const struct tokenizer *tokenizer, int32_t id, float logprob)
{
    json_t *object = json_object();
    bool ok = object && json_object_set_new(object, "token_id", json_integer(id)) == 0;
    if (ok && tokenizer) {
        size_t length = 0;
        const char *bytes = id < tokenizer_size(tokenizer) ? tokenizer_token_bytes(tokenizer, id, true, &length) : "";
        ok = json_object_set_new(object, "token", result_json_text(bytes, length)) == 0;
    }
    ok = ok && json_object_set_new(object, "logprob", json_real(logprob_value(logprob))) == 0;
    if (ok) return object;
    json_decref(object);
    return NULL;
}

static json_t *json_top(const struct tokenizer *tokenizer, const struct token_logprob *t)
{
    json_t *list = json_array();
    for (int32_t i = 0; list && i < t->num_top; i++) {
        json_t *token = json_token(tokenizer, t->top_ids[i], t->top_logprobs[i]);
        if (json_array_append_new(list, token) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

/* {"token_id", "token", "logprob", "rank", "top"} */
static bool add_logprob(const struct tokenizer *tokenizer, json_t *list, const struct token_logprob *t)
{
    json_t *entry = json_token(tokenizer, t->token, t->logprob);
    bool ok = entry && json_object_set_new(entry, "rank", json_integer(t->rank)) == 0 &&
              json_object_set_new(entry, "top", json_top(tokenizer, t)) == 0;
    if (ok) return json_array_append_new(list, entry) == 0;
    json_decref(entry);
    return false;
}

static bool add_token(const struct tokenizer *tokenizer, json_t *list, const struct answer_piece *piece)
{
    const struct token_logprob t = token_logprob_of_answer(piece);
    return add_logprob(tokenizer, list, &t);
}

/* Nothing comes before the first token, so it has no probability: null. */
static bool add_prompt(const struct tokenizer *tokenizer, json_t *list, const struct answer_piece *piece)
{
    bool ok = json_array_append_new(list, json_null()) == 0;
    for (int32_t i = 1; ok && i < piece->prompt_logprobs->num_tokens; i++) {
        const struct token_logprob t = token_logprob_of_prompt(piece, i);
        ok = add_logprob(tokenizer, list, &t);
    }
    return ok;
}

void result_deliver(void *user, const struct answer_piece *piece)
{
    struct result *r = user;
    struct result_answer *answer = &r->answers[piece->index];
    bool ok = text_append(&answer->text, piece->text, piece->text_length);
    for (int32_t i = 0; ok && answer->token_ids && i < piece->num_tokens; i++) {
        ok = json_array_append_new(answer->token_ids, json_integer(piece->token_ids[i])) == 0;
    }
    if (ok && answer->logprobs && piece->num_tokens > 0 && piece->logprob) {
        ok = add_token(r->rules->tokenizer, answer->logprobs, piece);
    }
    if (ok && r->prompt_logprobs && piece->prompt_logprobs) {
        ok = add_prompt(r->rules->tokenizer, r->prompt_logprobs, piece);
    }
    if (!ok) r->no_memory = true;
    answer->output_tokens = piece->output_tokens;
    if (piece->score) answer->score = *piece->score;
    r->prompt_tokens = piece->prompt_tokens;
    r->cached_tokens = piece->cached_tokens;
    if (piece->finish_reason != FINISH_NONE) answer->finish_reason = piece->finish_reason;
    if (piece->finish_reason == FINISH_ABORT) r->aborted = true;
    if (piece->finish_reason == FINISH_ERROR) result_fail(r, piece->error);
    if (!piece->request_finished) return;
    r->done = true;
    if (r->when_done) r->when_done(r);
}

void result_fail(struct result *r, const struct error *why)
{
    if (r->error) return;
    struct text text = {0};
    const struct sentence sentence = error_sentence(why, r->rules->spell);
    const long long line = (long long)r->place.line;
    const bool ok = r->place.file ? text_printf(&text, "%s:%lld: %s", r->place.file, line, sentence.text)
                                  : text_printf(&text, "line %lld: %s", line, sentence.text);
    r->error = text.data;
    if (!ok) r->no_memory = true;
    if (r->request != 0) return; /* its last piece follows */
    r->done = r->refused = true;
    if (r->when_done) r->when_done(r);
}

int64_t result_output_tokens(const struct result *r)
{
    int64_t total = 0;
    for (int32_t i = 0; i < r->n; i++) total += r->answers[i].output_tokens;
    return total;
}

int32_t result_num_cut(const struct result *r)
{
    int32_t cut = 0;
    for (int32_t i = 0; i < r->n && !r->error; i++) cut += r->answers[i].finish_reason == FINISH_LENGTH;
    return cut;
}

/* ---- parts of what is written ---- */

json_t *result_answer_text(const struct result_answer *a)
{
    return json_stringn(a->text.data ? a->text.data : "", a->text.length);
}

json_t *result_answer_reason(const struct result_answer *a)
{
    const char *name = finish_reason_name(a->finish_reason);
    return name ? json_string(name) : json_null();
}

json_t *result_answer_score(const struct result_answer *a)
{
    return json_real(isfinite(a->score) ? a->score : logprob_value(-INFINITY));
}
