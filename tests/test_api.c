/* Requests and responses of APIs (runtime/prompts/api.h): what bodies mean, what is refused, and what is sent.
 *
 *     build/release/test_api            the tests
 *     build/release/test_api --print    a response of each kind, one a line: its kind, a tab, and the JSON
 *                                       (scripts/check_openai_shapes.py reads them)
 *     build/release/test_api --time     what a chunk of a stream takes, in nanoseconds */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/json.h"
#include "tests/support/api_call.h"
#include "tests/support/must.h"

#define MESSAGES "\"messages\": [{\"role\": \"user\", \"content\": \"What is the weather?\"}]"
#define TOOLS                                                                                                          \
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": {\"type\": "           \
    "\"object\", "                                                                                                     \
    "\"properties\": {\"city\": {\"type\": \"string\"}}}}}]"
#define CALL "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Aachen\"}}\n</tool_call>"

static struct api_world world;

static int set_up(void **state)
{
    (void)state;
    api_world_open(&world);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    api_world_close(&world);
    return 0;
}

/* ---- looking at JSON ---- */

static const json_t *at(const json_t *object, const char *path)
{
    char key[64];
    for (; *path && object; path += strcspn(path, "/"), path += *path == '/') {
        snprintf(key, sizeof key, "%.*s", (int)strcspn(path, "/"), path);
        object = json_is_array(object) ? json_array_get(object, (size_t)atoi(key)) : json_object_get(object, key);
    }
    return object;
}

static void expect_text(const json_t *object, const char *path, const char *expected)
{
    const char *text = json_string_value(at(object, path));
    if (!text || strcmp(text, expected) != 0) fail_msg("%s: not '%s' in %s", path, expected, json_dumps(object, 0));
}

/* Any value, as JSON. */
static void expect_json(const json_t *object, const char *path, const char *expected)
{
    json_error_t why;
    json_t *wanted = json_loads(expected, JSON_DECODE_ANY, &why);
    if (!wanted) fail_msg("%s: %s", expected, why.text);
    if (!json_equal(at(object, path), wanted)) fail_msg("%s: not %s in %s", path, expected, json_dumps(object, 0));
    json_decref(wanted);
}

static void expect_absent(const json_t *object, const char *path)
{
    if (at(object, path)) fail_msg("%s is in %s", path, json_dumps(object, 0));
}

/* The response to a body in which every answer is `text`, and ends for this reason. */
static void call(struct api_call *c, enum api_form form, const char *body, const char *text, enum finish_reason end)
{
    api_call_begin(c, &world, form, body);
    for (int32_t p = 0; p < c->request.num_prompts; p++)
        for (int32_t i = 0; i < c->request.n; i++) api_call_say(c, p, i, text, end);
}

static json_t *object_of(enum api_form form, const char *body, const char *text, enum finish_reason end)
{
    struct api_call c;
    call(&c, form, body, text, end);
    json_t *object = api_call_object(&c);
    assert_int_equal(api_response_status(c.response), 200);
    assert_false(api_response_is_stream(c.response));
    api_call_end(&c);
    return object;
}

static json_t *events_of(enum api_form form, const char *body, const char *text, enum finish_reason end)
{
    struct api_call c;
    call(&c, form, body, text, end);
    json_t *events = api_call_events(&c);
    api_call_end(&c);
    return events;
}

/* ---- one object ---- */

static void test_chat(void **state)
{
    (void)state;
    json_t *o = object_of(API_CHAT, "{\"model\": \"other\", " MESSAGES ", \"metadata\": {\"k\": \"v\"}}",
                          "It \"rains\"\n\\o/ \x01.", FINISH_STOP);
    expect_text(o, "id", "chatcmpl-id");
    expect_text(o, "object", "chat.completion");
    expect_text(o, "model", "guide");
    assert_true(json_integer_value(at(o, "created")) > 1700000000);
    expect_json(o, "choices/0/index", "0");
    expect_json(o, "choices/0/message",
                "{\"role\": \"assistant\", \"content\": \"It \\\"rains\\\"\\n\\\\o/ \\u0001.\", \"refusal\": null}");
    expect_json(o, "choices/0/logprobs", "null");
    expect_json(o, "choices/0/finish_reason", "\"stop\"");
    expect_json(o, "choices/0/stop_reason", "null");
    expect_json(o, "metadata", "{\"k\": \"v\"}");
    expect_absent(o, "prompt_token_ids");
    expect_absent(o, "choices/0/token_ids");
    json_decref(o);
    o = object_of(API_CHAT, "{" MESSAGES ", \"n\": 3, \"max_tokens\": 2}", "It rains", FINISH_LENGTH);
    assert_int_equal(json_array_size(at(o, "choices")), 3);
    expect_json(o, "choices/2/index", "2");
    expect_text(o, "choices/2/finish_reason", "length");
    json_decref(o);
}

static void test_usage(void **state)
{
    (void)state;
    struct api_call c;
    call(&c, API_COMPLETION, "{\"prompt\": [[5, 6, 7], [8]], \"n\": 2}", "It rains", FINISH_STOP);
    const struct api_usage u = api_response_usage(c.response);
    json_t *o = api_call_object(&c);
    assert_int_equal(u.prompt_tokens, 4);
    assert_true(u.completion_tokens >= 8 && u.completion_tokens % 4 == 0);
    assert_int_equal(json_integer_value(at(o, "usage/prompt_tokens")), 4);
    assert_int_equal(json_integer_value(at(o, "usage/completion_tokens")), u.completion_tokens);
    assert_int_equal(json_integer_value(at(o, "usage/total_tokens")), 4 + u.completion_tokens);
    expect_json(o, "usage/prompt_tokens_details/cached_tokens", "0");
    json_decref(o);
    api_call_end(&c);
}

static void test_parts(void **state)
{
    (void)state;
    json_t *o = object_of(API_CHAT, "{" MESSAGES ", " TOOLS "}", "<think>Look it up.</think>" CALL, FINISH_STOP);
    const json_t *message = at(o, "choices/0/message");
    expect_text(message, "reasoning", "Look it up.");
    expect_text(message, "reasoning_content", "Look it up.");
    expect_json(message, "content", "null");
    assert_int_equal(json_array_size(at(message, "tool_calls")), 1);
    expect_text(message, "tool_calls/0/type", "function");
    expect_text(message, "tool_calls/0/function/name", "weather");
    expect_text(message, "tool_calls/0/function/arguments", "{\"city\": \"Aachen\"}");
    assert_int_equal(strlen(json_string_value(at(message, "tool_calls/0/id"))), 9);
    expect_text(o, "choices/0/finish_reason", "tool_calls");
    assert_true(json_integer_value(at(o, "usage/completion_tokens_details/reasoning_tokens")) >= 3);
    json_decref(o);
    o = object_of(API_CHAT, "{" MESSAGES ", " TOOLS ", \"include_reasoning\": false}", "<think>Hm.</think>Rain.",
                  FINISH_STOP);
    expect_json(o, "choices/0/message", "{\"role\": \"assistant\", \"content\": \"Rain.\", \"refusal\": null}");
    json_decref(o);
    /* Without tools, and with tool_choice "none", a call is text. */
    o = object_of(API_CHAT, "{" MESSAGES "}", CALL, FINISH_STOP);
    expect_text(o, "choices/0/message/content", CALL);
    expect_text(o, "choices/0/finish_reason", "stop");
    json_decref(o);
    o = object_of(API_CHAT, "{" MESSAGES ", " TOOLS ", \"tool_choice\": \"none\"}", CALL, FINISH_STOP);
    expect_text(o, "choices/0/message/content", CALL);
    json_decref(o);
}

/* parallel_tool_calls false: the first call only. Ids differ, also between requests. */
static void test_several_calls(void **state)
{
    (void)state;
    json_t *one =
        object_of(API_CHAT, "{" MESSAGES ", " TOOLS ", \"parallel_tool_calls\": false}", CALL "\n" CALL, FINISH_STOP);
    json_t *two = object_of(API_CHAT, "{" MESSAGES ", " TOOLS ", \"n\": 2}", CALL "\n" CALL, FINISH_STOP);
    json_t *other = object_of(API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], " TOOLS "}", CALL,
                              FINISH_STOP);
    assert_int_equal(json_array_size(at(one, "choices/0/message/tool_calls")), 1);
    assert_int_equal(json_array_size(at(two, "choices/0/message/tool_calls")), 2);
    const char *const ids[] = {json_string_value(at(two, "choices/0/message/tool_calls/0/id")),
                               json_string_value(at(two, "choices/0/message/tool_calls/1/id")),
                               json_string_value(at(two, "choices/1/message/tool_calls/0/id")),
                               json_string_value(at(other, "choices/0/message/tool_calls/0/id"))};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) assert_string_not_equal(ids[i], ids[k]);
    json_decref(one);
    json_decref(two);
    json_decref(other);
}

static void test_chat_logprobs(void **state)
{
    (void)state;
    json_t *o = object_of(API_CHAT, "{" MESSAGES ", \"logprobs\": true, \"top_logprobs\": 2}", "It rains", FINISH_STOP);
    const json_t *list = at(o, "choices/0/logprobs/content"), *token;
    struct text joined = {0};
    size_t i, k;
    expect_json(o, "choices/0/logprobs/refusal", "null");
    json_array_foreach((json_t *)list, i, token)
    {
        const json_t *bytes = json_object_get(token, "bytes"), *byte;
        assert_float_equal(json_real_value(json_object_get(token, "logprob")), -(double)i / 8, 0);
        assert_int_equal(json_array_size(json_object_get(token, "top_logprobs")), 2);
        expect_json(token, "top_logprobs/1/logprob", "-2.0");
        json_array_foreach((json_t *)bytes, k, byte)
            assert_true(text_append(&joined, &(char){(char)json_integer_value(byte)}, 1));
    }
    assert_string_equal(joined.data + (joined.data[0] == ' '), "It rains");
    text_free(&joined);
    json_decref(o);
    o = object_of(API_CHAT, "{" MESSAGES ", \"logprobs\": true, \"return_tokens_as_token_ids\": true}", "It rains",
                  FINISH_STOP);
    assert_memory_equal(json_string_value(at(o, "choices/0/logprobs/content/0/token")), "token_id:", 9);
    expect_json(o, "choices/0/logprobs/content/0/top_logprobs", "[]");
    json_decref(o);
}

static void test_ids(void **state)
{
    (void)state;
    json_t *o = object_of(API_COMPLETION, "{\"prompt\": [[5, 6], [7]], \"return_token_ids\": true}", "It", FINISH_STOP);
    expect_json(o, "choices/0/prompt_token_ids", "[5, 6]");
    expect_json(o, "choices/1/prompt_token_ids", "[7]");
    assert_true(json_array_size(at(o, "choices/1/token_ids")) > 0);
    json_decref(o);
    o = object_of(API_CHAT, "{" MESSAGES ", \"return_token_ids\": true, \"prompt_logprobs\": 1}", "It", FINISH_STOP);
    const size_t length = json_array_size(at(o, "prompt_token_ids"));
    assert_true(length > 4 && json_array_size(at(o, "choices/0/token_ids")) > 0);
    assert_int_equal(json_array_size(at(o, "prompt_logprobs")), length);
    expect_json(o, "prompt_logprobs/0", "null");
    char id[32];
    snprintf(id, sizeof id, "prompt_logprobs/1/%d", (int)json_integer_value(at(o, "prompt_token_ids/1")));
    assert_float_equal(json_real_value(json_object_get(at(o, id), "logprob")), -1.0 / 8, 0);
    expect_json(at(o, id), "rank", "2");
    expect_json(o, "prompt_logprobs/1/5/rank", "1");
    json_decref(o);
}

/* ---- completions ---- */

/* Each token stands in the text at its offset; the space that encoding put before the text does not. */
static void check_offsets(const json_t *choice)
{
    const char *text = json_string_value(at(choice, "text"));
    const json_t *tokens = at(choice, "logprobs/tokens"), *token;
    size_t i;
    json_array_foreach((json_t *)tokens, i, token)
    {
        const json_int_t offset = json_integer_value(json_array_get(at(choice, "logprobs/text_offset"), i));
        const char *name = json_string_value(token);
        const bool has_space = i == 0 && name[0] == ' ' && text[0] != ' ';
        assert_memory_equal(text + offset, name + has_space, strlen(name) - has_space);
    }
}

static void test_completion(void **state)
{
    (void)state;
    json_t *o = object_of(API_COMPLETION, "{\"prompt\": \"Well\", \"logprobs\": 1}", " it rains", FINISH_LENGTH);
    expect_text(o, "id", "cmpl-id");
    expect_text(o, "object", "text_completion");
    expect_text(o, "choices/0/text", " it rains");
    expect_json(o, "choices/0/logprobs/text_offset/0", "0");
    expect_json(o, "choices/0/logprobs/token_logprobs/1", "-0.125");
    assert_int_equal(json_object_size(at(o, "choices/0/logprobs/top_logprobs/0")), 1);
    check_offsets(at(o, "choices/0"));
    json_decref(o);
}

static void test_several_prompts(void **state)
{
    (void)state;
    struct api_call c;
    api_call_begin(&c, &world, API_COMPLETION, "{\"prompt\": [\"a\", \"b\"], \"n\": 2}");
    assert_int_equal(c.request.num_prompts, 2);
    api_call_say(&c, 1, 1, "fourth", FINISH_STOP);
    api_call_say(&c, 0, 1, "second", FINISH_STOP);
    api_call_say(&c, 1, 0, "third", FINISH_STOP);
    assert_int_equal(c.out.length, 0);
    assert_false(api_response_is_whole(c.response));
    api_call_say(&c, 0, 0, "first", FINISH_STOP);
    json_t *o = api_call_object(&c);
    const char *const texts[] = {"first", "second", "third", "fourth"};
    for (int i = 0; i < 4; i++) {
        const json_t *choice = json_array_get(at(o, "choices"), (size_t)i);
        assert_int_equal(json_integer_value(at(choice, "index")), i);
        expect_text(choice, "text", texts[i]);
    }
    json_decref(o);
    api_call_end(&c);
}

static void test_echo(void **state)
{
    (void)state;
    json_t *o =
        object_of(API_COMPLETION, "{\"prompt\": \"It rains\", \"echo\": true, \"n\": 2}", " a lot", FINISH_STOP);
    expect_text(o, "choices/0/text", "It rains a lot");
    expect_text(o, "choices/1/text", "It rains a lot");
    json_decref(o);
    o = object_of(API_COMPLETION,
                  "{\"prompt\": \"It rains\", \"echo\": true, \"max_tokens\": 0, \"logprobs\": 1, "
                  "\"add_special_tokens\": false}",
                  " a", FINISH_STOP);
    expect_text(o, "choices/0/text", "It rains");
    expect_text(o, "choices/0/finish_reason", "length");
    expect_absent(o, "choices/0/prompt_logprobs");
    expect_json(o, "usage/completion_tokens", "0");
    expect_json(o, "choices/0/logprobs/token_logprobs/0", "null");
    expect_json(o, "choices/0/logprobs/token_logprobs/1", "-0.125");
    assert_int_equal(json_array_size(at(o, "choices/0/logprobs/tokens")),
                     json_integer_value(at(o, "usage/prompt_tokens")));
    json_decref(o);
    o = object_of(API_COMPLETION,
                  "{\"prompt\": \"It rains \\u00e4 \\ud83d\\ude00 here\", \"echo\": true, \"logprobs\": 0}", " a lot",
                  FINISH_STOP);
    const json_t *offsets = at(o, "choices/0/logprobs/text_offset"), *tokens = at(o, "choices/0/logprobs/tokens");
    const size_t last = json_array_size(offsets) - 1;
    expect_json(offsets, "0", "0");
    expect_text(tokens, "1", " rain"); /* the first one is " It" */
    expect_json(offsets, "1", "2");
    expect_text(json_array_get(tokens, last), "", " lot");
    assert_int_equal(json_integer_value(json_array_get(offsets, last)), strlen("It rains a b here a"));
    json_decref(o);
    o = object_of(API_COMPLETION, "{\"prompt\": [[300, 301], [302]], \"echo\": true, \"logprobs\": 0}", " a lot",
                  FINISH_STOP);
    check_offsets(at(o, "choices/0"));
    check_offsets(at(o, "choices/1"));
    expect_json(o, "choices/0/logprobs/top_logprobs/1", "null");
    json_decref(o);
}

/* ---- streams ---- */

/* Appends the string at `path` of each event, if it is there, to *out. */
static void join(const json_t *events, const char *path, struct text *out)
{
    const json_t *event;
    size_t i;
    assert_true(text_append(out, "", 0));
    json_array_foreach((json_t *)events, i, event)
    {
        const json_t *text = at(event, path);
        if (json_is_string(text)) assert_true(text_append(out, json_string_value(text), json_string_length(text)));
    }
}

/* Events' strings at `from`, joined, are the object's at `to`. */
static void expect_joined(const json_t *events, const char *from, const json_t *object, const char *to)
{
    struct text joined = {0};
    join(events, from, &joined);
    const json_t *whole = at(object, to);
    assert_string_equal(joined.data, json_is_string(whole) ? json_string_value(whole) : "");
    text_free(&joined);
}

/* Events' lists at `from`, joined, are the object's at `to`. */
static void expect_lists(const json_t *events, const char *from, const json_t *object, const char *to)
{
    json_t *list = json_array();
    const json_t *event;
    size_t i;
    json_array_foreach((json_t *)events, i, event) json_array_extend(list, (json_t *)at(event, from));
    if (!json_equal(list, at(object, to) ? at(object, to) : list)) fail_msg("%s: %s", from, json_dumps(list, 0));
    json_decref(list);
}

/* The body as an object and as a stream: the same answer. */
static void compare_chat(const char *fields, const char *answer, enum finish_reason end)
{
    struct text body = {0};
    assert_true(text_printf(&body, "{" MESSAGES ", " TOOLS "%s}", fields));
    json_t *o = object_of(API_CHAT, body.data, answer, end);
    text_clear(&body);
    assert_true(text_printf(&body, "{\"stream\": true, " MESSAGES ", " TOOLS "%s}", fields));
    json_t *events = events_of(API_CHAT, body.data, answer, end);
    text_free(&body);
    const json_t *event;
    size_t i;
    json_array_foreach(events, i, event) expect_text(event, "object", "chat.completion.chunk");
    expect_text(events, "0/choices/0/delta/role", "assistant");
    expect_joined(events, "choices/0/delta/content", o, "choices/0/message/content");
    expect_joined(events, "choices/0/delta/reasoning", o, "choices/0/message/reasoning");
    expect_joined(events, "choices/0/delta/reasoning_content", o, "choices/0/message/reasoning");
    expect_joined(events, "choices/0/delta/tool_calls/0/id", o, "choices/0/message/tool_calls/0/id");
    expect_joined(events, "choices/0/delta/tool_calls/0/function/name", o,
                  "choices/0/message/tool_calls/0/function/name");
    expect_joined(events, "choices/0/delta/tool_calls/0/function/arguments", o,
                  "choices/0/message/tool_calls/0/function/arguments");
    expect_joined(events, "choices/0/finish_reason", o, "choices/0/finish_reason");
    expect_lists(events, "choices/0/logprobs/content", o, "choices/0/logprobs/content");
    expect_lists(events, "choices/0/token_ids", o, "choices/0/token_ids");
    expect_lists(events, "prompt_token_ids", o, "prompt_token_ids");
    json_decref(o);
    json_decref(events);
}

static void test_chat_streams(void **state)
{
    (void)state;
    static const char *const fields[] = {"", ", \"logprobs\": true, \"top_logprobs\": 3",
                                         ", \"return_token_ids\": true",
                                         ", \"logprobs\": true, \"return_token_ids\": true"};
    static const char *const answers[] = {"It rains.", "<think>Hm.\n</think>It \"rains\" \xc3\xa4.", CALL,
                                          "<think>Hm.</think>Wait. " CALL, "<tool_call>{\"name\": 3}"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        for (size_t k = 0; k < sizeof answers / sizeof *answers; k++)
            compare_chat(fields[i], answers[k], k % 2 ? FINISH_STOP : FINISH_LENGTH);
}

static void test_completion_streams(void **state)
{
    (void)state;
    static const char *const fields[] = {"", ", \"logprobs\": 2", ", \"return_token_ids\": true, \"logprobs\": 0",
                                         ", \"echo\": true", ", \"echo\": true, \"logprobs\": 1"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        char body[256];
        snprintf(body, sizeof body, "{\"prompt\": \"Well\"%s}", fields[i]);
        json_t *o = object_of(API_COMPLETION, body, " it rains \xe2\x82\xac", FINISH_STOP);
        snprintf(body, sizeof body, "{\"stream\": true, \"prompt\": \"Well\"%s}", fields[i]);
        json_t *events = events_of(API_COMPLETION, body, " it rains \xe2\x82\xac", FINISH_STOP);
        expect_text(events, "0/object", "text_completion");
        expect_joined(events, "choices/0/text", o, "choices/0/text");
        expect_joined(events, "choices/0/finish_reason", o, "choices/0/finish_reason");
        expect_lists(events, "choices/0/logprobs/tokens", o, "choices/0/logprobs/tokens");
        expect_lists(events, "choices/0/logprobs/token_logprobs", o, "choices/0/logprobs/token_logprobs");
        expect_lists(events, "choices/0/logprobs/top_logprobs", o, "choices/0/logprobs/top_logprobs");
        expect_lists(events, "choices/0/logprobs/text_offset", o, "choices/0/logprobs/text_offset");
        expect_lists(events, "choices/0/token_ids", o, "choices/0/token_ids");
        expect_lists(events, "choices/0/prompt_token_ids", o, "choices/0/prompt_token_ids");
        json_decref(o);
        json_decref(events);
    }
}

static void test_stream_usage(void **state)
{
    (void)state;
    json_t *events =
        events_of(API_CHAT, "{" MESSAGES ", \"n\": 2, \"stream\": true, \"stream_options\": {\"include_usage\": true}}",
                  "It rains", FINISH_STOP);
    const size_t count = json_array_size(events);
    const json_t *last = json_array_get(events, count - 1);
    expect_json(last, "choices", "[]");
    assert_true(json_integer_value(at(last, "usage/completion_tokens")) >= 4);
    for (size_t i = 0; i + 1 < count; i++) expect_json(json_array_get(events, i), "usage", "null");
    json_decref(events);
    events = events_of(API_COMPLETION,
                       "{\"prompt\": [5], \"stream\": true, \"stream_options\": {\"continuous_usage_stats\": true}}",
                       "It rains", FINISH_STOP);
    expect_json(events, "0/usage/completion_tokens", "1");
    expect_json(events, "1/usage/completion_tokens", "2");
    assert_true(json_array_size(at(json_array_get(events, json_array_size(events) - 1), "choices")) == 1);
    json_decref(events);
}

/* ---- ends that are none ---- */

static void test_errors_of_answers(void **state)
{
    (void)state;
    struct api_call c;
    call(&c, API_CHAT, "{" MESSAGES "}", "It rains", FINISH_ERROR);
    assert_int_equal(api_response_status(c.response), 500);
    json_t *o = api_call_object(&c);
    expect_json(o, "error",
                "{\"message\": \"the answer failed\", \"type\": \"server_error\", \"param\": null, \"code\": 500}");
    json_decref(o);
    api_call_end(&c);
    /* In a stream: an event; what comes after it is ignored. */
    call(&c, API_CHAT, "{" MESSAGES ", \"stream\": true, \"n\": 2}", "It rains", FINISH_ERROR);
    assert_int_equal(api_response_status(c.response), 200);
    json_t *events = api_call_events(&c);
    expect_text(json_array_get(events, json_array_size(events) - 1), "error/message", "the answer failed");
    json_decref(events);
    api_call_end(&c);
    /* Before a stream has begun it is none. */
    call(&c, API_CHAT, "{" MESSAGES ", \"stream\": true}", "\n", FINISH_ERROR);
    api_call_end(&c);
    call(&c, API_CHAT, "{" MESSAGES "}", "It rains", FINISH_ABORT);
    o = api_call_object(&c);
    expect_text(o, "choices/0/finish_reason", "abort");
    json_decref(o);
    api_call_end(&c);
}

static void test_failed(void **state)
{
    (void)state;
    struct api_call c;
    struct api_refusal refusal;
    struct error err = {""};
    error_set(&err, STATUS_OUT_OF_MEMORY, "there is no room");
    api_refuse(&world.rules, STATUS_OUT_OF_MEMORY, &err, &refusal);
    api_call_begin(&c, &world, API_CHAT, "{" MESSAGES ", \"stream\": true}");
    assert_true(api_response_fail(c.response, &refusal, &c.out));
    assert_true(api_response_is_whole(c.response));
    assert_int_equal(api_response_status(c.response), 503);
    assert_false(api_response_is_stream(c.response));
    const size_t length = c.out.length;
    assert_true(api_response_fail(c.response, &refusal, &c.out));
    api_call_say(&c, 0, 0, "late", FINISH_STOP);
    assert_int_equal(c.out.length, length);
    json_t *o = api_call_object(&c);
    expect_text(o, "error/message", "there is no room");
    json_decref(o);
    api_call_end(&c);
}

/* ---- bodies ---- */

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        enum api_form form;
        const char *body;
        int status;
        const char *param, *sentence;
    } cases[] = {
        {API_CHAT, "", 400, "", "the body: "},
        {API_CHAT, "[]", 400, "", "the body: "},
        {API_CHAT, "{\"a\": \"\xff\"}", 400, "", "byte 8 is not UTF-8"},
        {API_CHAT, "{}", 400, "messages", "messages is missing"},
        {API_CHAT, "{\"model\": \"gpt\", " MESSAGES "}", 404, "model", "model: there is no model 'gpt' here"},
        {API_CHAT, "{\"model\": 3, " MESSAGES "}", 400, "model", "model must be a string, found 3"},
        {API_CHAT, "{" MESSAGES ", \"temprature\": 1}", 400, "temprature", "there is no field 'temprature'"},
        {API_CHAT, "{" MESSAGES ", \"temperature\": -1}", 400, "temperature", "temperature "},
        {API_CHAT, "{" MESSAGES ", \"n\": 9}", 400, "n", "n is 9"},
        {API_CHAT, "{" MESSAGES ", \"stream_options\": {}}", 400, "stream_options", "stream_options needs stream"},
        {API_CHAT, "{" MESSAGES ", \"stream\": true, \"prompt_logprobs\": 1}", 400, "prompt_logprobs",
         "prompt_logprobs are not a part of a stream"},
        {API_CHAT, "{" MESSAGES ", \"continue_final_message\": true, \"add_generation_prompt\": true}", 400,
         "continue_final_message", "continue_final_message and add_generation_prompt are both true"},
        {API_CHAT, "{\"messages\": [{\"role\": \"user\"}], \"continue_final_message\": true}", 400,
         "continue_final_message", "continue_final_message needs a last message whose content is text"},
        {API_COMPLETION, "{\"prompt\": [\"a\", 3]}", 400, "prompt", "prompt 2 of 2: prompt must be"},
        {API_COMPLETION, "{\"prompt\": []}", 400, "", "the prompt is empty"},
        {API_COMPLETION, "{\"prompt\": \"x\", \"suffix\": \"y\"}", 400, "suffix", "suffix must be \"\""},
        {API_MESSAGES, "{\"messages\": []}", 404, "", "quire does not serve this form of requests"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_request request;
        struct api_refusal refusal = {0};
        const char *body = cases[i].body;
        if (api_request_read(&world.rules, cases[i].form, body, strlen(body), &request, &refusal))
            fail_msg("accepted: %s", body);
        if (strncmp(refusal.error.text, cases[i].sentence, strlen(cases[i].sentence)) != 0)
            fail_msg("%s: %s", body, refusal.error.text);
        assert_int_equal(refusal.http_status, cases[i].status);
        assert_string_equal(refusal.param, cases[i].param);
        api_request_free(&request);
    }
}

static void test_refusal_written(void **state)
{
    (void)state;
    static const struct {
        int status;
        const char *type;
    } cases[] = {{400, "invalid_request_error"}, {401, "authentication_error"}, {404, "invalid_request_error"},
                 {429, "rate_limit_error"},      {500, "server_error"},         {503, "server_error"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct api_refusal refusal = {.http_status = cases[i].status, .param = "n", .error = {"a \"b\" \xff"}};
        struct text out = {0};
        struct error err;
        json_t *o;
        assert_true(api_refusal_write(API_CHAT, &refusal, &out));
        must(json_object_parse(out.data, out.length, 0, NULL, &o, &err), &err);
        expect_text(o, "error/message", "a \"b\" \xef\xbf\xbd");
        expect_text(o, "error/type", cases[i].type);
        expect_text(o, "error/param", "n");
        assert_int_equal(json_integer_value(at(o, "error/code")), cases[i].status);
        json_decref(o);
        text_free(&out);
    }
}

static void expect_prompt(const char *body, const char *text, bool in_reasoning)
{
    struct api_call c;
    struct text decoded = {0};
    struct error err;
    api_call_begin(&c, &world, API_CHAT, body);
    const struct prompt *p = &c.request.prompts[0];
    must(tokenizer_decode(world.tokenizer, p->tokens.ids, p->tokens.count, true, &decoded, &err), &err);
    assert_string_equal(decoded.data, text);
    assert_int_equal(p->parts.in_reasoning, in_reasoning);
    text_free(&decoded);
    api_call_end(&c);
}

static void test_ends_of_prompts(void **state)
{
    (void)state;
    static const char thinking[] = "\"chat_template_kwargs\": {\"think\": true}";
    static const char turns[] =
        "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", \"content\": \"%s\"}]";
    char body[512];
    expect_prompt("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}", "<|user|>Hi<|end|><|assistant|>",
                  false);
    expect_prompt("{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"add_generation_prompt\": false}",
                  "<|user|>Hi<|end|>", false);
    snprintf(body, sizeof body, "{\"messages\": [{\"role\": \"user\", \"content\": \"<think>\"}], %s}", thinking);
    expect_prompt(body, "<|user|><think><|end|><|assistant|><think>\n", true);
    expect_prompt("{\"messages\": [{\"role\": \"user\", \"content\": \"<think>\"}]}",
                  "<|user|><think><|end|><|assistant|>", false);
    const char *const contents[] = {"Well, it", "<think>Well", "<think>Well</think>It"};
    for (int i = 0; i < 3; i++) {
        char list[256], text[256];
        snprintf(list, sizeof list, turns, contents[i]);
        snprintf(body, sizeof body, "{%s, \"continue_final_message\": true}", list);
        snprintf(text, sizeof text, "<|user|>Hi<|end|><|assistant|>%s", contents[i]);
        expect_prompt(body, text, i == 1);
    }
}

/* The prompt has opened the thought, so the answer begins in it. */
static void test_reasoning_opened_by_prompt(void **state)
{
    (void)state;
    json_t *o = object_of(API_CHAT, "{" MESSAGES ", \"chat_template_kwargs\": {\"think\": true}}", "Hm.</think>Rain.",
                          FINISH_STOP);
    expect_text(o, "choices/0/message/reasoning", "Hm.");
    expect_text(o, "choices/0/message/content", "Rain.");
    json_decref(o);
}

static void test_fields(void **state)
{
    (void)state;
    struct api_call c;
    api_call_begin(&c, &world, API_CHAT,
                   "{" MESSAGES ", \"cache_salt\": \"s\", \"priority\": -3, \"seed\": 4, \"top_k\": 5, \"min_p\": 0.5, "
                   "\"max_completion_tokens\": 6, \"stop\": [\"x\"], \"logit_bias\": {\"7\": 1}, \"user\": \"me\", "
                   "\"repetition_penalty\": 1.5, \"min_tokens\": 2, \"ignore_eos\": true}");
    const struct prompt *p = &c.request.prompts[0];
    struct engine_request request;
    struct error err;
    must(prompt_request(p, &request, &err), &err);
    assert_string_equal(request.cache_salt, "s");
    assert_int_equal(request.priority, -3);
    assert_true(request.at_start);
    assert_int_equal(p->params.seed, 4);
    assert_int_equal(p->params.top_k, 5);
    assert_int_equal(p->params.max_tokens, 6);
    assert_int_equal(p->params.num_stop, 1);
    assert_int_equal(p->params.num_logit_bias, 1);
    assert_true(p->params.ignore_eos);
    api_call_end(&c);
}

/* ---- --print and --time ---- */

static void print_object(const char *kind, const json_t *object)
{
    char *text = json_dumps(object, JSON_COMPACT);
    printf("%s\t%s\n", kind, text);
    free(text);
}

static void print_all(void)
{
    static const char *const chats[] = {
        "{" MESSAGES "%s}", "{" MESSAGES ", " TOOLS "%s}",
        "{" MESSAGES ", \"n\": 2, \"logprobs\": true, \"top_logprobs\": 2, \"return_token_ids\": true%s}"};
    static const char *const answers[] = {"It rains.", "<think>Hm.</think>" CALL, "It rains.", "It rains."};
    static const char *const completions[] = {
        "{\"prompt\": \"Well\"%s}", "{\"prompt\": [\"Well\", \"So\"], \"n\": 2, \"logprobs\": 2%s}",
        "{\"prompt\": \"Well\", \"echo\": true, \"logprobs\": 1, \"max_tokens\": 0%s}"};
    static const char stream[] = ", \"stream\": true, \"stream_options\": {\"include_usage\": true}";
    for (size_t i = 0; i < 6; i++) {
        const enum api_form form = i < 3 ? API_CHAT : API_COMPLETION;
        const char *body = i < 3 ? chats[i] : completions[i - 3], *answer = answers[i < 3 ? i : 3];
        char text[1024];
        const json_t *event;
        size_t k;
        snprintf(text, sizeof text, body, "");
        json_t *object = object_of(form, text, answer, FINISH_STOP);
        print_object(form == API_CHAT ? "chat" : "completion", object);
        snprintf(text, sizeof text, body, stream);
        json_t *events = events_of(form, text, answer, FINISH_STOP);
        json_array_foreach(events, k, event) print_object(form == API_CHAT ? "chat_chunk" : "completion_chunk", event);
        json_decref(object);
        json_decref(events);
    }
}

static double time_chunk(enum api_form form, const char *body)
{
    enum { CHUNKS = 1 << 20 };
    struct api_call c;
    const int32_t token = 300;
    struct answer_piece piece = {
        .token_ids = &token, .num_tokens = 1, .text = " rains", .text_length = 6, .stop_token = -1, .prompt_tokens = 9};
    api_call_begin(&c, &world, form, body);
    const double start = clock_seconds();
    for (int i = 0; i < CHUNKS; i++) {
        piece.output_tokens = i + 1;
        if (!api_response_take(c.response, 0, &piece, &c.out)) return -1;
        text_clear(&c.out);
    }
    const double seconds = clock_seconds() - start;
    api_call_end(&c);
    return seconds / CHUNKS * 1e9;
}

static void print_times(void)
{
    printf("a completion's chunk      %4.0f ns\n", time_chunk(API_COMPLETION, "{\"prompt\": [5], \"stream\": true}"));
    printf("a chat's, parsed          %4.0f ns\n", time_chunk(API_CHAT, "{" MESSAGES ", " TOOLS ", \"stream\": true}"));
    printf("a chat's, with a thought  %4.0f ns\n",
           time_chunk(API_CHAT, "{" MESSAGES ", \"chat_template_kwargs\": {\"think\": true}, \"stream\": true}"));
    printf("a completion's with ids   %4.0f ns\n",
           time_chunk(API_COMPLETION, "{\"prompt\": [5], \"stream\": true, \"return_token_ids\": true}"));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_usage),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_several_calls),
        cmocka_unit_test(test_chat_logprobs),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_several_prompts),
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_chat_streams),
        cmocka_unit_test(test_completion_streams),
        cmocka_unit_test(test_stream_usage),
        cmocka_unit_test(test_errors_of_answers),
        cmocka_unit_test(test_failed),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_refusal_written),
        cmocka_unit_test(test_ends_of_prompts),
        cmocka_unit_test(test_reasoning_opened_by_prompt),
        cmocka_unit_test(test_fields),
    };
    if (argc < 2) return cmocka_run_group_tests(tests, set_up, tear_down);
    set_up(NULL);
    if (strcmp(argv[1], "--print") == 0) print_all();
    if (strcmp(argv[1], "--time") == 0) print_times();
    return tear_down(NULL);
}
