#include "runtime/prompts/logprob_text.h"

#include <stdio.h>
#include <string.h>

#include "base/json_value.h"
#include "base/utf8.h"

static const double LOWEST_LOGPROB = -9999.0;

double logprob_value(float logprob)
{
    return logprob >= LOWEST_LOGPROB ? (double)logprob : LOWEST_LOGPROB;
}

struct token_logprob token_logprob_of_answer(const struct answer_piece *piece)
{
    return (struct token_logprob){.token = piece->token_ids[0],
                                  .rank = piece->rank[0],
                                  .logprob = piece->logprob[0],
                                  .num_top = piece->num_top,
                                  .top_ids = piece->top_ids,
                                  .top_logprobs = piece->top_logprobs};
}

struct token_logprob token_logprob_of_prompt(const struct answer_piece *piece, int32_t i)
{
    const struct prompt_logprobs *p = piece->prompt_logprobs;
    return (struct token_logprob){.token = piece->prompt_ids[i],
                                  .rank = p->ranks[i],
                                  .logprob = p->logprobs[i],
                                  .num_top = p->num_top,
                                  .top_ids = p->top_ids + (int64_t)i * p->num_top,
                                  .top_logprobs = p->top_logprobs + (int64_t)i * p->num_top};
}

/* 9 digits tell every float32 apart. A real number has a point or an exponent. */
static bool append_logprob(struct text *out, float logprob)
{
    char number[32];
    const int length = snprintf(number, sizeof number, "%.9g", logprob_value(logprob));
    return text_append(out, number, (size_t)length) && (strpbrk(number, ".e") || text_append(out, ".0", 2));
}

/* ---- a token ---- */

static const char *token_bytes(struct token_names names, int32_t token, size_t *length)
{
    *length = 0;
    if (!names.tokenizer || token >= tokenizer_size(names.tokenizer)) return "";
    return tokenizer_token_bytes(names.tokenizer, token, true, length);
}

/* Characters that begin in bytes[length]. */
static int64_t count_characters(const char *bytes, size_t length)
{
    int64_t count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)bytes[i] & 0xC0) != 0x80;
    return count;
}

/* Appends the name as a JSON string. A token may be a part of a character, which is shown as U+FFFD. */
static bool append_name(struct text *out, struct token_names names, int32_t token)
{
    size_t length;
    const char *bytes = token_bytes(names, token, &length);
    struct text valid = {0};
    bool ok = text_append(out, "\"", 1);
    if (!names.tokenizer || names.by_id)
        ok = ok && text_append_string(out, "token_id:") && api_write_integer(out, token);
    else if (utf8_valid_prefix(bytes, length) == length)
        ok = ok && json_append_escaped(out, bytes, length);
    else if ((ok = ok && utf8_append_valid(&valid, bytes, length)))
        ok = json_append_escaped(out, valid.data, valid.length);
    text_free(&valid);
    return ok && text_append(out, "\"", 1);
}

/* ---- chat ---- */

static bool append_bytes(struct text *out, struct token_names names, int32_t token)
{
    size_t length;
    const char *bytes = token_bytes(names, token, &length);
    if (!names.tokenizer || token >= tokenizer_size(names.tokenizer)) return text_append(out, "null", 4);
    bool ok = text_append(out, "[", 1);
    for (size_t i = 0; ok && i < length; i++)
        ok = (i == 0 || text_append(out, ",", 1)) && api_write_integer(out, (unsigned char)bytes[i]);
    return ok && text_append(out, "]", 1);
}

/* {"token", "logprob", "bytes" without the closing brace */
static bool append_chat_token(struct text *out, struct token_names names, int32_t token, float logprob)
{
    return text_append_string(out, "{\"token\":") && append_name(out, names, token) &&
           text_append_string(out, ",\"logprob\":") && append_logprob(out, logprob) &&
           text_append_string(out, ",\"bytes\":") && append_bytes(out, names, token);
}

bool chat_logprob_append(struct text *list, struct token_names names, const struct token_logprob *t)
{
    bool ok = (list->length == 0 || text_append(list, ",", 1)) &&
              append_chat_token(list, names, t->token, t->logprob) && text_append_string(list, ",\"top_logprobs\":[");
    for (int32_t i = 0; ok && i < t->num_top; i++)
        ok = (i == 0 || text_append(list, ",", 1)) &&
             append_chat_token(list, names, t->top_ids[i], t->top_logprobs[i]) && text_append(list, "}", 1);
    return ok && text_append(list, "]}", 2);
}

/* ---- completions ---- */

/* A comma before the next value of each list. */
static bool begin_entry(struct completion_logprobs *l)
{
    return l->tokens.length == 0 || (text_append(&l->tokens, ",", 1) && text_append(&l->token_logprobs, ",", 1) &&
                                     text_append(&l->top_logprobs, ",", 1) && text_append(&l->text_offset, ",", 1));
}

static bool append_token(struct completion_logprobs *l, struct token_names names, int32_t token)
{
    size_t length;
    const char *bytes = token_bytes(names, token, &length);
    const bool ok = begin_entry(l) && api_write_integer(&l->text_offset, l->offset > 0 ? l->offset : 0) &&
                    append_name(&l->tokens, names, token);
    l->offset += count_characters(bytes, length);
    return ok;
}

void completion_logprobs_start(struct completion_logprobs *l, struct token_names names, const int32_t *ids,
                               int32_t count, const char *text)
{
    l->offset = count_characters(text, strlen(text));
    for (int32_t i = 0; i < count; i++) {
        size_t length;
        const char *bytes = token_bytes(names, ids[i], &length);
        l->offset -= count_characters(bytes, length);
    }
}

bool completion_logprob_append(struct completion_logprobs *l, struct token_names names, const struct token_logprob *t)
{
    bool ok = append_token(l, names, t->token) && append_logprob(&l->token_logprobs, t->logprob);
    if (t->num_top == 0) return ok && text_append(&l->top_logprobs, "null", 4);
    for (int32_t i = 0; ok && i < t->num_top; i++)
        ok = text_append(&l->top_logprobs, i == 0 ? "{" : ",", 1) &&
             append_name(&l->top_logprobs, names, t->top_ids[i]) && text_append(&l->top_logprobs, ":", 1) &&
             append_logprob(&l->top_logprobs, t->top_logprobs[i]);
    return ok && text_append(&l->top_logprobs, "}", 1);
}

bool completion_logprob_append_first(struct completion_logprobs *l, struct token_names names, int32_t token)
{
    return append_token(l, names, token) && text_append(&l->token_logprobs, "null", 4) &&
           text_append(&l->top_logprobs, "null", 4);
}

static bool write_list(struct text *out, const char *before, struct text *list)
{
    const bool ok = text_append_string(out, before) && text_append(out, list->data ? list->data : "", list->length);
    text_clear(list);
    return ok;
}

bool completion_logprobs_write(struct completion_logprobs *l, struct text *out)
{
    return write_list(out, "{\"tokens\":[", &l->tokens) &&
           write_list(out, "],\"token_logprobs\":[", &l->token_logprobs) &&
           write_list(out, "],\"top_logprobs\":[", &l->top_logprobs) &&
           write_list(out, "],\"text_offset\":[", &l->text_offset) && text_append(out, "]}", 2);
}

void completion_logprobs_free(struct completion_logprobs *l)
{
    text_free(&l->tokens);
    text_free(&l->token_logprobs);
    text_free(&l->top_logprobs);
    text_free(&l->text_offset);
}

/* ---- prompts ---- */

static bool append_prompt_token(struct text *out, struct token_names names, int32_t token, float logprob, int32_t rank)
{
    return text_append(out, "\"", 1) && api_write_integer(out, token) && text_append_string(out, "\":{\"logprob\":") &&
           append_logprob(out, logprob) && text_append_string(out, ",\"rank\":") && api_write_integer(out, rank) &&
           text_append_string(out, ",\"decoded_token\":") && append_name(out, names, token) && text_append(out, "}", 1);
}

/* The token itself is first, and is left out among the most probable ones. */
static bool append_prompt_entry(struct text *out, struct token_names names, const struct token_logprob *t)
{
    bool ok = text_append(out, ",{", 2) && append_prompt_token(out, names, t->token, t->logprob, t->rank);
    for (int32_t i = 0; ok && i < t->num_top; i++) {
        if (t->top_ids[i] == t->token) continue;
        ok = text_append(out, ",", 1) && append_prompt_token(out, names, t->top_ids[i], t->top_logprobs[i], i + 1);
    }
    return ok && text_append(out, "}", 1);
}

bool prompt_logprobs_write(struct text *out, struct token_names names, const struct answer_piece *piece)
{
    bool ok = text_append_string(out, "[null");
    for (int32_t i = 1; ok && i < piece->prompt_logprobs->num_tokens; i++) {
        const struct token_logprob t = token_logprob_of_prompt(piece, i);
        ok = append_prompt_entry(out, names, &t);
    }
    return ok && text_append(out, "]", 1);
}
