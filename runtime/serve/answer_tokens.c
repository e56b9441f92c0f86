/* /tokenize and /detokenize, as vLLM has them: a text or a conversation becomes token ids, and ids become a text. */
#include "base/json.h"
#include "runtime/prompts/result.h"
#include "runtime/serve/server.h"

/* Reads the body as an object, or refuses. NULL: it was refused; else the caller owns it. */
static json_t *read_object(struct visit *v)
{
    struct error err;
    json_t *object;
    size_t length;
    const char *body = http_body(v->exchange, &length);
    if (json_object_parse(body, length, 0, NULL, &object, &err) == STATUS_OK) return object;
    visit_refuse(v, 400, "%s", err.text);
    return NULL;
}

static bool refuse_unless(struct visit *v, enum status status, const struct error *err)
{
    if (status == STATUS_OK) return true;
    struct api_refusal refusal;
    api_refuse(&v->server->rules, status, err, &refusal);
    visit_refuse_with(v, &refusal);
    return false;
}

static void read_text(struct json_reader *r, const struct prompt_rules *rules, struct token_list *out)
{
    const json_t *prompt = json_reader_get(r, "prompt");
    const unsigned flags = json_reader_bool(r, "add_special_tokens", true) ? TOKENIZER_ADD_SPECIAL : 0;
    if (!json_is_string(prompt)) json_reader_expected(r, "prompt", "a string", prompt);
    if (r->status != STATUS_OK) return;
    const char *text = json_string_value(prompt);
    const size_t length = json_string_length(prompt);
    r->status = json_check_characters("prompt", text, length, r->err);
    if (r->status == STATUS_OK) r->status = tokenizer_encode(rules->tokenizer, text, length, flags, out, r->err);
}

static void read_messages(struct json_reader *r, const struct prompt_rules *rules, struct token_list *out)
{
    struct chat_input input = chat_setup_input(r->object);
    input.add_generation_prompt = json_reader_bool(r, "add_generation_prompt", true);
    if (json_reader_bool(r, "continue_final_message", false))
        json_reader_fail(r, STATUS_UNSUPPORTED, "continue_final_message is not taken here");
    if (r->status == STATUS_OK) r->status = chat_setup_encode(&rules->chat, rules->tokenizer, input, out, r->err);
}

static json_t *token_texts(const struct tokenizer *t, const struct token_list *tokens)
{
    json_t *list = json_array();
    for (size_t i = 0; i < tokens->count && list; i++) {
        size_t length;
        const char *bytes = tokenizer_token_bytes(t, tokens->ids[i], true, &length);
        json_array_append_new(list, result_json_text(bytes, length));
    }
    return list;
}

static json_t *ids_json(const struct token_list *tokens)
{
    json_t *list = json_array();
    for (size_t i = 0; i < tokens->count && list; i++) json_array_append_new(list, json_integer(tokens->ids[i]));
    return list;
}

void answer_tokenize(struct visit *v)
{
    const struct server *s = v->server;
    struct error err = {""};
    struct token_list tokens = {0};
    json_t *object = read_object(v);
    if (!object) return;
    struct json_reader r = json_reader(object, NULL, &err);
    const bool texts = json_reader_bool(&r, "return_token_strs", false);
    if (r.status == STATUS_OK && json_reader_get(&r, "messages"))
        read_messages(&r, &s->prompts, &tokens);
    else if (r.status == STATUS_OK)
        read_text(&r, &s->prompts, &tokens);
    if (refuse_unless(v, r.status, &err))
        visit_reply_json(v,
                         json_pack("{s:I, s:i, s:o, s:o}", "count", (json_int_t)tokens.count, "max_model_len",
                                   (int)service_engine(s->service)->limits->max_model_len, "tokens", ids_json(&tokens),
                                   "token_strs", texts ? token_texts(s->prompts.tokenizer, &tokens) : json_null()));
    token_list_free(&tokens);
    json_decref(object);
}

static void read_ids(struct json_reader *r, const struct tokenizer *t, struct token_list *out)
{
    const json_t *list = json_reader_get(r, "tokens");
    if (!json_is_array(list)) json_reader_expected(r, "tokens", "a list of token ids", list);
    for (size_t i = 0; i < json_array_size(list) && r->status == STATUS_OK; i++) {
        const int32_t id =
            (int32_t)json_reader_to_int64(r, "a token id in tokens", json_array_get(list, i), 0, tokenizer_size(t) - 1);
        if (!token_list_append(out, &id, 1)) json_reader_fail(r, STATUS_OUT_OF_MEMORY, "no memory for the token ids");
    }
}

/* Special tokens are shown, so that what /tokenize gave for a text becomes that text. */
void answer_detokenize(struct visit *v)
{
    const struct tokenizer *t = v->server->prompts.tokenizer;
    struct error err = {""};
    struct token_list tokens = {0};
    struct text text = {0};
    json_t *object = read_object(v);
    if (!object) return;
    struct json_reader r = json_reader(object, NULL, &err);
    read_ids(&r, t, &tokens);
    if (r.status == STATUS_OK) r.status = tokenizer_decode(t, tokens.ids, tokens.count, true, &text, &err);
    if (refuse_unless(v, r.status, &err))
        visit_reply_json(v, json_pack("{s:o}", "prompt", result_json_text(text.length ? text.data : "", text.length)));
    text_free(&text);
    token_list_free(&tokens);
    json_decref(object);
}
