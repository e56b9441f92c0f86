/* Lines of OpenAI batches: what they mean, what is refused, and what quire generate answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/prompts/openai_batch.h"
#include "tests/support/generate.h"

static int set_up(void **state)
{
    static struct temp_folder model;
    toy_model_make(&model, QUIRE_GUIDE, true);
    *state = &model;
    return 0;
}

static int tear_down(void **state)
{
    temp_folder_remove(*state);
    return 0;
}

/* ---- the body ---- */

static enum status read_body(const char *url, const char *body, struct openai_request *out, json_t **native,
                             struct error *err)
{
    json_error_t why;
    json_t *line = json_pack("{s:s, s:s, s:s, s:o}", "custom_id", "a", "method", "POST", "url", url, "body",
                             json_loads(body, JSON_DECODE_ANY, &why));
    if (!line) fail_msg("%s: %s", body, why.text);
    assert_true(openai_batch_is_line(line));
    const enum status status = openai_batch_read(line, NULL, out, native, err);
    json_decref(line);
    return status;
}

static void expect_native(const char *url, const char *body, const char *expected)
{
    struct openai_request request;
    struct error err = {""};
    json_error_t why;
    json_t *native, *wanted = json_loads(expected, 0, &why);
    assert_non_null(wanted);
    if (read_body(url, body, &request, &native, &err) != STATUS_OK) fail_msg("%s: %s", body, err.text);
    if (!json_equal(native, wanted)) fail_msg("%s: %s", body, json_dumps(native, 0));
    json_decref(native);
    json_decref(wanted);
    openai_request_free(&request);
}

static const char CHAT[] = "/v1/chat/completions", COMPLETIONS[] = "/v1/completions";

static void test_bodies(void **state)
{
    (void)state;
    expect_native(CHAT,
                  "{\"model\": \"m\", \"messages\": [1], \"max_tokens\": 3, \"max_completion_tokens\": 5, \"stream\": "
                  "true, \"stream_options\": {}, \"user\": \"u\", \"store\": false, \"metadata\": {}, \"n\": 2, "
                  "\"stop\": [\"a\"], \"seed\": 1, \"logit_bias\": {\"3\": 1}, \"presence_penalty\": 1, "
                  "\"frequency_penalty\": 0.5, \"response_format\": {\"type\": \"text\"}, \"top_k\": 3, "
                  "\"parallel_tool_calls\": true, \"modalities\": [\"text\"], \"suffix\": null, \"temperature\": null}",
                  "{\"messages\": [1], \"max_tokens\": 5, \"n\": 2, \"stop\": [\"a\"], \"seed\": 1, \"logit_bias\": "
                  "{\"3\": 1}, \"presence_penalty\": 1, \"frequency_penalty\": 0.5, \"response_format\": {\"type\": "
                  "\"text\"}, \"top_k\": 3}");
    expect_native(CHAT, "{\"messages\": [1], \"structured_outputs\": {\"regex\": \"a\"}}",
                  "{\"messages\": [1], \"structured_outputs\": {\"regex\": \"a\"}}");
    expect_native(CHAT, "{\"messages\": [1], \"tools\": [2], \"tool_choice\": \"auto\", \"logprobs\": true}",
                  "{\"messages\": [1], \"tools\": [2], \"logprobs\": 0}");
    expect_native(CHAT, "{\"messages\": [1], \"tools\": [2], \"tool_choice\": \"none\", \"max_tokens\": 3}",
                  "{\"messages\": [1], \"max_tokens\": 3}");
    expect_native(CHAT, "{\"messages\": [1], \"tools\": [], \"logprobs\": true, \"top_logprobs\": 4}",
                  "{\"messages\": [1], \"logprobs\": 4}");
    expect_native(CHAT, "{\"messages\": [1], \"logprobs\": false, \"chat_template_kwargs\": {}, \"cache_salt\": \"s\"}",
                  "{\"messages\": [1], \"chat_template_kwargs\": {}, \"cache_salt\": \"s\"}");
    expect_native(CHAT, "{\"messages\": [1], \"reasoning_effort\": \"high\"}",
                  "{\"messages\": [1], \"chat_template_kwargs\": {\"reasoning_effort\": \"high\"}}");
    expect_native(CHAT,
                  "{\"messages\": [1], \"reasoning_effort\": \"high\", \"chat_template_kwargs\": "
                  "{\"reasoning_effort\": \"low\", \"a\": 1}}",
                  "{\"messages\": [1], \"chat_template_kwargs\": {\"reasoning_effort\": \"low\", \"a\": 1}}");
    expect_native(COMPLETIONS,
                  "{\"prompt\": \"x\", \"logprobs\": 3, \"echo\": false, \"suffix\": \"\", \"best_of\": 2}",
                  "{\"prompt\": \"x\", \"logprobs\": 3, \"best_of\": 2}");
    expect_native(COMPLETIONS, "{\"prompt\": [\"x\"]}", "{\"prompt\": \"x\"}");
    expect_native(COMPLETIONS, "{\"prompt\": [[1, 2]]}", "{\"prompt\": [1, 2]}");
    expect_native(COMPLETIONS, "{\"prompt\": [1, 2]}", "{\"prompt\": [1, 2]}");
}

static void test_refused_bodies(void **state)
{
    (void)state;
    static const struct {
        const char *url, *body, *sentence;
    } cases[] = {
        {"/v1/embeddings", "{}", "url must be \"/v1/chat/completions\" or \"/v1/completions\", found"},
        {CHAT, "3", "body must be an object, found 3"},
        {CHAT, "{}", "messages is missing"},
        {COMPLETIONS, "{}", "prompt is missing"},
        {CHAT, "{\"prompt\": \"x\"}", "there is no field 'prompt' for this url"},
        {COMPLETIONS, "{\"messages\": []}", "there is no field 'messages' for this url"},
        {CHAT, "{\"messages\": [], \"prompt_token_ids\": [1]}", "there is no field 'prompt_token_ids' for this url"},
        {CHAT, "{\"messages\": [], \"temprature\": 1}", "there is no field 'temprature' for this url"},
        {CHAT, "{\"messages\": [], \"model\": 3}", "body.model must be a string, found 3"},
        {CHAT, "{\"messages\": [], \"metadata\": 3}", "body.metadata must be an object, found 3"},
        {CHAT,
         "{\"messages\": [], \"tools\": [{}], \"tool_choice\": \"required\", \"structured_outputs\": {\"regex\": "
         "\"a\"}}",
         "tool_choice and structured_outputs both give the answer's form"},
        {CHAT, "{\"messages\": [], \"tool_choice\": \"required\"}",
         "tool_choice asks for a call of a tool, but tools has none"},
        {CHAT,
         "{\"messages\": [], \"tools\": [{\"function\": {\"name\": \"f\"}}], \"tool_choice\": {\"function\": "
         "{\"name\": "
         "\"g\"}}}",
         "tool_choice asks for a call of g, but tools has none of this name"},
        {CHAT, "{\"messages\": [], \"tools\": [{}], \"tool_choice\": \"required\"}",
         "tool_choice must be \"auto\" or \"none\": it is not known in which form this model calls tools"},
        {CHAT, "{\"messages\": [], \"parallel_tool_calls\": 3}", "body.parallel_tool_calls must be true or false"},
        {CHAT, "{\"messages\": [], \"echo\": true}", "body.echo must be false: only a completion repeats its prompt"},
        {CHAT, "{\"messages\": [], \"add_special_tokens\": true}", "body.add_special_tokens must be false"},
        {CHAT, "{\"messages\": [], \"stream_options\": {}}", "stream_options needs stream to be true"},
        {CHAT, "{\"messages\": [], \"stream\": true, \"stream_options\": {\"include_usage\": 1}}",
         "body.stream_options.include_usage must be true or false, found 1"},
        {COMPLETIONS, "{\"prompt\": \"x\", \"include_reasoning\": true}", "there is no field 'include_reasoning' for"},
        {COMPLETIONS, "{\"prompt\": \"x\", \"use_beam_search\": true}", "body.use_beam_search must be false"},
        {CHAT, "{\"messages\": [], \"tool_choice\": {\"type\": \"function\"}}", "body.tool_choice must be"},
        {CHAT, "{\"messages\": [], \"logprobs\": 3}", "body.logprobs must be true or false, found 3"},
        {CHAT, "{\"messages\": [], \"top_logprobs\": 3}", "top_logprobs needs logprobs to be true"},
        {CHAT, "{\"messages\": [], \"modalities\": [\"text\", \"audio\"]}", "body.modalities must be [\"text\"]"},
        {COMPLETIONS, "{\"prompt\": \"x\", \"top_logprobs\": 3}", "there is no field 'top_logprobs' for this url"},
        {CHAT, "{\"messages\": [], \"reasoning_effort\": 3}", "body.reasoning_effort must be a string, found 3"},
        {COMPLETIONS, "{\"prompt\": \"x\", \"reasoning_effort\": \"low\"}", "there is no field 'reasoning_effort' for"},
        {COMPLETIONS, "{\"prompt\": \"x\", \"tools\": []}", "there is no field 'tools' for this url"},
        {COMPLETIONS, "{\"prompt\": \"x\", \"echo\": 1}", "body.echo must be true or false, found 1"},
        {COMPLETIONS, "{\"prompt\": \"x\", \"suffix\": \"y\"}", "body.suffix must be \"\""},
        {COMPLETIONS, "{\"prompt\": [\"x\", \"y\"]}", "prompt holds 2 prompts; put each on a line of its own"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct openai_request request;
        struct error err = {""};
        json_t *native;
        if (read_body(cases[i].url, cases[i].body, &request, &native, &err) == STATUS_OK)
            fail_msg("accepted: %s", cases[i].body);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("%s: %s", cases[i].body, err.text);
        assert_null(native);
        assert_true(request.kind != OPENAI_NONE);
        openai_request_free(&request);
    }
}

/* ---- the answers ---- */

static const json_t *at(const json_t *object, const char *path)
{
    char key[32];
    for (; *path && object; path += strcspn(path, "/"), path += *path == '/') {
        snprintf(key, sizeof key, "%.*s", (int)strcspn(path, "/"), path);
        object = json_is_array(object) ? json_array_get(object, (size_t)atoi(key)) : json_object_get(object, key);
    }
    return object;
}

static const char *text_at(const json_t *object, const char *path)
{
    const char *text = json_string_value(at(object, path));
    if (!text) fail_msg("no text at %s in %s", path, json_dumps(object, 0));
    return text;
}

static int64_t number_at(const json_t *object, const char *path)
{
    const json_t *number = at(object, path);
    if (!json_is_integer(number)) fail_msg("no number at %s in %s", path, json_dumps(object, 0));
    return json_integer_value(number);
}

/* The tokens' bytes, joined, are the text. */
static void check_chat_logprobs(const json_t *choice, size_t count)
{
    const json_t *content = at(choice, "logprobs/content");
    struct text text = {0};
    assert_int_equal(json_array_size(content), count);
    for (size_t i = 0; i < count; i++) {
        const json_t *token = json_array_get(content, i), *bytes = json_object_get(token, "bytes");
        for (size_t k = 0; k < json_array_size(bytes); k++) {
            const char byte = (char)json_integer_value(json_array_get(bytes, k));
            assert_true(text_append(&text, &byte, 1));
        }
        text_at(token, "token");
        assert_int_equal(json_array_size(json_object_get(token, "top_logprobs")), 2);
        assert_true(json_real_value(at(token, "top_logprobs/0/logprob")) >=
                    json_real_value(json_object_get(token, "logprob")));
    }
    const char *said = text_at(choice, "message/content");
    assert_string_equal(text.data + (text.data[0] == ' ' && said[0] != ' '), said);
    text_free(&text);
}

static void check_chat(const json_t *line)
{
    assert_string_equal(json_object_iter_key(json_object_iter((json_t *)line)), "index");
    assert_string_equal(text_at(line, "custom_id"), "first");
    assert_true(strncmp(text_at(line, "id"), "batch_req_", 10) == 0);
    assert_true(json_is_null(at(line, "error")));
    assert_int_equal(number_at(line, "response/status_code"), 200);
    text_at(line, "response/request_id");
    const json_t *body = at(line, "response/body");
    assert_string_equal(text_at(body, "object"), "chat.completion");
    text_at(body, "id");
    text_at(body, "model");
    assert_true(number_at(body, "created") > 1700000000);
    assert_string_equal(text_at(body, "metadata/k"), "v");
    assert_int_equal(json_array_size(at(body, "choices")), 2);
    for (int i = 0; i < 2; i++) {
        const json_t *choice = json_array_get(at(body, "choices"), (size_t)i);
        assert_int_equal(number_at(choice, "index"), i);
        assert_string_equal(text_at(choice, "message/role"), "assistant");
        assert_true(json_is_null(at(choice, "message/refusal")));
        assert_string_equal(text_at(choice, "finish_reason"), "length");
        check_chat_logprobs(choice, 7);
    }
    assert_int_equal(number_at(body, "usage/completion_tokens"), 14);
    assert_int_equal(number_at(body, "usage/total_tokens"), number_at(body, "usage/prompt_tokens") + 14);
    number_at(body, "usage/prompt_tokens_details/cached_tokens");
}

static void check_completion(const json_t *line)
{
    const json_t *body = at(line, "response/body"), *choice = at(body, "choices/0");
    assert_string_equal(text_at(body, "object"), "text_completion");
    text_at(choice, "text");
    assert_int_equal(number_at(body, "usage/completion_tokens"), 16);
    assert_int_equal(json_array_size(at(choice, "logprobs/tokens")), 16);
    assert_int_equal(json_array_size(at(choice, "logprobs/token_logprobs")), 16);
    assert_int_equal(json_array_size(at(choice, "logprobs/text_offset")), 16);
    assert_int_equal(number_at(choice, "logprobs/text_offset/0"), 0);
    assert_int_equal(json_object_size(at(choice, "logprobs/top_logprobs/0")), 1);
    assert_null(at(body, "metadata"));
}

static void check_failed(const json_t *line, const char *id, int64_t number, const char *sentence)
{
    assert_string_equal(text_at(line, "custom_id"), id);
    assert_true(json_is_null(at(line, "response")));
    assert_string_equal(text_at(line, "error/code"), "invalid_request");
    assert_int_equal(number_at(line, "error/line"), number);
    assert_string_equal(text_at(line, "error/message"), sentence);
}

/* Lines of a batch among others. One that the engine refuses fails like one that is wrong itself. */
static void test_generate(void **state)
{
    struct program p;
    struct text input = {0};
    assert_true(text_append_string(
        &input,
        "{\"custom_id\": \"first\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": {\"model\": "
        "\"gpt-4\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"n\": 2, \"max_completion_tokens\": 7, "
        "\"metadata\": {\"k\": \"v\"}, \"logprobs\": true, \"top_logprobs\": 2, \"stream\": true}}\n"
        "{\"custom_id\": \"second\", \"url\": \"/v1/completions\", \"body\": {\"model\": \"gpt-4\", \"prompt\": "
        "\"Hi\", "
        "\"logprobs\": 1}}\n"
        "{\"prompt\": [5], \"custom_id\": 3, \"max_tokens\": 2}\n"
        "{\"custom_id\": \"fourth\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"x\", \"n\": 9}}\n"
        "{\"custom_id\": \"fifth\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": ["));
    for (int i = 0; i < 600; i++) assert_true(text_append_string(&input, "1,"));
    assert_true(text_append_string(&input, "1]}}\n"));
    generate_run(&p, *state, input.data, (const char *[]){"--ordered", "--ignore-eos", "--temperature", "1", NULL});
    assert_int_equal(p.exit_status, 1);
    json_t *lines[5];
    for (int i = 0; i < 5; i++) {
        lines[i] = generate_line(&p.out, i);
        assert_int_equal(number_at(lines[i], "index"), i);
    }
    check_chat(lines[0]);
    check_completion(lines[1]);
    assert_int_equal(number_at(lines[2], "id"), 3);
    assert_int_equal(number_at(lines[2], "completion_tokens"), 2);
    check_failed(lines[3], "fourth", 4,
                 "line 4: n is 9, but --max-num-seqs lets 4 sequences run at once: lower the one or raise the other");
    check_failed(
        lines[4], "fifth", 5,
        "line 5: the prompt has 601 tokens, but max_model_len is 512, which leaves 511 for a prompt and one for "
        "the answer: raise --max-model-len to 602");
    for (int i = 0; i < 5; i++) json_decref(lines[i]);
    /* Once, though two lines name that model. */
    const char *warning =
        strstr(p.err.data, "warning: a line names the model \"gpt-4\", but all lines are answered by");
    assert_non_null(warning);
    assert_null(strstr(warning + 1, "warning: a line names"));
    program_free(&p);
    text_free(&input);
}

/* --served-model-name is the model of the answers, and of the lines that need no warning. */
static void test_served_model_name(void **state)
{
    struct program p;
    static const char input[] = "{\"custom_id\": \"a\", \"url\": \"/v1/completions\", \"body\": {\"model\": \"gpt\", "
                                "\"prompt\": \"x\", \"max_tokens\": 1}}\n";
    generate_run(&p, *state, input, (const char *[]){"--served-model-name", "gpt", NULL});
    assert_int_equal(p.exit_status, 0);
    json_t *line = generate_line(&p.out, 0);
    assert_string_equal(text_at(line, "response/body/model"), "gpt");
    if (p.err.data) assert_null(strstr(p.err.data, "warning: a line names"));
    json_decref(line);
    program_free(&p);
}

/* An answer of a conversation ends where the model ends it, or at max_model_len; a line's own length counts. */
static void test_lengths(void **state)
{
    struct program p;
    static const char input[] =
        "{\"custom_id\": \"a\", \"url\": \"/v1/chat/completions\", \"body\": {\"messages\": [{\"role\": \"user\", "
        "\"content\": \"Hi\"}]}}\n"
        "{\"custom_id\": \"b\", \"url\": \"/v1/chat/completions\", \"body\": {\"messages\": [{\"role\": \"user\", "
        "\"content\": \"Hi\"}], \"max_tokens\": 3}}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n";
    generate_run(&p, *state, input, (const char *[]){"--ordered", "--ignore-eos", NULL});
    assert_int_equal(p.exit_status, 0);
    json_t *a = generate_line(&p.out, 0), *b = generate_line(&p.out, 1), *c = generate_line(&p.out, 2);
    assert_int_equal(number_at(a, "response/body/usage/total_tokens"), 512);
    assert_int_equal(number_at(b, "response/body/usage/completion_tokens"), 3);
    assert_int_equal(number_at(c, "completion_tokens") + number_at(c, "prompt_tokens"), 512);
    json_decref(a);
    json_decref(b);
    json_decref(c);
    program_free(&p);
    generate_run(&p, *state, input, (const char *[]){"--ordered", "--ignore-eos", "--max-tokens", "5", NULL});
    a = generate_line(&p.out, 0);
    c = generate_line(&p.out, 2);
    assert_int_equal(number_at(a, "response/body/usage/completion_tokens"), 5);
    assert_int_equal(number_at(c, "completion_tokens"), 5);
    json_decref(a);
    json_decref(c);
    program_free(&p);
}

/* The prompt before each answer, with the log-probabilities of both. */
static void test_echo(void **state)
{
    struct program p;
    static const char input[] =
        "{\"custom_id\": \"a\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"Hello there\", "
        "\"n\": 3, \"echo\": true, \"logprobs\": 1, \"max_tokens\": 4}}\n";
    generate_run(&p, *state, input, (const char *[]){"--ignore-eos", "--temperature", "1", NULL});
    assert_int_equal(p.exit_status, 0);
    json_t *line = generate_line(&p.out, 0);
    const json_t *choice;
    size_t i;
    const int64_t length = number_at(line, "response/body/usage/prompt_tokens");
    assert_int_equal(json_array_size(at(line, "response/body/choices")), 3);
    json_array_foreach((json_t *)at(line, "response/body/choices"), i, choice)
    {
        assert_memory_equal(text_at(choice, "text"), "Hello there", 11);
        assert_int_equal(json_array_size(at(choice, "logprobs/tokens")), length + 4);
        assert_true(json_is_null(at(choice, "logprobs/token_logprobs/0")));
        assert_true(json_is_real(at(choice, "logprobs/token_logprobs/1")));
    }
    json_decref(line);
    program_free(&p);
}

/* tool_choice "required" asks for a form of the answer. */
static void test_forced_tools(void **state)
{
    (void)state;
    struct error err = {""};
    struct openai_request request = {.kind = OPENAI_CHAT};
    json_t *native,
        *body = json_loads("{\"messages\": [1], \"tools\": [{\"type\": \"function\", \"function\": {\"name\": "
                           "\"f\", \"parameters\": {}}}], \"tool_choice\": \"required\"}",
                           0, NULL);
    struct json_reader r = json_reader(body, NULL, &err);
    if (openai_request_read(&r, tool_format_find("hermes"), &request, &native) != STATUS_OK) fail_msg("%s", err.text);
    assert_string_equal(text_at(native, "structured_outputs/structural_tag/type"), "structural_tag");
    json_decref(native);
    json_decref(body);
    openai_request_free(&request);
}

static void test_parser_flags(void **state)
{
    struct program p;
    static const char input[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"tools\": [{\"type\": \"function\", "
        "\"function\": {\"name\": \"f\"}}], \"max_tokens\": 3}\n";
    generate_run(&p, *state, input, (const char *[]){"--tool-call-parser", "hermse", NULL});
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "--tool-call-parser must be one of auto, none, "));
    assert_non_null(strstr(p.err.data, ", hermes, "));
    assert_non_null(strstr(p.err.data, "found 'hermse'"));
    program_free(&p);
    generate_run(&p, *state, input,
                 (const char *[]){"--tool-call-parser", "hermes", "--reasoning-parser", "deepseek_r1", NULL});
    assert_int_equal(p.exit_status, 0);
    json_t *line = generate_line(&p.out, 0);
    assert_true(json_is_array(at(line, "tool_calls")));
    text_at(line, "reasoning");
    json_decref(line);
    program_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bodies),       cmocka_unit_test(test_refused_bodies),
        cmocka_unit_test(test_generate),     cmocka_unit_test(test_served_model_name),
        cmocka_unit_test(test_lengths),      cmocka_unit_test(test_echo),
        cmocka_unit_test(test_forced_tools), cmocka_unit_test(test_parser_flags),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
