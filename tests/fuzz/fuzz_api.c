/* Requests of an API and their responses. An input is a body, a newline, and the text of the answer. The body is read
 * in both forms; what is accepted is answered as one object and as a stream, whose texts, joined, are those of the
 * object. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"
#include "scheduler/sequence.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/api_call.h"

enum { MAX_CHOICES = 16, MAX_PROMPT_TOKENS = 2000 };

static const char template[] = "{% for m in messages %}<|im_start|>{{ m.role }}{{ m.content }}<|im_end|>{% endfor %}"
                               "{% if add_generation_prompt %}<|im_start|>assistant{{ think }}{% endif %}";

static struct api_rules *make_rules(void)
{
    static const char *const names[] = {"model", NULL};
    static struct prompt_rules prompts;
    static struct api_rules rules = {.prompts = &prompts, .model_names = names};
    struct error err = {""};
    if (prompts.tokenizer) return &rules;
    prompts = (struct prompt_rules){.tokenizer = fuzz_shared_tokenizer(), .max_n = 8};
    prompts.tools = tool_format_find("hermes");
    prompts.reasoning = reasoning_format_find("deepseek_r1");
    prompts.parses_tools = prompts.parses_reasoning = true;
    prompts.defaults = sampling_params_default();
    prompts.vocab_size = prompts.num_ids = tokenizer_size(prompts.tokenizer);
    if (chat_template_open(prompts.tokenizer, template, &prompts.chat.template, &err)) fuzz_require(false, err.text);
    return &rules;
}

struct listener {
    struct api_response *response;
    int32_t prompt;
    struct text out;
};

static void take(void *user, const struct answer_piece *piece)
{
    struct listener *l = user;
    fuzz_require(api_response_take(l->response, l->prompt, piece, &l->out), "there was no memory");
}

static json_t *parse(const char *text, size_t length)
{
    struct error err = {""};
    json_t *object;
    if (json_object_parse(text, length, 0, NULL, &object, &err) != STATUS_OK) fuzz_require(false, err.text);
    return object;
}

/* Appends the texts of choice 0, each before its name. */
static void keep_texts(const json_t *holder, struct text texts[3])
{
    static const char *const names[] = {"content", "reasoning", "text"};
    for (int i = 0; i < 3; i++) {
        const json_t *text = json_object_get(holder, names[i]);
        if (text) text_append(&texts[i], json_string_value(text), json_string_length(text));
    }
}

static void keep_choice(const json_t *object, struct text texts[3])
{
    const json_t *choice = json_array_get(json_object_get(object, "choices"), 0);
    if (json_integer_value(json_object_get(choice, "index")) != 0) return;
    keep_texts(choice, texts);
    keep_texts(json_object_get(choice, "message"), texts);
    keep_texts(json_object_get(choice, "delta"), texts);
}

/* Every event is an object but for the last. */
static void keep_events(const struct text *out, struct text texts[3])
{
    const char *at = out->data;
    while (at && strcmp(at, "data: [DONE]\n\n") != 0) {
        const char *end = strstr(at, "\n\n");
        fuzz_require(end && strncmp(at, "data: ", 6) == 0, "no event");
        json_t *event = parse(at + 6, (size_t)(end - at) - 6);
        keep_choice(event, texts);
        json_decref(event);
        at = end + 2;
    }
    fuzz_require(at != NULL, "a stream without an end");
}

static void answer(const struct api_rules *rules, struct api_request *request, bool stream, const char *text,
                   struct text texts[3])
{
    struct listener l = {0};
    struct error err = {""};
    for (int32_t p = 0; p < request->num_prompts; p++) request->prompts[p].openai.stream = stream;
    if (api_response_create(rules, request, "id", &l.response, &err) != STATUS_OK) fuzz_require(false, err.text);
    for (; l.prompt < request->num_prompts; l.prompt++)
        for (int32_t i = 0; i < request->n; i++)
            api_say(rules->prompts->tokenizer, &request->prompts[l.prompt], i, text, FINISH_STOP, take, &l);
    fuzz_require(api_response_is_whole(l.response), "a response without an end");
    if (stream) {
        keep_events(&l.out, texts);
    } else {
        json_t *object = parse(l.out.data, l.out.length);
        keep_choice(object, texts);
        json_decref(object);
    }
    api_response_free(l.response);
    text_free(&l.out);
}

static bool is_small(const struct api_request *request)
{
    bool small = (int64_t)request->num_prompts * request->n <= MAX_CHOICES;
    for (int32_t p = 0; p < request->num_prompts; p++)
        small = small && request->prompts[p].tokens.count <= MAX_PROMPT_TOKENS;
    return small;
}

static void check_texts(struct text one[3], struct text several[3])
{
    for (int i = 0; i < 3; i++) {
        fuzz_require(one[i].length == several[i].length &&
                         (one[i].length == 0 || memcmp(one[i].data, several[i].data, one[i].length) == 0),
                     "a stream has another text than the object");
        text_free(&one[i]);
        text_free(&several[i]);
    }
}

static void try_form(const struct api_rules *rules, enum api_form form, struct fuzz_part body, const char *text)
{
    struct api_request request;
    struct api_refusal refusal = {0};
    struct text one[3] = {{0}}, several[3] = {{0}}, out = {0};
    if (api_request_read(rules, form, body.bytes, body.length, &request, &refusal)) {
        if (is_small(&request)) {
            answer(rules, &request, false, text, one);
            answer(rules, &request, true, text, several);
            check_texts(one, several);
        }
    } else {
        fuzz_require_sentence(&refusal.error);
        fuzz_require(api_refusal_write(form, &refusal, &out), "there was no memory");
        json_decref(parse(out.data, out.length));
        text_free(&out);
    }
    api_request_free(&request);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_part rest = {(const char *)data, size};
    const struct fuzz_part body = fuzz_split(&rest, '\n');
    struct text text = {0};
    /* Some text comes before the first NUL, which ends it. */
    fuzz_require(text_append(&text, ".", 1) && utf8_append_valid(&text, rest.bytes, rest.length), "no memory");
    const struct api_rules *rules = make_rules();
    try_form(rules, API_CHAT, body, text.data);
    try_form(rules, API_COMPLETION, body, text.data);
    text_free(&text);
    return 0;
}
