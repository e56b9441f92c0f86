#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/api_call.h"
#include "tests/support/json_path.h"
#include "tests/support/must.h"
#include "tokenizer/detokenizer.h"

static const char TEMPLATE[] =
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% if think %}<think>\n{% endif %}{% endif %}";

void api_world_open(struct api_world *w)
{
    static const char *const names[] = {"guide", "other", NULL};
    struct error err = {""};
    struct chat_setup_options template = {.file = "template.jinja"};
    *w = (struct api_world){0};
    must(tokenizer_open(QUIRE_GUIDE, &w->tokenizer, &err), &err);
    assert_true(text_append_string(&template.source, TEMPLATE));
    w->prompts = (struct prompt_rules){.tokenizer = w->tokenizer,
                                       .tools = tool_format_find("hermes"),
                                       .reasoning = reasoning_format_find("deepseek_r1"),
                                       .parses_tools = true,
                                       .parses_reasoning = true,
                                       .defaults = sampling_params_default(),
                                       .vocab_size = tokenizer_size(w->tokenizer),
                                       .num_ids = tokenizer_size(w->tokenizer),
                                       .max_n = 8};
    must(chat_setup_open(w->tokenizer, &template, &w->prompts.chat, &err), &err);
    text_free(&template.source);
    w->rules = (struct api_rules){.prompts = &w->prompts, .model_names = names};
}

void api_world_close(struct api_world *w)
{
    prompt_rules_free(&w->prompts);
    tokenizer_close(w->tokenizer);
}

struct api_world world;

int api_world_set_up(void **state)
{
    (void)state;
    api_world_open(&world);
    return 0;
}

int api_world_tear_down(void **state)
{
    (void)state;
    api_world_close(&world);
    return 0;
}

void api_call_begin(struct api_call *c, struct api_world *w, enum api_form form, const char *body)
{
    struct api_refusal refusal;
    struct error err = {""};
    *c = (struct api_call){.world = w};
    if (!api_request_read(&w->rules, form, body, strlen(body), &c->request, &refusal))
        fail_msg("%s: %s", body, refusal.error.text);
    must(api_response_create(&w->rules, &c->request, "id", &c->response, &err), &err);
}

void api_call_end(struct api_call *c)
{
    api_response_free(c->response);
    api_request_free(&c->request);
    text_free(&c->out);
}

/* ---- answers ---- */

enum { MAX_TOP = 20, MAX_PROMPT = 4096 };
static int32_t top_ids[MAX_PROMPT * MAX_TOP];
static float top_logprobs[MAX_PROMPT * MAX_TOP], prompt_values[MAX_PROMPT];
static int32_t prompt_ranks[MAX_PROMPT];

/* Rows of `wanted` tokens. */
static void fill_top(int32_t rows, int32_t wanted)
{
    for (int32_t i = 0; i < rows; i++) {
        prompt_values[i] = -(float)i / 8;
        prompt_ranks[i] = i + 1;
        for (int32_t k = 0; k < wanted; k++) {
            top_ids[i * wanted + k] = 5 + k;
            top_logprobs[i * wanted + k] = -(float)(k + 1);
        }
    }
}

/* Adds what the prompt asks for beside text, and delivers the piece. */
static void say_token(const struct prompt *p, struct answer_piece *piece, answer_function *deliver, void *user)
{
    const int32_t length = (int32_t)p->tokens.count, rank = 1;
    const float logprob = -(float)(piece->output_tokens - 1) / 8;
    const struct prompt_logprobs of_prompt = {.num_tokens = length,
                                              .num_top = p->params.prompt_logprobs,
                                              .logprobs = prompt_values,
                                              .ranks = prompt_ranks,
                                              .top_ids = top_ids,
                                              .top_logprobs = top_logprobs};
    assert_true(length <= MAX_PROMPT);
    piece->prompt_tokens = length;
    if (p->params.prompt_logprobs >= 0 && piece->index == 0 && piece->output_tokens == 1) {
        fill_top(length, p->params.prompt_logprobs);
        piece->prompt_logprobs = &of_prompt;
        piece->prompt_ids = p->tokens.ids;
    }
    if (p->params.logprobs >= 0) {
        if (!piece->prompt_logprobs) fill_top(1, p->params.logprobs);
        piece->logprob = &logprob;
        piece->rank = &rank;
        piece->num_top = p->params.logprobs;
        piece->top_ids = top_ids;
        piece->top_logprobs = top_logprobs;
    }
    deliver(user, piece);
}

void api_say(const struct tokenizer *t, const struct prompt *p, int32_t index, const char *text, enum finish_reason end,
             answer_function *deliver, void *user)
{
    struct token_list ids = {0};
    struct error err = {"the answer failed"};
    struct detokenizer d;
    const bool continues = text[0] == ' '; /* encoding puts this space before a text itself */
    char *buffer = malloc(2 * detokenizer_max_bytes(tokenizer_tokens(t)));
    text += continues;
    detokenizer_init(&d, tokenizer_tokens(t), !continues, true);
    must(tokenizer_encode(t, text, strlen(text), TOKENIZER_PARSE_SPECIAL, &ids, &err), &err);
    for (size_t i = 0; i < ids.count; i++) {
        struct answer_piece piece = {.index = index,
                                     .token_ids = &ids.ids[i],
                                     .num_tokens = 1,
                                     .output_tokens = (int32_t)i + 1,
                                     .stop_token = -1};
        piece.text = buffer;
        piece.text_length = detokenizer_add(&d, ids.ids[i], buffer);
        if (i + 1 == ids.count) {
            piece.text_length += detokenizer_finish(&d, buffer + piece.text_length);
            piece.finish_reason = end;
            piece.request_finished = index == p->params.n - 1;
        }
        if (piece.finish_reason == FINISH_ERROR) piece.error = &err;
        say_token(p, &piece, deliver, user);
    }
    free(buffer);
    token_list_free(&ids);
}

struct listener {
    struct api_call *call;
    int32_t prompt;
};

static void take(void *user, const struct answer_piece *piece)
{
    const struct listener *l = user;
    assert_true(api_response_take(l->call->response, l->prompt, piece, &l->call->out));
}

void api_call_say(struct api_call *c, int32_t prompt, int32_t index, const char *text, enum finish_reason end)
{
    struct listener l = {c, prompt};
    api_say(c->world->tokenizer, &c->request.prompts[prompt], index, text, end, take, &l);
}

/* ---- what was sent ---- */

json_t *api_call_object(const struct api_call *c)
{
    struct error err;
    json_t *object;
    assert_true(api_response_is_whole(c->response));
    must(json_object_parse(c->out.data, c->out.length, JSON_REJECT_DUPLICATES, NULL, &object, &err), &err);
    return object;
}

json_t *api_call_events(const struct api_call *c)
{
    static const char data[] = "data: ", done[] = "[DONE]";
    const bool is_openai = c->request.form == API_CHAT || c->request.form == API_COMPLETION;
    struct error err;
    json_t *list = json_array(), *event;
    const char *at = c->out.data, *end = NULL;
    assert_true(api_response_is_stream(c->response));
    for (; at && *at; at = end + 2) {
        const char *name = at;
        if (!is_openai) assert_non_null(at = strchr(at, '\n'));
        if (!is_openai) at++;
        if (strncmp(at, data, strlen(data)) != 0) fail_msg("no event: %s", at);
        at += strlen(data);
        assert_non_null(end = strstr(at, "\n\n"));
        if (strncmp(at, done, strlen(done)) == 0) break;
        must(json_object_parse(at, (size_t)(end - at), JSON_REJECT_DUPLICATES, NULL, &event, &err), &err);
        json_array_append_new(list, event);
        if (is_openai) continue;
        const char *type = json_string_value(json_object_get(event, "type"));
        assert_int_equal(strncmp(name, "event: ", 7), 0);
        assert_int_equal(strncmp(name + 7, type, strlen(type)), 0);
        assert_int_equal(name[7 + strlen(type)], '\n');
    }
    assert_non_null(end);
    if (is_openai) assert_string_equal(at, "[DONE]\n\n");
    return list;
}

void api_call_answer(struct api_call *c, struct api_world *w, enum api_form form, const char *body, const char *text,
                     enum finish_reason end)
{
    api_call_begin(c, w, form, body);
    for (int32_t p = 0; p < c->request.num_prompts; p++)
        for (int32_t i = 0; i < c->request.n; i++) api_call_say(c, p, i, text, end);
}

json_t *api_object(struct api_world *w, enum api_form form, const char *body, const char *text, enum finish_reason end)
{
    struct api_call c;
    api_call_answer(&c, w, form, body, text, end);
    json_t *object = api_call_object(&c);
    assert_int_equal(api_response_status(c.response), 200);
    assert_false(api_response_is_stream(c.response));
    api_call_end(&c);
    return object;
}

json_t *api_events(struct api_world *w, enum api_form form, const char *body, const char *text, enum finish_reason end)
{
    struct api_call c;
    api_call_answer(&c, w, form, body, text, end);
    json_t *events = api_call_events(&c);
    api_call_end(&c);
    return events;
}

/* NULL: the body is refused, and *err says why. */
static json_t *translated(api_translation *translate, const char *body, struct error *err)
{
    json_t *object, *chat = NULL;
    must(json_object_parse(body, strlen(body), 0, "the test", &object, err), err);
    struct json_reader r = json_reader(object, NULL, err);
    translate(&r, &chat);
    json_decref(object);
    return chat;
}

void expect_translation(api_translation *translate, const char *body, const char *expected)
{
    struct error err = {""};
    json_t *chat = translated(translate, body, &err);
    if (!chat) fail_msg("%s is refused: %s", body, err.text);
    expect_json(chat, "", expected);
    json_decref(chat);
}

void expect_untranslatable(api_translation *translate, const char *body, const char *sentence)
{
    struct error err = {""};
    json_t *chat = translated(translate, body, &err);
    if (chat) fail_msg("%s is taken", body);
    assert_string_equal(err.text, sentence);
}
