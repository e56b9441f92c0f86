#include "runtime/prompts/result.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "runtime/prompts/logprob_text.h"
#include "scheduler/sequence.h"

/* Moves what the answers need out of the prompt. Of its params only counts are kept. */
static struct prompt take_over(struct prompt *prompt)
{
    const struct sampling_params *params = &prompt->params;
    const struct prompt taken = {
        .id = prompt->id,
        .openai = prompt->openai,
        .parts = prompt->parts,
        .echo = prompt->echo,
        .is_text = prompt->is_text,
        .params = {.n = params->n, .logprobs = params->logprobs, .prompt_logprobs = params->prompt_logprobs}};
    prompt->id = prompt->echo = NULL;
    prompt->openai = (struct openai_request){0};
    prompt->parts = (struct answer_parser_options){0};
    return taken;
}

/* A line of a batch is answered as a server would. */
static bool create_response(struct result *r, const struct token_list *tokens)
{
    char id[24];
    const struct openai_request *o = &r->prompt.openai;
    const bool has_ids = r->rules->return_token_ids || o->return_token_ids;
    snprintf(id, sizeof id, "%lld", (long long)r->place.index);
    r->asked = (struct api_request){
        .form = o->kind == OPENAI_CHAT ? API_CHAT : API_COMPLETION, .num_prompts = 1, .n = r->n, .prompts = &r->prompt};
    r->prompt.openai.stream = false;
    r->prompt.tokens = *tokens; /* for ids of calls, while the response is created */
    const enum status status = api_response_create(r->rules, &r->asked, id, &r->response, NULL);
    r->prompt.tokens = (struct token_list){0};
    return status == STATUS_OK && (!has_ids || token_list_append(&r->prompt.tokens, tokens->ids, tokens->count));
}

/* What the answers of a line of quire's own form are gathered in. */
static bool create_answers(struct result *r, const struct prompt *prompt)
{
    const struct answer_parser_options *parts = &r->prompt.parts;
    const bool apart = parts->tools || parts->reasoning;
    const uint64_t seed = apart ? tool_id_seed("", &prompt->tokens) : 0;
    bool ok = true;
    if (prompt->params.prompt_logprobs >= 0) ok = (r->prompt_logprobs = json_array()) != NULL;
    for (int32_t i = 0; ok && i < r->n; i++) {
        struct result_answer *a = &r->answers[i];
        if (r->rules->return_token_ids) ok = (a->token_ids = json_array()) != NULL;
        if (ok && prompt->params.logprobs >= 0) ok = (a->logprobs = json_array()) != NULL;
        if (ok && apart) ok = (a->parts = answer_parts_create(parts, seed, i)) != NULL;
    }
    return ok;
}

struct result *result_create(const struct api_rules *rules, struct result_place place, struct prompt *prompt)
{
    struct result *r = calloc(1, sizeof *r);
    if (!r) return NULL;
    r->rules = rules;
    r->place = place;
    r->prompt_len = (int32_t)prompt->tokens.count;
    r->prompt = take_over(prompt);
    r->n = prompt->params.n > 0 ? prompt->params.n : 1;
    if (sampling_params_ranks(&prompt->params))
        r->score_name = prompt->params.beam_width > 1 ? "score" : "cumulative_logprob";
    r->answers = calloc((size_t)r->n, sizeof *r->answers);
    if (r->answers && (r->prompt.openai.kind ? create_response(r, &prompt->tokens) : create_answers(r, prompt)))
        return r;
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
        answer_parts_free(r->answers[i].parts);
    }
    free(r->answers);
    json_decref(r->prompt_logprobs);
    api_response_free(r->response);
    text_free(&r->body);
    prompt_free(&r->prompt);
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

/* Adds the piece to an answer of quire's own form. */
static bool gather(struct result *r, const struct answer_piece *piece)
{
    struct result_answer *answer = &r->answers[piece->index];
    const struct tokenizer *tokenizer = r->rules->prompts->tokenizer;
    bool ok = answer->parts ? answer_parts_take(answer->parts, tokenizer, piece)
                            : text_append(&answer->text, piece->text, piece->text_length);
    for (int32_t i = 0; ok && answer->token_ids && i < piece->num_tokens; i++) {
        ok = json_array_append_new(answer->token_ids, json_integer(piece->token_ids[i])) == 0;
    }
    if (ok && answer->logprobs && piece->num_tokens > 0 && piece->logprob)
        ok = add_token(tokenizer, answer->logprobs, piece);
    if (ok && r->prompt_logprobs && piece->prompt_logprobs) ok = add_prompt(tokenizer, r->prompt_logprobs, piece);
    return ok;
}

void result_deliver(void *user, const struct answer_piece *piece)
{
    struct result *r = user;
    struct result_answer *answer = &r->answers[piece->index];
    if (!(r->response ? api_response_take(r->response, 0, piece, &r->body) : gather(r, piece))) r->no_memory = true;
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
    const struct text *text = a->parts ? &a->parts->content : &a->text;
    return json_stringn(text->data ? text->data : "", text->length);
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
