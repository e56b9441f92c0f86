/* Responses of APIs (runtime/prompts/api.h): what is sent of answers. test_api_requests.c has the requests.
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
#include "tests/support/api_call.h"
#include "tests/support/json_path.h"

/* ---- one object ---- */

static void test_chat(void **state)
{
    (void)state;
    json_t *o = api_object(&world, API_CHAT, "{\"model\": \"other\", " MESSAGES ", \"metadata\": {\"k\": \"v\"}}",
                           "It \"rains\"\n\\o/ \x01.", FINISH_STOP);
    expect_json_text(o, "id", "chatcmpl-id");
    expect_json_text(o, "object", "chat.completion");
    expect_json_text(o, "model", "guide");
    assert_true(json_integer_value(json_at(o, "created")) > 1700000000);
    expect_json(o, "choices/0/index", "0");
    expect_json(o, "choices/0/message",
                "{\"role\": \"assistant\", \"content\": \"It \\\"rains\\\"\\n\\\\o/ \\u0001.\", \"refusal\": null}");
    expect_json(o, "choices/0/logprobs", "null");
    expect_json(o, "choices/0/finish_reason", "\"stop\"");
    expect_json(o, "choices/0/stop_reason", "null");
    expect_json(o, "metadata", "{\"k\": \"v\"}");
    expect_no_json(o, "prompt_token_ids");
    expect_no_json(o, "choices/0/token_ids");
    json_decref(o);
    o = api_object(&world, API_CHAT, "{" MESSAGES ", \"n\": 3, \"max_tokens\": 2}", "It rains", FINISH_LENGTH);
    assert_int_equal(json_array_size(json_at(o, "choices")), 3);
    expect_json(o, "choices/2/index", "2");
    expect_json_text(o, "choices/2/finish_reason", "length");
    json_decref(o);
}

static void test_usage(void **state)
{
    (void)state;
    struct api_call c;
    api_call_answer(&c, &world, API_COMPLETION, "{\"prompt\": [[5, 6, 7], [8]], \"n\": 2}", "It rains", FINISH_STOP);
    const struct api_usage u = api_response_usage(c.response);
    json_t *o = api_call_object(&c);
    assert_int_equal(u.prompt_tokens, 4);
    assert_true(u.completion_tokens >= 8 && u.completion_tokens % 4 == 0);
    assert_int_equal(json_integer_value(json_at(o, "usage/prompt_tokens")), 4);
    assert_int_equal(json_integer_value(json_at(o, "usage/completion_tokens")), u.completion_tokens);
    assert_int_equal(json_integer_value(json_at(o, "usage/total_tokens")), 4 + u.completion_tokens);
    expect_json(o, "usage/prompt_tokens_details/cached_tokens", "0");
    json_decref(o);
    api_call_end(&c);
}

static void test_parts(void **state)
{
    (void)state;
    json_t *o =
        api_object(&world, API_CHAT, "{" MESSAGES ", " TOOLS "}", "<think>Look it up.</think>" CALL, FINISH_STOP);
    const json_t *message = json_at(o, "choices/0/message");
    expect_json_text(message, "reasoning", "Look it up.");
    expect_json_text(message, "reasoning_content", "Look it up.");
    expect_json(message, "content", "null");
    assert_int_equal(json_array_size(json_at(message, "tool_calls")), 1);
    expect_json_text(message, "tool_calls/0/type", "function");
    expect_json_text(message, "tool_calls/0/function/name", "weather");
    expect_json_text(message, "tool_calls/0/function/arguments", "{\"city\": \"Aachen\"}");
    assert_int_equal(strlen(json_string_value(json_at(message, "tool_calls/0/id"))), 9);
    expect_json_text(o, "choices/0/finish_reason", "tool_calls");
    assert_true(json_integer_value(json_at(o, "usage/completion_tokens_details/reasoning_tokens")) >= 3);
    json_decref(o);
    o = api_object(&world, API_CHAT, "{" MESSAGES ", " TOOLS ", \"include_reasoning\": false}",
                   "<think>Hm.</think>Rain.", FINISH_STOP);
    expect_json(o, "choices/0/message", "{\"role\": \"assistant\", \"content\": \"Rain.\", \"refusal\": null}");
    json_decref(o);
    /* Without tools, and with tool_choice "none", a call is text. */
    o = api_object(&world, API_CHAT, "{" MESSAGES "}", CALL, FINISH_STOP);
    expect_json_text(o, "choices/0/message/content", CALL);
    expect_json_text(o, "choices/0/finish_reason", "stop");
    json_decref(o);
    o = api_object(&world, API_CHAT, "{" MESSAGES ", " TOOLS ", \"tool_choice\": \"none\"}", CALL, FINISH_STOP);
    expect_json_text(o, "choices/0/message/content", CALL);
    json_decref(o);
}

/* The prompt has opened the thought, so the answer begins in it. */
static void test_reasoning_opened_by_prompt(void **state)
{
    (void)state;
    json_t *o = api_object(&world, API_CHAT, "{" MESSAGES ", \"chat_template_kwargs\": {\"think\": true}}",
                           "Hm.</think>Rain.", FINISH_STOP);
    expect_json_text(o, "choices/0/message/reasoning", "Hm.");
    expect_json_text(o, "choices/0/message/content", "Rain.");
    json_decref(o);
}

/* parallel_tool_calls false: the first call only. Ids differ, also between requests. */
static void test_several_calls(void **state)
{
    (void)state;
    json_t *one = api_object(&world, API_CHAT, "{" MESSAGES ", " TOOLS ", \"parallel_tool_calls\": false}",
                             CALL "\n" CALL, FINISH_STOP);
    json_t *two = api_object(&world, API_CHAT, "{" MESSAGES ", " TOOLS ", \"n\": 2}", CALL "\n" CALL, FINISH_STOP);
    json_t *other = api_object(
        &world, API_CHAT, "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], " TOOLS "}", CALL, FINISH_STOP);
    assert_int_equal(json_array_size(json_at(one, "choices/0/message/tool_calls")), 1);
    assert_int_equal(json_array_size(json_at(two, "choices/0/message/tool_calls")), 2);
    const char *const ids[] = {json_string_value(json_at(two, "choices/0/message/tool_calls/0/id")),
                               json_string_value(json_at(two, "choices/0/message/tool_calls/1/id")),
                               json_string_value(json_at(two, "choices/1/message/tool_calls/0/id")),
                               json_string_value(json_at(other, "choices/0/message/tool_calls/0/id"))};
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < i; k++) assert_string_not_equal(ids[i], ids[k]);
    json_decref(one);
    json_decref(two);
    json_decref(other);
}

static void test_chat_logprobs(void **state)
{
    (void)state;
    json_t *o = api_object(&world, API_CHAT, "{" MESSAGES ", \"logprobs\": true, \"top_logprobs\": 2}", "It rains",
                           FINISH_STOP);
    const json_t *list = json_at(o, "choices/0/logprobs/content"), *token;
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
    o = api_object(&world, API_CHAT, "{" MESSAGES ", \"logprobs\": true, \"return_tokens_as_token_ids\": true}",
                   "It rains", FINISH_STOP);
    assert_memory_equal(json_string_value(json_at(o, "choices/0/logprobs/content/0/token")), "token_id:", 9);
    expect_json(o, "choices/0/logprobs/content/0/top_logprobs", "[]");
    json_decref(o);
}

static void test_ids(void **state)
{
    (void)state;
    json_t *o = api_object(&world, API_COMPLETION, "{\"prompt\": [[5, 6], [7]], \"return_token_ids\": true}", "It",
                           FINISH_STOP);
    expect_json(o, "choices/0/prompt_token_ids", "[5, 6]");
    expect_json(o, "choices/1/prompt_token_ids", "[7]");
    assert_true(json_array_size(json_at(o, "choices/1/token_ids")) > 0);
    json_decref(o);
    o = api_object(&world, API_CHAT, "{" MESSAGES ", \"return_token_ids\": true, \"prompt_logprobs\": 1}", "It",
                   FINISH_STOP);
    const size_t length = json_array_size(json_at(o, "prompt_token_ids"));
    assert_true(length > 4 && json_array_size(json_at(o, "choices/0/token_ids")) > 0);
    assert_int_equal(json_array_size(json_at(o, "prompt_logprobs")), length);
    expect_json(o, "prompt_logprobs/0", "null");
    char id[32];
    snprintf(id, sizeof id, "prompt_logprobs/1/%d", (int)json_integer_value(json_at(o, "prompt_token_ids/1")));
    assert_float_equal(json_real_value(json_object_get(json_at(o, id), "logprob")), -1.0 / 8, 0);
    expect_json(json_at(o, id), "rank", "2");
    expect_json(o, "prompt_logprobs/1/5/rank", "1");
    json_decref(o);
}

/* ---- completions ---- */

/* Each token stands in the text at its offset; the space that encoding put before the text does not. */
static void check_offsets(const json_t *choice)
{
    const char *text = json_string_value(json_at(choice, "text"));
    const json_t *tokens = json_at(choice, "logprobs/tokens"), *token;
    size_t i;
    json_array_foreach((json_t *)tokens, i, token)
    {
        const json_int_t offset = json_integer_value(json_array_get(json_at(choice, "logprobs/text_offset"), i));
        const char *name = json_string_value(token);
        const bool has_space = i == 0 && name[0] == ' ' && text[0] != ' ';
        assert_memory_equal(text + offset, name + has_space, strlen(name) - has_space);
    }
}

static void test_completion(void **state)
{
    (void)state;
    json_t *o =
        api_object(&world, API_COMPLETION, "{\"prompt\": \"Well\", \"logprobs\": 1}", " it rains", FINISH_LENGTH);
    expect_json_text(o, "id", "cmpl-id");
    expect_json_text(o, "object", "text_completion");
    expect_json_text(o, "choices/0/text", " it rains");
    expect_json(o, "choices/0/logprobs/text_offset/0", "0");
    expect_json(o, "choices/0/logprobs/token_logprobs/1", "-0.125");
    assert_int_equal(json_object_size(json_at(o, "choices/0/logprobs/top_logprobs/0")), 1);
    check_offsets(json_at(o, "choices/0"));
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
        const json_t *choice = json_array_get(json_at(o, "choices"), (size_t)i);
        assert_int_equal(json_integer_value(json_at(choice, "index")), i);
        expect_json_text(choice, "text", texts[i]);
    }
    json_decref(o);
    api_call_end(&c);
}

static void test_echo(void **state)
{
    (void)state;
    json_t *o = api_object(&world, API_COMPLETION, "{\"prompt\": \"It rains\", \"echo\": true, \"n\": 2}", " a lot",
                           FINISH_STOP);
    expect_json_text(o, "choices/0/text", "It rains a lot");
    expect_json_text(o, "choices/1/text", "It rains a lot");
    json_decref(o);
    o = api_object(&world, API_COMPLETION,
                   "{\"prompt\": \"It rains\", \"echo\": true, \"max_tokens\": 0, \"logprobs\": 1, "
                   "\"add_special_tokens\": false}",
                   " a", FINISH_STOP);
    expect_json_text(o, "choices/0/text", "It rains");
    expect_json_text(o, "choices/0/finish_reason", "length");
    expect_no_json(o, "choices/0/prompt_logprobs");
    expect_json(o, "usage/completion_tokens", "0");
    expect_json(o, "choices/0/logprobs/token_logprobs/0", "null");
    expect_json(o, "choices/0/logprobs/token_logprobs/1", "-0.125");
    assert_int_equal(json_array_size(json_at(o, "choices/0/logprobs/tokens")),
                     json_integer_value(json_at(o, "usage/prompt_tokens")));
    json_decref(o);
    o = api_object(&world, API_COMPLETION,
                   "{\"prompt\": \"It rains \\u00e4 \\ud83d\\ude00 here\", \"echo\": true, \"logprobs\": 0}", " a lot",
                   FINISH_STOP);
    const json_t *offsets = json_at(o, "choices/0/logprobs/text_offset"),
                 *tokens = json_at(o, "choices/0/logprobs/tokens");
    const size_t last = json_array_size(offsets) - 1;
    expect_json(offsets, "0", "0");
    expect_json_text(tokens, "1", " rain"); /* the first one is " It" */
    expect_json(offsets, "1", "2");
    expect_json_text(json_array_get(tokens, last), "", " lot");
    assert_int_equal(json_integer_value(json_array_get(offsets, last)), strlen("It rains a b here a"));
    json_decref(o);
    o = api_object(&world, API_COMPLETION, "{\"prompt\": [[300, 301], [302]], \"echo\": true, \"logprobs\": 0}",
                   " a lot", FINISH_STOP);
    check_offsets(json_at(o, "choices/0"));
    check_offsets(json_at(o, "choices/1"));
    expect_json(o, "choices/0/logprobs/top_logprobs/1", "null");
    json_decref(o);
}

/* ---- ends that are none ---- */

static void test_errors_of_answers(void **state)
{
    (void)state;
    struct api_call c;
    api_call_answer(&c, &world, API_CHAT, "{" MESSAGES "}", "It rains", FINISH_ERROR);
    assert_int_equal(api_response_status(c.response), 500);
    json_t *o = api_call_object(&c);
    expect_json(o, "error",
                "{\"message\": \"the answer failed\", \"type\": \"server_error\", \"param\": null, \"code\": 500}");
    json_decref(o);
    api_call_end(&c);
    /* In a stream: an event; what comes after it is ignored. */
    api_call_answer(&c, &world, API_CHAT, "{" MESSAGES ", \"stream\": true, \"n\": 2}", "It rains", FINISH_ERROR);
    assert_int_equal(api_response_status(c.response), 200);
    json_t *events = api_call_events(&c);
    expect_json_text(json_array_get(events, json_array_size(events) - 1), "error/message", "the answer failed");
    json_decref(events);
    api_call_end(&c);
    /* Before a stream has begun it is none. */
    api_call_answer(&c, &world, API_CHAT, "{" MESSAGES ", \"stream\": true}", "\n", FINISH_ERROR);
    api_call_end(&c);
    api_call_answer(&c, &world, API_CHAT, "{" MESSAGES "}", "It rains", FINISH_ABORT);
    o = api_call_object(&c);
    expect_json_text(o, "choices/0/finish_reason", "abort");
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
    expect_json_text(o, "error/message", "there is no room");
    json_decref(o);
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
        json_t *object = api_object(&world, form, text, answer, FINISH_STOP);
        print_object(form == API_CHAT ? "chat" : "completion", object);
        snprintf(text, sizeof text, body, stream);
        json_t *events = api_events(&world, form, text, answer, FINISH_STOP);
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
        cmocka_unit_test(test_reasoning_opened_by_prompt),
        cmocka_unit_test(test_several_calls),
        cmocka_unit_test(test_chat_logprobs),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_several_prompts),
        cmocka_unit_test(test_echo),
        cmocka_unit_test(test_errors_of_answers),
        cmocka_unit_test(test_failed),
    };
    if (argc < 2) return cmocka_run_group_tests(tests, api_world_set_up, api_world_tear_down);
    api_world_set_up(NULL);
    if (strcmp(argv[1], "--print") == 0) print_all();
    if (strcmp(argv[1], "--time") == 0) print_times();
    return api_world_tear_down(NULL);
}
