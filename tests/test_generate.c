/* quire generate: lines read, prompts parsed, and the whole command from outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/utf8.h"
#include "runtime/commands.h"
#include "runtime/line_reader.h"
#include "runtime/options/template_flags.h"
#include "runtime/prompts/prompt.h"
#include "tests/support/program.h"
#include "tests/support/pty.h"
#include "tests/support/toy_model.h"

struct fixture {
    struct temp_folder model; /* a chat model */
    struct temp_folder files;
    struct tokenizer *tokenizer;
    struct prompt_rules rules;
};

static int set_up(void **state)
{
    static struct fixture f;
    struct error err = {""};
    toy_model_make(&f.model, QUIRE_GUIDE, true);
    temp_folder_make(&f.files);
    if (tokenizer_open(f.model.path, &f.tokenizer, &err) != STATUS_OK) fail_msg("%s", err.text);
    f.rules = (struct prompt_rules){.tokenizer = f.tokenizer,
                                    .defaults = sampling_params_default(),
                                    .vocab_size = tokenizer_size(f.tokenizer),
                                    .num_ids = tokenizer_size(f.tokenizer),
                                    .max_n = 8};
    if (chat_setup_open(f.tokenizer, &(struct chat_setup_options){0}, &f.rules.chat, &err)) fail_msg("%s", err.text);
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    prompt_rules_free(&f->rules);
    tokenizer_close(f->tokenizer);
    temp_folder_remove(&f->files);
    temp_folder_remove(&f->model);
    return 0;
}

/* ---- lines ---- */

/* A reader of a pipe that holds `bytes` and is closed. */
static int pipe_of(const char *bytes)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], bytes, strlen(bytes)), (ssize_t)strlen(bytes));
    close(ends[1]);
    return ends[0];
}

static void expect_line(struct line_reader *r, const char *expected, int64_t number)
{
    const char *line;
    size_t length;
    struct error err = {""};
    assert_int_equal(line_reader_next(r, true, &line, &length, &err), LINE_READY);
    assert_int_equal(length, strlen(expected));
    assert_memory_equal(line, expected, length);
    assert_int_equal(r->line, number);
}

static void test_lines(void **state)
{
    (void)state;
    struct line_reader r;
    const char *line;
    size_t length;
    struct error err = {""};
    int fd = pipe_of("one\n\r\ntwo\r\n\nlast");
    line_reader_init(&r, fd);
    expect_line(&r, "one", 1);
    assert_int_equal(r.consumed, 4);
    expect_line(&r, "", 2);
    expect_line(&r, "two", 3);
    expect_line(&r, "", 4);
    expect_line(&r, "last", 5);
    assert_int_equal(r.consumed, 16);
    assert_int_equal(line_reader_next(&r, true, &line, &length, &err), LINE_END);
    assert_int_equal(line_reader_next(&r, true, &line, &length, &err), LINE_END);
    line_reader_free(&r);
    close(fd);
}

static void test_lines_do_not_wait(void **state)
{
    (void)state;
    struct line_reader r;
    const char *line;
    size_t length;
    struct error err = {""};
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    line_reader_init(&r, ends[0]);
    assert_int_equal(line_reader_next(&r, false, &line, &length, &err), LINE_NOT_YET);
    assert_int_equal(write(ends[1], "ha", 2), 2);
    assert_int_equal(line_reader_next(&r, false, &line, &length, &err), LINE_NOT_YET);
    assert_int_equal(write(ends[1], "lf\n", 3), 3);
    expect_line(&r, "half", 1);
    close(ends[1]);
    assert_int_equal(line_reader_next(&r, false, &line, &length, &err), LINE_END);
    line_reader_free(&r);
    close(ends[0]);
    line_reader_init(&r, ends[0]); /* closed */
    assert_int_equal(line_reader_next(&r, true, &line, &length, &err), LINE_FAILED);
    assert_non_null(strstr(err.text, "cannot read"));
    line_reader_free(&r);
}

static void write_long_line(int fd)
{
    static const char block[65536] = {0};
    for (size_t written = 0; written <= LINE_READER_MAX_LINE + sizeof block; written += sizeof block) {
        if (write(fd, block, sizeof block) != (ssize_t)sizeof block) _exit(1);
    }
    if (write(fd, "\nnext\n", 6) != 6) _exit(1);
    _exit(0);
}

static void test_line_too_long(void **state)
{
    (void)state;
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t writer = fork();
    assert_true(writer >= 0);
    if (writer == 0) write_long_line(ends[1]);
    close(ends[1]);
    struct line_reader r;
    const char *line;
    size_t length;
    struct error err = {""};
    line_reader_init(&r, ends[0]);
    enum line_result result;
    while ((result = line_reader_next(&r, true, &line, &length, &err)) == LINE_NOT_YET) continue;
    assert_int_equal(result, LINE_TOO_LONG);
    assert_int_equal(r.line, 1);
    expect_line(&r, "next", 2);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    line_reader_free(&r);
    close(ends[0]);
}

/* ---- prompts ---- */

static void parse(const struct fixture *f, const char *line, struct prompt *p)
{
    struct error err = {""};
    if (prompt_parse(&f->rules, line, strlen(line), p, &err) != STATUS_OK) fail_msg("%s: %s", line, err.text);
    assert_true(p->tokens.count > 0);
}

static void test_prompt_forms(void **state)
{
    const struct fixture *f = *state;
    struct prompt text, json, ids, chat;
    parse(f, "Hello there", &text);
    parse(f, "  {\"prompt\": \"Hello there\", \"id\": 7}", &json);
    assert_int_equal(text.tokens.count, json.tokens.count);
    assert_memory_equal(text.tokens.ids, json.tokens.ids, text.tokens.count * sizeof(int32_t));
    assert_null(text.id);
    assert_int_equal(json_integer_value(json.id), 7);
    assert_false(text.is_chat);
    parse(f, "{\"prompt\": [5, 6, 7], \"custom_id\": \"seven\"}", &ids);
    assert_int_equal(ids.tokens.count, 3);
    assert_int_equal(ids.tokens.ids[2], 7);
    assert_string_equal(json_string_value(ids.id), "seven");
    prompt_free(&ids);
    parse(f, "{\"prompt_token_ids\": [9], \"prompt\": null}", &ids);
    assert_int_equal(ids.tokens.ids[0], 9);
    parse(f, "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"u\"}]}",
          &chat);
    assert_true(chat.is_chat);
    json_t *messages =
        json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "system", "content", "s", "role", "user", "content", "u");
    const struct chat_input input = {.messages = messages, .add_generation_prompt = true};
    struct token_list expected = {0};
    struct error err;
    assert_int_equal(chat_template_encode(f->rules.chat.template, &input, &expected, &err), STATUS_OK);
    json_decref(messages);
    assert_int_equal(expected.count, chat.tokens.count);
    assert_memory_equal(expected.ids, chat.tokens.ids, expected.count * sizeof(int32_t));
    token_list_free(&expected);
    prompt_free(&text);
    prompt_free(&json);
    prompt_free(&ids);
    prompt_free(&chat);
}

/* The text of the ids of a line, of a prompt that is a chat. */
static void expect_rendered(const struct fixture *f, const struct prompt_rules *rules, const char *line,
                            const char *expected)
{
    struct prompt p;
    struct error err = {""};
    struct text text = {0};
    if (prompt_parse(rules, line, strlen(line), &p, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_true(p.is_chat);
    assert_int_equal(tokenizer_decode(f->tokenizer, p.tokens.ids, p.tokens.count, true, &text, &err), STATUS_OK);
    assert_string_equal(text.data, expected);
    text_free(&text);
    prompt_free(&p);
}

/* tools, documents, chat_template_kwargs, parts of a content, and tool calls as OpenAI's clients write them, through a
 * template of --chat-template with --chat-template-kwargs. */
static void test_what_templates_see(void **state)
{
    const struct fixture *f = *state;
    char path[512];
    struct prompt_rules rules = f->rules;
    struct error err = {""};
    temp_folder_write_string(
        &f->files, "tools.jinja",
        "{% for t in tools or [] %}{{ t.function.name }},{% endfor %}"
        "{% for d in documents or [] %}{{ d.text }},{% endfor %}{{ mode }} {{ other }};"
        "{% for m in messages %}{{ m.role }}={{ m.content }}"
        "{% for c in m.tool_calls or [] %}{{ c.function.arguments.city }}{% endfor %};{% endfor %}");
    assert_true(path_join(path, sizeof path, f->files.path, "tools.jinja"));
    struct chat_setup_options flags = {.file = path, .kwargs = "{\"mode\": \"slow\", \"other\": 1}"};
    if (template_flags_read(&flags, &err) != STATUS_OK) fail_msg("%s", err.text);
    if (chat_setup_open(f->tokenizer, &flags, &rules.chat, &err) != STATUS_OK) fail_msg("%s", err.text);
    expect_rendered(f, &rules, "{\"messages\": [{\"role\": \"developer\", \"content\": \"x\"}]}",
                    "slow 1;developer=x;");
    expect_rendered(f, &rules,
                    "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"},"
                    " {\"type\": \"text\", \"text\": \"b\"}]}], \"chat_template_kwargs\": {\"mode\": \"quick\"},"
                    " \"documents\": [{\"text\": \"page\"}], \"tools\": [{\"function\": {\"name\": \"add\"}}]}",
                    "add,page,quick 1;user=a\nb;");
    expect_rendered(f, &rules,
                    "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": "
                    "{\"name\": \"w\", \"arguments\": \"{\\\"city\\\": \\\"Bonn\\\"}\"}}]},"
                    " {\"role\": \"tool\", \"content\": \"rain\"}]}",
                    "slow 1;assistant=NoneBonn;tool=rain;");
    expect_rendered(
        f, &rules,
        "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"unused\": \"\\ud800\", \"tool_calls\": "
        "[{\"function\": {\"name\": \"w\", \"arguments\": {\"city\": [12345678901234567890, 1e999, -0]}}}]},"
        " {\"role\": \"tool\", \"content\": \"snow\", \"content\": \"rain\"}],"
        " \"chat_template_kwargs\": {\"mode\": NaN}}",
        "nan 1;assistant=None[12345678901234567890, inf, 0];tool=rain;");
    expect_rendered(f, &rules,
                    "{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"function\": "
                    "{\"name\": \"w\", \"arguments\": \"{\\\"city\\\": -98765432109876543210}\"}}]}]}",
                    "slow 1;assistant=-98765432109876543210;");
    chat_setup_close(&rules.chat);
    template_flags_free(&flags);
    const struct chat_setup_options wrong = {.kwargs = "[1]"};
    assert_int_equal(chat_setup_open(f->tokenizer, &wrong, &rules.chat, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "--chat-template-kwargs"));
    chat_setup_close(&rules.chat);
    temp_folder_delete(&f->files, "tools.jinja");
}

static void test_every_field(void **state)
{
    struct fixture f = *(struct fixture *)*state;
    /* A line's own take the place of the default. */
    assert_true(sampling_params_add_stop(&f.rules.defaults, "default"));
    struct prompt p;
    parse(&f,
          "{\"prompt\": \"x\", \"n\": 2, \"temperature\": 0.5, \"top_p\": 0.75, \"top_k\": 40, \"min_p\": 0.125, "
          "\"repetition_penalty\": 1.5, \"presence_penalty\": -1, \"frequency_penalty\": 2, \"max_tokens\": 9, "
          "\"min_tokens\": 3, \"stop\": [\"a\", \"\\u00fc\"], \"stop_token_ids\": [4, 5], \"ignore_eos\": true, "
          "\"seed\": 9223372036854775807, \"logprobs\": 20, \"prompt_logprobs\": 7, \"logit_bias\": {\"3\": -100, "
          "\"12\": 1.5}, "
          "\"skip_special_tokens\": false, \"include_stop_str_in_output\": true, \"cache_salt\": \"mine\", "
          "\"priority\": -7, \"length_penalty\": -0.5, \"early_stopping\": \"never\", \"best_of\": 4}",
          &p);
    const struct sampling_params *s = &p.params;
    assert_true(s->n == 2 && s->temperature == 0.5 && s->top_p == 0.75 && s->top_k == 40 && s->min_p == 0.125);
    assert_true(s->repetition_penalty == 1.5 && s->presence_penalty == -1 && s->frequency_penalty == 2);
    assert_true(s->max_tokens == 9 && s->min_tokens == 3 && s->ignore_eos && s->has_seed);
    assert_true(s->seed == INT64_MAX && s->logprobs == 20 && s->prompt_logprobs == 7 && !s->skip_special_tokens);
    assert_true(s->include_stop_str_in_output);
    assert_true(s->length_penalty == -0.5 && s->early_stopping == EARLY_STOPPING_NEVER && s->best_of == 4);
    assert_int_equal(s->num_stop, 2);
    assert_string_equal(s->stop[1], "\xc3\xbc");
    assert_int_equal(s->num_stop_token_ids, 2);
    assert_int_equal(s->num_logit_bias, 2);
    assert_true(s->logit_bias[1].token == 12 && s->logit_bias[1].value == 1.5f);
    assert_string_equal(p.cache_salt, "mine");
    assert_int_equal(p.priority, -7);
    prompt_free(&p);
    parse(&f, "{\"prompt\": \"x\", \"stop\": \"one\", \"seed\": null, \"n\": null, \"temperature\": 0}", &p);
    assert_int_equal(p.params.num_stop, 1);
    assert_string_equal(p.params.stop[0], "one");
    assert_true(!p.params.has_seed && p.params.n == 1 && p.params.temperature == 0);
    assert_true(!p.cache_salt && p.priority == 0);
    prompt_free(&p);
    parse(&f, "{\"prompt\": \"x\"}", &p);
    assert_string_equal(p.params.stop[0], "default");
    prompt_free(&p);
    parse(&f, "{\"prompt\": \"x\", \"stop\": [], \"beam_width\": 8, \"n\": 8, \"early_stopping\": true}", &p);
    assert_true(p.params.beam_width == 8 && p.params.early_stopping == EARLY_STOPPING_TRUE);
    prompt_free(&p);
    sampling_params_free(&f.rules.defaults);
}

static void refused(const struct prompt_rules *rules, const char *line, size_t length, const char *sentence)
{
    struct prompt p;
    struct error err = {""};
    if (prompt_parse(rules, line, length, &p, &err) == STATUS_OK) fail_msg("accepted: %s", line);
    if (!strstr(err.text, sentence)) fail_msg("%s: %s", line, err.text);
    prompt_free(&p);
}

static void test_refused_lines(void **state)
{
    const struct fixture *f = *state;
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"{", "not valid JSON at column"},
        {"{\"prompt\": \"x\", \"beam_width\": 9}", "beam_width is 9, but --max-num-seqs lets 8 sequences run at once"},
        {"{\"prompt\": \"x\", \"best_of\": 9}", "best_of is 9, but --max-num-seqs lets 8 sequences run at once"},
        {"{\"prompt\": \"x\", \"beam_width\": 2, \"n\": 3}", "n is 3; it must be at most beam_width, which is 2"},
        {"{\"prompt\": \"x\", \"beam_width\": 2, \"stop\": \"x\"}", "stop does not go with a beam search"},
        {"{\"prompt\": \"x\", \"beam_width\": 2, \"best_of\": 2}", "best_of does not go with a beam search"},
        {"{\"prompt\": \"x\", \"best_of\": 2, \"n\": 3}", "n is 3; it must be at most best_of, which is 2"},
        {"{\"prompt\": \"x\", \"early_stopping\": 1}", "early_stopping must be true, false or \"never\", found 1"},
        {"{\"prompt\": \"x\", \"early_stopping\": \"Never\"}", "found \"Never\""},
        {"{\"prompt\": \"x\", \"length_penalty\": \"1\"}", "length_penalty must be"},
        {"{\"prompt\": \"x\"} more", "not valid JSON at column"},
        {"{}", "one of prompt, prompt_token_ids and messages must be given"},
        {"{\"prompt\": \"x\", \"messages\": []}", "and only one"},
        {"{\"prompt\": \"\"}", "the prompt is empty"},
        {"{\"prompt\": []}", "the prompt is empty"},
        {"{\"prompt\": 3}", "prompt must be a string or a list of token ids, found 3"},
        {"{\"prompt\": [1, \"2\"]}", "a token id in prompt must be an integer from 0 to 4095, found \"2\""},
        {"{\"prompt\": [1.5]}", "a token id in prompt must be an integer"},
        {"{\"prompt\": [3000000000]}", "found 3000000000"},
        {"{\"prompt_token_ids\": \"x\"}", "prompt_token_ids must be a list of token ids, found \"x\""},
        {"{\"messages\": {}}", "messages must be a list"},
        {"{\"messages\": []}", "messages is empty"},
        {"{\"messages\": [3]}", "message 1 must be an object with a string \"role\""},
        {"{\"messages\": [{\"content\": \"x\"}]}", "message 1 must be an object with a string \"role\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 3}]}", "the \"content\" of message 1 must be"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}]}",
         "a part of type \"image_url\"; quire reads text alone"},
        {"{\"messages\": [{\"role\": \"user\"}], \"tools\": {}}", "tools must be a list of objects"},
        {"{\"messages\": [{\"role\": \"user\"}], \"documents\": 5}", "documents must be a list of objects"},
        {"{\"messages\": [{\"role\": \"user\"}], \"chat_template_kwargs\": []}", "must be an object"},
        {"{\"prompt\": \"x\", \"tools\": []}", "go with messages only"},
        {"{\"prompt\": \"x\", \"id\": 1.5}", "id must be a string or an integer, found 1.5"},
        {"{\"prompt\": \"x\", \"id\": [1]}", "id must be a string or an integer, found [1]"},
        {"{\"prompt\": \"x\", \"custom_id\": true}", "custom_id must be a string or an integer, found true"},
        {"{\"prompt\": \"x\", \"id\": 1, \"custom_id\": 1}", "id and custom_id are both given"},
        {"{\"prompt\": \"x\", \"temprature\": 1}", "there is no field 'temprature'"},
        {"{\"prompt\": \"x\", \"n\": \"2\"}", "n must be an integer, found \"2\""},
        {"{\"prompt\": \"x\", \"n\": 2.5}", "n must be an integer, found 2.5"},
        {"{\"prompt\": \"x\", \"n\": 0}", "n is 0"},
        {"{\"prompt\": \"x\", \"n\": 9}", "n is 9, but --max-num-seqs lets 8"},
        {"{\"prompt\": \"x\", \"temperature\": \"hot\"}", "temperature must be a number, found \"hot\""},
        {"{\"prompt\": \"x\", \"temperature\": true}", "temperature must be a number, found true"},
        {"{\"prompt\": \"x\", \"temperature\": -1}", "temperature is -1"},
        {"{\"prompt\": \"x\", \"temperature\": 1e999}", "temperature must be a number, found 1e999"},
        {"{\"prompt\": \"x\", \"temperature\": NaN}", "temperature must be a number, found NaN"},
        {"{\"prompt\": \"x\", \"max_tokens\": NaN}",
         "max_tokens must be an integer, found NaN; null stands for no value"},
        {"{\"prompt\": \"x\", \"logit_bias\": NaN}", "logit_bias must be an object {\"id\": value}, found NaN"},
        {"{\"prompt\": \"x\", \"id\": NaN}", "id must be a string or an integer, found NaN"},
        {"{\"prompt\": \"a \\ud800 b\"}",
         "the prompt holds \\ud800, which is half of a surrogate pair and no character"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"\\udc00\"}]}", "the prompt holds \\udc00"},
        {"{\"messages\": [{\"role\": \"user\"}], \"chat_template_kwargs\": NaN}", "must be an object"},
        {"{\"messages\": [NaN]}", "message 1 must be an object with a string \"role\""},
        {"{\"messages\": [{\"role\": \"user\"}], \"tools\": [NaN]}", "tools must be a list of objects"},
        {"{\"prompt\": \"x\", \"top_p\": []}", "top_p must be a number, found []"},
        {"{\"prompt\": \"x\", \"top_p\": 0}", "top_p is 0"},
        {"{\"prompt\": \"x\", \"top_k\": -2}", "top_k is -2"},
        {"{\"prompt\": \"x\", \"min_p\": 2}", "min_p is 2"},
        {"{\"prompt\": \"x\", \"repetition_penalty\": 0}", "repetition_penalty is 0"},
        {"{\"prompt\": \"x\", \"presence_penalty\": 3}", "presence_penalty is 3"},
        {"{\"prompt\": \"x\", \"frequency_penalty\": -3}", "frequency_penalty is -3"},
        {"{\"prompt\": \"x\", \"max_tokens\": 0}", "max_tokens is 0"},
        {"{\"prompt\": \"x\", \"max_tokens\": 99999999999}", "max_tokens is 99999999999, which is too large"},
        {"{\"prompt\": \"x\", \"min_tokens\": -1}", "min_tokens is -1"},
        {"{\"prompt\": \"x\", \"stop\": 3}", "stop must be a string or a list of strings, found 3"},
        {"{\"prompt\": \"x\", \"stop\": [3]}", "stop must be a string or a list of strings, found 3"},
        {"{\"prompt\": \"x\", \"stop\": \"\"}", "stop holds an empty string"},
        {"{\"prompt\": \"x\", \"stop\": \"a\\u0000b\"}",
         "a string in stop must be a string of whole characters without U+0000, found \"a\\u0000b\""},
        {"{\"prompt\": \"x\", \"stop\": [\"\\ud800\"]}", "found \"\\ud800\""},
        {"{\"prompt\": \"x\", \"stop_token_ids\": 3}", "stop_token_ids must be a list of token ids, found 3"},
        {"{\"prompt\": \"x\", \"stop_token_ids\": [\"3\"]}", "an id in stop_token_ids must be an integer, found \"3\""},
        {"{\"prompt\": \"x\", \"stop_token_ids\": [-3]}", "-3"},
        {"{\"prompt\": \"x\", \"ignore_eos\": 1}", "ignore_eos must be true or false, found 1"},
        {"{\"prompt\": \"x\", \"skip_special_tokens\": \"no\"}",
         "skip_special_tokens must be true or false, found \"no\""},
        {"{\"prompt\": \"x\", \"seed\": -2}", "seed must be an integer of -1 or more, found -2"},
        {"{\"prompt\": \"x\", \"seed\": 1.5}", "seed must be an integer of -1 or more, found 1.5"},
        {"{\"prompt\": [\"a\", \"b\"]}", "prompt is a list of prompts; put each on a line of its own"},
        {"{\"prompt\": \"x\", \"max_tokens\": 9007199254740994.0}",
         "max_tokens must be an integer, found 9.00719925e15"},
        {"{\"url\": \"/v1/completions\", \"body\": {\"prompt\": \"x\"}}",
         "custom_id is missing, by which the answer to a line of a batch is found"},
        {"{\"prompt\": \"x\", \"logprobs\": 21}", "logprobs is 21"},
        {"{\"prompt\": \"x\", \"logprobs\": true}", "logprobs must be an integer, found true"},
        {"{\"prompt\": \"x\", \"prompt_logprobs\": 21}",
         "prompt_logprobs is 21; it must be between 0 and 20, or -1 (none)"},
        {"{\"prompt\": \"x\", \"prompt_logprobs\": \"all\"}", "prompt_logprobs must be an integer, found \"all\""},
        {"{\"prompt\": \"x\", \"logit_bias\": []}", "logit_bias must be an object {\"id\": value}, found []"},
        {"{\"prompt\": \"x\", \"logit_bias\": {\"a\": 1}}", "logit_bias has the key 'a', which is no token id"},
        {"{\"prompt\": \"x\", \"logit_bias\": {\"1\": \"b\"}}", "a value in logit_bias must be a number, found \"b\""},
        {"{\"prompt\": \"x\", \"logit_bias\": {\"1\": 101}}", "101"},
        {"{\"prompt\": \"x\", \"logit_bias\": {\"99999999\": 1}}", "99999999"},
        {"{\"prompt\": \"x\", \"cache_salt\": 3}", "cache_salt must be a string, found 3"},
        {"{\"prompt\": \"x\", \"cache_salt\": \"\"}", "cache_salt is empty"},
        {"{\"prompt\": \"x\", \"cache_salt\": \"\\u0000a\"}",
         "cache_salt must be a string of whole characters without U+0000"},
        {"{\"prompt\": \"x\", \"priority\": \"high\"}", "priority must be an integer"},
        {"{\"prompt\": \"x\", \"priority\": 1.5}", "priority must be an integer"},
        {"{\"prompt\": \"x\", \"priority\": 2147483648}", "found 2147483648"},
        {"not \xff UTF-8", "byte 5 is not UTF-8"},
        {"half a character \xc3", "byte 18 is not UTF-8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        refused(&f->rules, cases[i].line, strlen(cases[i].line), cases[i].sentence);
    }
    struct prompt_rules rules = f->rules;
    rules.format = PROMPT_FORMAT_JSONL;
    refused(&rules, "plain text", 10, "not valid JSON at column");
    refused(&rules, "[1]", 3, "expected a JSON object {...}, found an array");
    rules.format = PROMPT_FORMAT_TEXT;
    refused(&rules, "h\0i\0", 4, "byte 2 is NUL");
    struct prompt p;
    struct error err;
    assert_int_equal(prompt_parse(&rules, "{", 1, &p, &err), STATUS_OK);
    prompt_free(&p);
    rules = f->rules;
    rules.tokenizer = NULL;
    refused(&rules, "text", 4, "without a tokenizer a prompt must be a list of token ids");
    refused(&rules, "{\"messages\": []}", 16, "without a tokenizer");
    rules.tokenizer = f->tokenizer;
    rules.chat = (struct chat_setup){.status = STATUS_UNSUPPORTED, .reason = {"no template"}};
    const char *chat = "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}";
    refused(&rules, chat, strlen(chat), "no template");
}

static void test_id_of_a_bad_line(void **state)
{
    const struct fixture *f = *state;
    const char *line = "{\"prompt\": \"x\", \"id\": \"mine\", \"n\": -1}";
    struct prompt p;
    struct error err;
    assert_int_equal(prompt_parse(&f->rules, line, strlen(line), &p, &err), STATUS_INVALID);
    assert_string_equal(json_string_value(p.id), "mine"); /* so that its error can be told apart */
    prompt_free(&p);
}

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

/* Changes, drops or doubles a few bytes. */
static size_t mutate(char *line, size_t length, size_t capacity, uint32_t *random)
{
    static const char bytes[] = "{}[]\":,0-9.eE\\utrfn \x80\xff\0a";
    for (uint32_t edits = 1 + next_random(random) % 4; edits > 0 && length > 1; edits--) {
        size_t at = next_random(random) % length;
        uint32_t kind = next_random(random) % 3;
        if (kind == 0) {
            line[at] = bytes[next_random(random) % sizeof bytes];
        } else if (kind == 1) {
            memmove(line + at, line + at + 1, --length - at);
        } else if (length < capacity) {
            memmove(line + at + 1, line + at, length++ - at);
        }
    }
    return length;
}

/* Every line gives a prompt or an error sentence, whatever it holds. */
static void test_mutated_lines(void **state)
{
    const struct fixture *f = *state;
    static const char *const seeds[] = {
        "{\"prompt\": \"Hello\", \"n\": 2, \"temperature\": 0.5, \"stop\": [\"a\", \"b\"], \"seed\": 12, \"priority\": "
        "3, "
        "\"cache_salt\": \"s\"}",
        "{\"prompt\": [5, 6, 7], \"logit_bias\": {\"3\": -100, \"12\": 1.5}, \"stop_token_ids\": [1], \"id\": \"q\"}",
        "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"\\u00fc\"}]}",
    };
    enum { ROUNDS = 5000, CAPACITY = 256 };
    uint32_t random = 2463534242u;
    int accepted = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const char *seed = seeds[round % 3];
        char buffer[CAPACITY];
        size_t length = strlen(seed);
        memcpy(buffer, seed, length);
        length = mutate(buffer, length, sizeof buffer, &random);
        char *exact = malloc(length); /* so that reading past the end is seen */
        assert_non_null(exact);
        memcpy(exact, buffer, length);
        struct prompt p;
        struct error err = {""};
        if (prompt_parse(&f->rules, exact, length, &p, &err) == STATUS_OK) {
            assert_true(p.tokens.count > 0);
            accepted++;
        } else {
            assert_true(err.text[0] != '\0');
        }
        prompt_free(&p);
        free(exact);
    }
    assert_true(accepted > 0 && accepted < ROUNDS);
}

/* ---- the command ---- */

enum { MAX_ARGS = 32 };

static void make_argv(const char **argv, const struct fixture *f, const char *const *more)
{
    const char *const first[] = {QUIRE_EXECUTABLE,   "generate", "--model",         f->model.path,
                                 "--load-format",    "dummy",    "--device",        "cpu",
                                 "--max-num-seqs",   "4",        "--max-model-len", "512",
                                 "--kv-cache-space", "0.1",      "--ignore-eos",    "--no-chat"};
    int argc = 0;
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) argv[argc++] = first[i];
    while (argc < MAX_ARGS && *more) argv[argc++] = *more++;
    argv[argc] = NULL;
}

static void run(struct program *p, const struct fixture *f, const char *input, const char *const *more)
{
    const char *argv[MAX_ARGS + 1];
    make_argv(argv, f, more);
    program_run(p, argv, input);
}

/* The line at *at as JSON; moves to the next. */
static json_t *next_json(const char **at)
{
    const char *end = strchr(*at, '\n');
    assert_non_null(end);
    json_error_t why;
    json_t *object = json_loadb(*at, (size_t)(end - *at), 0, &why);
    if (!object) fail_msg("%s in: %s", why.text, *at);
    *at = end + 1;
    return object;
}

/* The n-th line (from 0) of a text as JSON. */
static json_t *json_line(const struct text *t, int n)
{
    const char *at = t->data;
    assert_non_null(at);
    for (int i = 0; i < n; i++) {
        at = strchr(at, '\n');
        if (!at) fail_msg("there is no line %d in: %s", n, t->data);
        at++;
    }
    return next_json(&at);
}

static int count_lines(const struct text *t)
{
    int lines = 0;
    for (size_t i = 0; i < t->length; i++) lines += t->data[i] == '\n';
    return lines;
}

static const char *string_of(const json_t *object, const char *name)
{
    const char *string = json_string_value(json_object_get(object, name));
    if (!string) fail_msg("there is no text %s", name);
    return string;
}

static int64_t integer_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    if (!json_is_integer(value)) fail_msg("there is no number %s", name);
    return json_integer_value(value);
}

static void test_text_lines(void **state)
{
    struct program p;
    run(&p, *state,
        "\xEF\xBB\xBF"
        "First prompt\n\n  \nSecond one\r\nthird",
        (const char *[]){"--ordered", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(count_lines(&p.out), 3);
    for (int i = 0; i < 3; i++) { /* blank lines do not count */
        json_t *line = json_line(&p.out, i);
        assert_int_equal(integer_of(line, "index"), i);
        assert_null(json_object_get(line, "id"));
        assert_int_equal(integer_of(line, "completion_tokens"), 16); /* the default of max_tokens */
        assert_true(integer_of(line, "prompt_tokens") > 0);
        assert_int_equal(integer_of(line, "cached_tokens"), 0);
        assert_string_equal(string_of(line, "finish_reason"), "length");
        assert_true(strlen(string_of(line, "text")) > 0);
        assert_null(json_object_get(line, "token_ids"));
        assert_null(json_object_get(line, "logprobs"));
        assert_null(json_object_get(line, "prompt_logprobs"));
        json_decref(line);
    }
    assert_non_null(strstr(p.err.data, "3 prompts, 48 tokens in"));
    assert_non_null(strstr(p.err.data, "; 3 answers were cut by length"));
    program_free(&p);
}

static void test_json_lines(void **state)
{
    struct program p;
    run(&p, *state,
        "{\"prompt\": \"x\", \"id\": \"first\", \"max_tokens\": 40}\n"
        "{\"prompt_token_ids\": [5, 6, 7], \"custom_id\": 99, \"max_tokens\": 2}\n"
        "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"max_tokens\": 3}\n"
        "{\"prompt\": \"plain\", \"max_tokens\": null}\n",
        (const char *[]){"--quiet", "--return-token-ids", "--ordered", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(p.err.length, 0);
    assert_int_equal(count_lines(&p.out), 4);
    static const int tokens[] = {40, 2, 3, 16};
    for (int i = 0; i < 4; i++) { /* in the order of the input, though the first takes longest */
        json_t *line = json_line(&p.out, i);
        assert_int_equal(integer_of(line, "completion_tokens"), tokens[i]);
        assert_int_equal(json_array_size(json_object_get(line, "token_ids")), tokens[i]);
        if (i == 0) assert_string_equal(string_of(line, "id"), "first");
        if (i == 1) assert_int_equal(integer_of(line, "id"), 99);
        if (i == 1) assert_int_equal(integer_of(line, "prompt_tokens"), 3);
        if (i >= 2) assert_null(json_object_get(line, "id")); /* none is made up */
        assert_int_equal(integer_of(line, "index"), i);
        json_decref(line);
    }
    program_free(&p);
}

/* What comes back with an answer is spelled as it was. */
static void test_spelling(void **state)
{
    struct program p;
    run(&p, *state,
        "\xEF\xBB\xBF{\"prompt\": \"x\", \"id\": 12345678901234567890, \"max_tokens\": 1}\n"
        "{\"prompt\": \"x\", \"id\": \"\\uD800\\u0000\", \"max_tokens\": 9, \"max_tokens\": 1}\n"
        "{\"custom_id\": \"c\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"x\", "
        "\"metadata\": {\"a\": [1e999, NaN]}, \"max_tokens\": 1}}\n",
        (const char *[]){"--quiet", "--ordered", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "{\"index\": 0, \"id\": 12345678901234567890, \"text\": "));
    assert_non_null(strstr(p.out.data, "{\"index\": 1, \"id\": \"\\ud800\\u0000\", \"text\": "));
    assert_non_null(strstr(p.out.data, "\"metadata\":{\"a\":[1e999,NaN]}}"));
    assert_int_equal(count_lines(&p.out), 3);
    program_free(&p);
    run(&p, *state,
        "{\"prompt\": \"x\", \"id\": 1}\n{\"prompt\": 3, \"custom_id\": 1}\n{\"prompt\": \"x\", \"id\": \"1\"}\n",
        (const char *[]){NULL});
    assert_non_null(strstr(p.err.data, "; 1 id occurs more than once\n"));
    program_free(&p);
}

/* Behind a line of JSON a line of text is an error, unless each line is a text. */
static void test_text_among_objects(void **state)
{
    struct program p;
    const char *input = "{\"prompt\": \"x\", \"max_tokens\": 1}\n[1, 2]\n\"x\"\nplain\n";
    run(&p, *state, input, (const char *[]){"--quiet", "--ordered", NULL});
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(count_lines(&p.out), 4);
    for (int i = 1; i < 4; i++) {
        json_t *line = json_line(&p.out, i);
        assert_non_null(
            strstr(string_of(line, "error"), "expected a JSON object {...}, as the file's name or a line before"));
        json_decref(line);
    }
    program_free(&p);
    run(&p, *state, input, (const char *[]){"--quiet", "--format", "text", NULL});
    assert_int_equal(p.exit_status, 0);
    program_free(&p);
    run(&p, *state, "[\n{\"prompt\": \"x\"}]\n", (const char *[]){"--quiet", NULL}); /* a pipe */
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(p.out.length, 0);
    assert_non_null(strstr(p.err.data, "standard input: this is a JSON array"));
    program_free(&p);
}

/* 5.0 is 5, as pandas writes it, and -1 is any seed. */
static void test_numbers(void **state)
{
    const struct fixture *f = *state;
    struct prompt p;
    parse(f, "{\"prompt\": [5.0, 6], \"max_tokens\": 5.0, \"top_k\": -1.0, \"seed\": 3.0, \"priority\": -0.0}", &p);
    assert_true(p.params.max_tokens == 5 && p.params.top_k == -1 && p.params.has_seed && p.params.seed == 3);
    assert_int_equal(p.tokens.ids[0], 5);
    prompt_free(&p);
    parse(f, "{\"prompt\": \"x\", \"seed\": -1}", &p);
    assert_false(p.params.has_seed);
    prompt_free(&p);
}

/* max_new_tokens is the default of max_tokens, of conversations too; --generation-config chooses the file. */
static void test_generation_config(void **state)
{
    const struct fixture *f = *state;
    const char *elsewhere = f->files.path;
    const struct {
        const char *value, *max_tokens;
        int64_t text, conversation; /* tokens of an answer; -1: all that the context has room for */
    } cases[] = {{"auto", NULL, 5, 5}, {elsewhere, NULL, 7, 7}, {"vllm", NULL, 16, -1}, {"auto", "3", 3, 3}};
    temp_folder_write_string(&f->model, "generation_config.json", "{\"max_new_tokens\": 5}");
    temp_folder_write_string(&f->files, "generation_config.json", "{\"max_new_tokens\": 7}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p;
        run(&p, f, "{\"prompt\": \"x\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}]}\n",
            (const char *[]){"--ordered", "--generation-config", cases[i].value,
                             cases[i].max_tokens ? "--max-tokens" : NULL, cases[i].max_tokens, NULL});
        assert_int_equal(p.exit_status, 0);
        json_t *text = json_line(&p.out, 0), *conversation = json_line(&p.out, 1);
        assert_int_equal(integer_of(text, "completion_tokens"), cases[i].text);
        const int64_t room = 512 - integer_of(conversation, "prompt_tokens");
        assert_int_equal(integer_of(conversation, "completion_tokens"),
                         cases[i].conversation < 0 ? room : cases[i].conversation);
        json_decref(text);
        json_decref(conversation);
        program_free(&p);
    }
    temp_folder_delete(&f->model, "generation_config.json");
    temp_folder_delete(&f->files, "generation_config.json");
}

/* Each of several eos_token_ids ends an answer, as <|return|> and <|call|> of gpt-oss do. */
static void test_several_ends(void **state)
{
    enum { TOKENS = 12 };
    const struct fixture *f = *state;
    const char *input = "{\"prompt\": \"x\", \"temperature\": 1, \"seed\": 5, \"max_tokens\": 12}\n";
    struct program p;
    json_int_t ids[TOKENS];
    int end = 1;
    run(&p, f, input, (const char *[]){"--return-token-ids", NULL});
    json_t *all = json_line(&p.out, 0);
    for (size_t i = 0; i < TOKENS; i++)
        ids[i] = json_integer_value(json_array_get(json_object_get(all, "token_ids"), i));
    while (end < TOKENS && ids[end] == ids[0]) end++;
    assert_true(end < TOKENS); /* the first token that is not the first again */
    json_decref(all);
    program_free(&p);
    for (int place = 0; place < 3; place++) {
        json_int_t list[3] = {0, 0, 0}; /* ids of no token of the answer, but for one */
        char config[100];
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < TOKENS; j++)
                if (ids[j] == list[i]) list[i]++, j = -1;
        list[place] = ids[end];
        snprintf(config, sizeof config, "{\"eos_token_id\": [%d, %d, %d]}", (int)list[0], (int)list[1], (int)list[2]);
        temp_folder_write_string(&f->model, "generation_config.json", config);
        run(&p, f, input, (const char *[]){"--no-ignore-eos", NULL});
        json_t *line = json_line(&p.out, 0);
        assert_string_equal(string_of(line, "finish_reason"), "stop");
        assert_int_equal(integer_of(line, "completion_tokens"), end + 1);
        json_decref(line);
        program_free(&p);
    }
    temp_folder_delete(&f->model, "generation_config.json");
}

/* A priority that would be ignored is refused. */
static void test_priorities_need_their_policy(void **state)
{
    struct program p;
    const char *input = "{\"prompt\": \"x\", \"priority\": 2, \"cache_salt\": \"mine\", \"max_tokens\": 1}\n"
                        "{\"prompt\": \"x\", \"priority\": 0, \"cache_salt\": \"mine\", \"max_tokens\": 1}\n";
    run(&p, *state, input, (const char *[]){"--quiet", "--ordered", NULL});
    assert_int_equal(p.exit_status, 1);
    json_t *line = json_line(&p.out, 0);
    assert_string_equal(string_of(line, "error"),
                        "line 1: priority is 2, but requests run in order of arrival: set --scheduling-policy to "
                        "priority");
    json_decref(line);
    line = json_line(&p.out, 1);
    assert_int_equal(integer_of(line, "completion_tokens"), 1);
    json_decref(line);
    program_free(&p);
    run(&p, *state, input, (const char *[]){"--quiet", "--ordered", "--scheduling-policy", "priority", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(count_lines(&p.out), 2);
    program_free(&p);
}

static void test_bad_lines(void **state)
{
    struct program p;
    struct text input = {0};
    assert_true(text_append_string(&input, "good\n{\"prompt\": 3, \"id\": \"bad\"}\n\xff\n{\"prompt\": [1000000]}\n"));
    assert_true(text_append_string(&input, "{\"prompt\": \""));
    for (int i = 0; i < 600; i++) assert_true(text_append_string(&input, "too long "));
    assert_true(text_append_string(
        &input, "\"}\n{\"prompt\": \"good again\"}\n{\"prompt\": \"x\", \"max_tokens\": \"many\"}\n"));
    run(&p, *state, input.data, (const char *[]){"--max-tokens", "2", "--ordered", NULL});
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(count_lines(&p.out), 7);
    static const char *const sentences[] = {
        NULL,
        "line 2: prompt must be a string",
        "line 3: byte 1 is not UTF-8",
        "line 4: a token id in prompt must be an integer from 0 to 4095, found 1000000",
        "line 5: the prompt has ",
        NULL,
        "line 7: max_tokens must be an integer, found \"many\""};
    for (int i = 0; i < 7; i++) {
        json_t *line = json_line(&p.out, i);
        if (sentences[i]) {
            assert_non_null(strstr(string_of(line, "error"), sentences[i]));
            assert_int_equal(json_object_size(line), i == 1 ? 4 : 3);
            assert_int_equal(integer_of(line, "line"), i + 1);
        } else {
            assert_string_equal(string_of(line, "finish_reason"), "length");
        }
        if (i == 1) assert_string_equal(string_of(line, "id"), "bad");
        json_decref(line);
    }
    assert_non_null(strstr(p.err.data, "5 of 7 prompts failed"));
    text_free(&input);
    program_free(&p);
}

/* The entries from `first` on. */
static void check_logprobs_from(const json_t *list, size_t first, size_t tokens)
{
    assert_int_equal(json_array_size(list), tokens);
    for (size_t i = first; i < tokens; i++) {
        const json_t *entry = json_array_get(list, i), *top = json_object_get(entry, "top");
        double logprob = json_real_value(json_object_get(entry, "logprob"));
        assert_true(logprob < 0);
        assert_true(integer_of(entry, "rank") >= 1);
        string_of(entry, "token");
        assert_int_equal(json_array_size(top), 2);
        double best = json_real_value(json_object_get(json_array_get(top, 0), "logprob"));
        assert_true(best >= json_real_value(json_object_get(json_array_get(top, 1), "logprob")));
        assert_true(best >= logprob);
        if (integer_of(entry, "rank") == 1) {
            assert_int_equal(integer_of(json_array_get(top, 0), "token_id"), integer_of(entry, "token_id"));
        }
    }
}

static void check_logprobs(const json_t *list, size_t tokens)
{
    check_logprobs_from(list, 0, tokens);
}

/* Once for each request, whatever the number and the kind of its answers; a line's own take the place of the flag's. */
static void test_prompt_logprobs(void **state)
{
    static const int32_t ids[] = {5, 9, 17, 3, 5};
    struct program p;
    run(&p, *state,
        "{\"prompt\": [5, 9, 17, 3, 5]}\n"
        "{\"prompt\": [5, 9, 17, 3, 5], \"n\": 3, \"logprobs\": 0}\n"
        "{\"prompt\": [5, 9, 17, 3, 5], \"beam_width\": 2}\n"
        "{\"prompt\": [5, 9, 17, 3, 5], \"best_of\": 2}\n"
        "{\"prompt\": [5, 9, 17, 3, 5], \"prompt_logprobs\": 0}\n"
        "{\"prompt\": [5, 9, 17, 3, 5], \"prompt_logprobs\": -1}\n"
        "{\"prompt\": [5]}\n",
        (const char *[]){"--prompt-logprobs", "2", "--temperature", "1", "--max-tokens", "3", "--ordered", NULL});
    assert_int_equal(p.exit_status, 0);
    json_t *lines[7];
    for (int i = 0; i < 7; i++) lines[i] = json_line(&p.out, i);
    const json_t *first = json_object_get(lines[0], "prompt_logprobs");
    check_logprobs_from(first, 1, 5);
    assert_true(json_is_null(json_array_get(first, 0)));
    for (size_t i = 1; i < 5; i++) assert_int_equal(integer_of(json_array_get(first, i), "token_id"), ids[i]);
    for (int i = 1; i < 4; i++) assert_true(json_equal(json_object_get(lines[i], "prompt_logprobs"), first));
    assert_int_equal(json_array_size(json_object_get(lines[1], "logprobs")), 3);
    const json_t *own = json_array_get(json_object_get(lines[4], "prompt_logprobs"), 3);
    assert_int_equal(json_array_size(json_object_get(own, "top")), 0);
    assert_true(json_equal(json_object_get(own, "logprob"), json_object_get(json_array_get(first, 3), "logprob")));
    assert_null(json_object_get(lines[5], "prompt_logprobs"));
    assert_int_equal(json_array_size(json_object_get(lines[6], "prompt_logprobs")), 1);
    for (int i = 0; i < 7; i++) json_decref(lines[i]);
    program_free(&p);
    run(&p, *state, "x\n", (const char *[]){"--prompt-logprobs", "21", NULL});
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "prompt_logprobs is 21; it must be between 0 and 20, or -1 (none)"));
    program_free(&p);
}

static void test_several_answers_and_logprobs(void **state)
{
    struct program p;
    run(&p, *state, "{\"prompt\": \"x\"}\n{\"prompt\": \"x\", \"n\": 3, \"temperature\": 1}\n",
        (const char *[]){"--logprobs", "2", "--temperature", "0", "--max-tokens", "4", "--return-token-ids",
                         "--ordered", NULL});
    assert_int_equal(p.exit_status, 0);
    json_t *one = json_line(&p.out, 0), *three = json_line(&p.out, 1);
    check_logprobs(json_object_get(one, "logprobs"), 4);
    assert_int_equal(integer_of(json_array_get(json_object_get(one, "logprobs"), 0), "rank"), 1); /* greedy */
    assert_null(json_object_get(three, "text"));
    assert_null(json_object_get(three, "finish_reason"));
    assert_int_equal(json_array_size(json_object_get(three, "texts")), 3);
    assert_int_equal(json_array_size(json_object_get(three, "finish_reasons")), 3);
    assert_int_equal(integer_of(three, "completion_tokens"), 12);
    assert_int_equal(json_array_size(json_object_get(three, "token_ids")), 3);
    for (size_t i = 0; i < 3; i++) check_logprobs(json_array_get(json_object_get(three, "logprobs"), i), 4);
    json_decref(one);
    json_decref(three);
    program_free(&p);
}

/* Scores fall from answer to answer; the best of the best_of is the best of n with the same seed. */
static void test_ranked_answers(void **state)
{
    struct program p;
    run(&p, *state,
        "{\"prompt\": \"x\", \"beam_width\": 4, \"n\": 3}\n"
        "{\"prompt\": \"x\", \"beam_width\": 2, \"temperature\": 0, \"early_stopping\": \"never\"}\n"
        "{\"prompt\": \"x\", \"best_of\": 4, \"seed\": 3}\n"
        "{\"prompt\": \"x\", \"n\": 4, \"seed\": 3, \"logprobs\": 0}\n",
        (const char *[]){"--temperature", "1", "--max-tokens", "4", "--ignore-eos", "--return-token-ids", "--ordered",
                         NULL});
    assert_int_equal(p.exit_status, 0);
    json_t *beams = json_line(&p.out, 0), *one = json_line(&p.out, 1);
    json_t *best = json_line(&p.out, 2), *all = json_line(&p.out, 3);
    const json_t *scores = json_object_get(beams, "scores");
    assert_int_equal(json_array_size(scores), 3);
    assert_int_equal(json_array_size(json_object_get(beams, "texts")), 3);
    assert_int_equal(integer_of(beams, "completion_tokens"), 12);
    for (size_t i = 0; i < 3; i++) {
        const double score = json_real_value(json_array_get(scores, i));
        assert_true(score < 0 && (i == 0 || score <= json_real_value(json_array_get(scores, i - 1))));
    }
    assert_true(json_real_value(json_object_get(one, "score")) < 0);
    double highest = -1e9;
    size_t highest_at = 0;
    for (size_t i = 0; i < 4; i++) {
        const json_t *logprobs = json_array_get(json_object_get(all, "logprobs"), i);
        double sum = 0;
        for (size_t j = 0; j < 4; j++) sum += json_real_value(json_object_get(json_array_get(logprobs, j), "logprob"));
        if (sum > highest) highest = sum, highest_at = i;
    }
    const double given = json_real_value(json_object_get(best, "cumulative_logprob"));
    assert_true(given < highest + 1e-3 && given > highest - 1e-3);
    assert_true(
        json_equal(json_object_get(best, "token_ids"), json_array_get(json_object_get(all, "token_ids"), highest_at)));
    assert_null(json_object_get(best, "score"));
    assert_null(json_object_get(all, "cumulative_logprobs"));
    json_decref(beams);
    json_decref(one);
    json_decref(best);
    json_decref(all);
    program_free(&p);
}

static void test_refused_beam_flags(void **state)
{
    static const struct {
        const char *flags[5], *sentence;
    } cases[] = {
        {{"--beam-width", "33"}, "beam_width is 33; it must be between 1 and 32"},
        {{"--beam-width", "2", "--stop", "x"}, "stop does not go with a beam search"},
        {{"--beam-width", "2", "--logit-bias", "3:1"}, "logit_bias does not go with a beam search"},
        {{"--beam-width", "2", "--logprobs", "1"}, "logprobs does not go with a beam search"},
        {{"--beam-width", "2", "--n", "3"}, "n is 3; it must be at most beam_width"},
        {{"--best-of", "2", "--n", "3"}, "n is 3; it must be at most best_of"},
        {{"--early-stopping", "maybe"}, "expected true, false or never, got 'maybe'"},
        {{"--length-penalty", "inf"}, "length-penalty"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p;
        run(&p, *state, "x\n", cases[i].flags);
        assert_int_equal(p.exit_status, 2);
        if (!strstr(p.err.data, cases[i].sentence)) fail_msg("%s", p.err.data);
        program_free(&p);
    }
}

static void test_stop(void **state)
{
    struct program p;
    run(&p, *state, "{\"prompt\": \"x\", \"id\": \"all\"}\n", (const char *[]){"--temperature", "0", NULL});
    json_t *line = json_line(&p.out, 0);
    const char *text = string_of(line, "text"), *space = strchr(text + 1, ' ');
    assert_non_null(space);
    char stop[8];
    snprintf(stop, sizeof stop, "%.2s", space); /* the second word's beginning */
    if (utf8_valid_prefix(stop, strlen(stop)) < strlen(stop)) stop[1] = '\0';
    struct program stopped;
    run(&stopped, *state, "x\n", (const char *[]){"--temperature", "0", "--stop", stop, NULL});
    json_t *cut = json_line(&stopped.out, 0);
    assert_string_equal(string_of(cut, "finish_reason"), "stop");
    size_t length = (size_t)(strstr(text, stop) - text);
    assert_int_equal(strlen(string_of(cut, "text")), length);
    assert_memory_equal(string_of(cut, "text"), text, length);
    json_decref(line);
    json_decref(cut);
    program_free(&p);
    program_free(&stopped);
}

static int compare_lines(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The lines of *t, sorted: pointers into it [count_lines(t)]. */
static char **sorted_lines(struct text *t)
{
    int count = 0;
    char **lines = calloc((size_t)count_lines(t) + 1, sizeof *lines);
    assert_non_null(lines);
    for (char *line = strtok(t->data, "\n"); line; line = strtok(NULL, "\n")) lines[count++] = line;
    qsort(lines, (size_t)count, sizeof *lines, compare_lines);
    return lines;
}

/* Many more lines than are read ahead: every line gets its answer, in the input's order with --ordered, and the same
 * seed gives the same answers in either order. */
static void test_many_lines(void **state)
{
    struct text input = {0};
    for (int i = 0; i < 1000; i++) {
        assert_true(text_printf(&input, "{\"prompt\": [%d, 5, 6], \"id\": %d, \"max_tokens\": %d}\n", 10 + i % 50, i,
                                1 + (i * 7) % 5));
    }
    struct program ordered, unordered;
    run(&ordered, *state, input.data, (const char *[]){"--seed", "3", "--ordered", NULL});
    assert_int_equal(ordered.exit_status, 0);
    assert_int_equal(count_lines(&ordered.out), 1000);
    const char *at = ordered.out.data;
    for (int i = 0; i < 1000; i++) {
        json_t *line = next_json(&at);
        assert_int_equal(integer_of(line, "id"), i);
        assert_int_equal(integer_of(line, "completion_tokens"), 1 + (i * 7) % 5);
        json_decref(line);
    }
    run(&unordered, *state, input.data, (const char *[]){"--seed", "3", NULL});
    assert_int_equal(unordered.exit_status, 0);
    assert_int_equal(count_lines(&unordered.out), 1000);
    assert_string_not_equal(ordered.out.data, unordered.out.data); /* a short answer overtakes a long one */
    char **expected = sorted_lines(&ordered.out), **lines = sorted_lines(&unordered.out);
    for (int i = 0; i < 1000; i++) assert_string_equal(expected[i], lines[i]);
    free(expected);
    free(lines);
    program_free(&ordered);
    program_free(&unordered);
    text_free(&input);
}

static void test_without_tokenizer(void **state)
{
    struct program p;
    run(&p, *state, "{\"prompt\": [3, 4]}\n{\"prompt\": \"text\"}\n",
        (const char *[]){"--skip-tokenizer-init", "--return-token-ids", "--logprobs", "1", "--ordered", NULL});
    assert_int_equal(p.exit_status, 1);
    json_t *good = json_line(&p.out, 0), *bad = json_line(&p.out, 1);
    assert_string_equal(string_of(good, "text"), "");
    assert_int_equal(json_array_size(json_object_get(good, "token_ids")), 16);
    assert_non_null(strstr(string_of(bad, "error"), "line 2: without a tokenizer"));
    json_decref(good);
    json_decref(bad);
    program_free(&p);
}

/* Answers and progress on one screen: the progress line is cleared before an answer is written. */
static void test_terminal(void **state)
{
    const struct fixture *f = *state;
    const char *argv[MAX_ARGS + 1];
    struct pty p;
    make_argv(argv, f, (const char *[]){"--max-tokens", "2", NULL});
    pty_start(&p, argv);
    pty_type(&p, "one\r");
    pty_expect(&p, "0 done");
    pty_expect(&p, "\r\033[K{\"index\": 0");
    pty_type(&p, "\x04");
    assert_int_equal(pty_finish(&p), 0);
}

/* ---- files ---- */

static const char *path_of(const struct fixture *f, const char *name, char *path, size_t size)
{
    assert_true(path_join(path, size, f->files.path, name));
    return path;
}

static void read_file(const char *path, struct text *out)
{
    struct error err;
    if (file_read(path, out, &err) != STATUS_OK) fail_msg("%s", err.text);
}

static void test_files(void **state)
{
    const struct fixture *f = *state;
    char in[512], out[512];
    struct program p;
    temp_folder_write_string(&f->files, "in.txt", "one\ntwo\n");
    temp_folder_write_string(&f->files, "out.jsonl", "");
    path_of(f, "in.txt", in, sizeof in);
    path_of(f, "out.jsonl", out, sizeof out);
    run(&p, f, NULL, (const char *[]){"--input", in, "--output", out, "--max-tokens", "1", NULL});
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(p.out.length, 0);
    struct text written = {0};
    read_file(out, &written);
    assert_int_equal(count_lines(&written), 2);
    assert_int_equal(written.data[0], '{');
    text_free(&written);
    program_free(&p);
    temp_folder_write_string(&f->files, "empty.txt", "");
    run(&p, f, NULL, (const char *[]){"--input", path_of(f, "empty.txt", in, sizeof in), NULL});
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(p.out.length, 0);
    program_free(&p);
}

static void check_exit(const struct fixture *f, int exit_status, const char *const *args, const char *sentence)
{
    struct program p;
    run(&p, f, "prompt\n", args);
    assert_int_equal(p.exit_status, exit_status);
    assert_int_equal(p.out.length, 0);
    if (!p.err.data || !strstr(p.err.data, sentence)) fail_msg("no '%s' in: %s", sentence, p.err.data);
    program_free(&p);
}

static void check_failure(const struct fixture *f, const char *const *args, const char *sentence)
{
    check_exit(f, EXIT_STATUS_FAILURE, args, sentence);
}

static void check_contents(const char *path, const char *expected)
{
    struct text contents = {0};
    read_file(path, &contents);
    assert_string_equal(contents.data ? contents.data : "", expected);
    text_free(&contents);
}

static void test_bad_files(void **state)
{
    const struct fixture *f = *state;
    char path[512];
    check_failure(f, (const char *[]){"-i", "/nowhere/in", NULL}, "cannot open the input /nowhere/in: No such file");
    check_failure(f, (const char *[]){"-i", f->files.path, NULL}, "is a folder; name a file of prompts");
    check_failure(f, (const char *[]){"-o", "/nowhere/out", NULL}, "cannot write the output /nowhere/out: No such");
    check_failure(f, (const char *[]){"-o", f->files.path, NULL}, "Is a directory");
    check_failure(f, (const char *[]){"-o", "/dev/full", NULL}, "/dev/full: cannot write: No space left on device");
    path_of(f, "link", path, sizeof path);
    assert_int_equal(symlink("/nowhere/at/all", path), 0);
    check_failure(f, (const char *[]){"-i", path, NULL}, "link: No such file");
    temp_folder_write_string(&f->files, "same.txt", "one\n");
    path_of(f, "same.txt", path, sizeof path);
    check_exit(f, EXIT_STATUS_USAGE, (const char *[]){"-i", path, "-o", path, "--overwrite", NULL},
               "is the input; name another file");
    /* Another run holds the lock. */
    int fd = open(path, O_RDONLY);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    check_failure(f, (const char *[]){"-o", path, "--overwrite", NULL}, "another quire is writing the output");
    close(fd);
    check_contents(path, "one\n");
}

/* An output that is not empty is kept without --overwrite, and with it until the first answer is there. */
static void test_overwrite(void **state)
{
    const struct fixture *f = *state;
    static const char before[] = "what an earlier run wrote, longer than what comes now\n";
    char path[512], empty[512];
    struct program p;
    temp_folder_write_string(&f->files, "earlier.jsonl", before);
    path_of(f, "earlier.jsonl", path, sizeof path);
    check_exit(f, EXIT_STATUS_USAGE, (const char *[]){"-o", path, NULL},
               "earlier.jsonl exists and is not empty; name another file, or replace it with --overwrite");
    check_failure(f, (const char *[]){"-o", path, "-i", f->files.path, "--overwrite", NULL}, "is a folder");
    check_failure(f, (const char *[]){"-o", path, "--max-model-len", "99999999", "--overwrite", NULL}, "max");
    check_contents(path, before);
    run(&p, f, "one\n", (const char *[]){"-o", path, "--overwrite", "--max-tokens", "1", NULL});
    assert_int_equal(p.exit_status, 0);
    program_free(&p);
    struct text written = {0};
    read_file(path, &written);
    json_decref(json_line(&written, 0));
    assert_int_equal(count_lines(&written), 1);
    text_free(&written);
    /* No prompts: no answers either. */
    temp_folder_write_string(&f->files, "empty.txt", "\n");
    run(&p, f, NULL,
        (const char *[]){"-i", path_of(f, "empty.txt", empty, sizeof empty), "-o", path, "--overwrite", NULL});
    assert_int_equal(p.exit_status, 0);
    program_free(&p);
    check_contents(path, "");
}

/* A disk that fills up in the middle of a line: the file ends with the line before it. */
static void test_full_disk(void **state)
{
    const struct fixture *f = *state;
    char path[512], command[2048];
    struct program p;
    path_of(f, "cut.jsonl", path, sizeof path);
    snprintf(command, sizeof command,
             "ulimit -f 4; exec %s generate --model %s --load-format dummy --device cpu --max-num-seqs 4 "
             "--kv-cache-space 0.1 --ignore-eos --max-tokens 1 --no-chat -o %s",
             QUIRE_EXECUTABLE, f->model.path, path);
    struct text input = {0}, written = {0};
    for (int i = 0; i < 100; i++) assert_true(text_append_string(&input, "prompt\n"));
    program_run(&p, (const char *[]){"/bin/sh", "-c", command, NULL}, input.data);
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "cut.jsonl: cannot write: File too large"));
    assert_int_equal(count_lines(&p.err), 1);
    read_file(path, &written);
    assert_in_range(written.length, 1000, 4096);
    assert_int_equal(written.data[written.length - 1], '\n');
    for (int i = 0; i < count_lines(&written); i++) json_decref(json_line(&written, i));
    text_free(&written);
    text_free(&input);
    program_free(&p);
}

/* A FIFO is read like a pipe. */
static void test_fifo(void **state)
{
    const struct fixture *f = *state;
    char path[512], command[2048];
    struct program p;
    path_of(f, "fifo", path, sizeof path);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(command, sizeof command,
             "(echo one; echo two) >%s & exec %s generate --model %s --load-format dummy --device cpu --max-num-seqs 4 "
             "--kv-cache-space 0.1 --max-tokens 1 -i %s",
             path, QUIRE_EXECUTABLE, f->model.path, path);
    program_run(&p, (const char *[]){"/bin/sh", "-c", command, NULL}, NULL);
    assert_int_equal(p.exit_status, 0);
    assert_int_equal(count_lines(&p.out), 2);
    program_free(&p);
}

/* Starts the command with the given ends as stdin, stdout and stderr. */
static pid_t start(const struct fixture *f, int in, int out, int err, const char *const *more)
{
    const char *argv[MAX_ARGS + 1];
    make_argv(argv, f, more);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    dup2(in, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    execv(argv[0], (char *const *)argv);
    _exit(127);
}

static void read_all(int fd, struct text *out)
{
    char bytes[4096];
    ssize_t count;
    while ((count = read(fd, bytes, sizeof bytes)) > 0) assert_true(text_append(out, bytes, (size_t)count));
}

static void test_closed_pipe(void **state)
{
    int in = pipe_of("one\ntwo\n"), out[2], err[2], status;
    assert_int_equal(pipe(out), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    close(out[0]); /* nobody reads */
    pid_t pid = start(*state, in, out[1], err[1], (const char *[]){NULL});
    close(in);
    close(out[1]);
    close(err[1]);
    struct text said = {0};
    read_all(err[0], &said);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_int_equal(said.length, 0); /* quietly */
    text_free(&said);
    close(err[0]);
}

/* One line of a stream that stays open. */
static void read_line(int fd, struct text *out)
{
    char byte = '\0';
    while (byte != '\n' && read(fd, &byte, 1) == 1) assert_true(text_append(out, &byte, 1));
}

/* Answers arrive while the input is still open. A signal then ends the endless answer: complete answers are written,
 * and the others are counted. */
static void check_interrupt(void **state, int signal_number, const char *flag)
{
    int in[2], out[2], err[2], status;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    pid_t pid = start(*state, in[0], out[1], err[1], (const char *[]){"--max-model-len", "60000", flag, NULL});
    close(in[0]);
    close(out[1]);
    close(err[1]);
    const char *lines =
        "{\"prompt\": \"x\", \"max_tokens\": 2}\n{\"prompt\": \"x\", \"max_tokens\": -1}\n{\"prompt\": \"three\"}\n";
    assert_int_equal(write(in[1], lines, strlen(lines)), (ssize_t)strlen(lines));
    struct text answers = {0}, said = {0};
    read_line(out[0], &answers);
    json_t *line = json_line(&answers, 0);
    assert_int_equal(integer_of(line, "completion_tokens"), 2);
    json_decref(line);
    assert_int_equal(kill(pid, signal_number), 0);
    if (signal_number == SIGHUP) assert_int_equal(kill(pid, SIGHUP), 0); /* a shell sends one, the kernel another */
    read_all(out[0], &answers);
    read_all(err[0], &said);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), signal_number);
    int answered = count_lines(&answers); /* the third line's answer may have been ready */
    assert_true(answered == 1 || answered == 2);
    const char *sentence = answered == 1 ? "interrupted; 2 prompts that were read have no answer, and the input was not"
                                         : "interrupted; 1 prompt that was read has no answer, and the input was not";
    if (!strstr(said.data, sentence)) fail_msg("no '%s' in: %s", sentence, said.data);
    line = json_line(&answers, answered - 1);
    assert_int_equal(integer_of(line, "index"), answered == 1 ? 0 : 2);
    json_decref(line);
    text_free(&answers);
    text_free(&said);
    close(in[1]);
    close(out[0]);
    close(err[0]);
}

static void test_stream_and_interrupt(void **state)
{
    check_interrupt(state, SIGINT, NULL);
    check_interrupt(state, SIGTERM, NULL);
    check_interrupt(state, SIGHUP, NULL);
    check_interrupt(state, SIGTERM, "--ordered"); /* the third answer is kept though the second is missing */
}

/* The trace of a run that a signal ended is whole, and every request in it ends. */
static void test_trace_of_interrupted_run(void **state)
{
    const struct fixture *f = *state;
    char path[512], flag[600];
    json_error_t why;
    size_t i, begun = 0, ended = 0;
    json_t *event;
    path_of(f, "trace.json", path, sizeof path);
    snprintf(flag, sizeof flag, "--trace=%s", path);
    check_interrupt(state, SIGINT, flag);
    json_t *events = json_load_file(path, 0, &why);
    if (!events) fail_msg("%s: %s", path, why.text);
    json_array_foreach(events, i, event)
    {
        if (strcmp(string_of(event, "name"), "request") != 0) continue;
        begun += strcmp(string_of(event, "ph"), "b") == 0;
        ended += strcmp(string_of(event, "ph"), "e") == 0;
    }
    assert_int_equal(begun, 3);
    assert_int_equal(ended, 3);
    json_decref(events);
}

/* ---- what is on disk when a run ends early ---- */

enum { QUICK_LINES = 400 }; /* more than are read ahead */

/* A line whose answer takes longer than any test, and quick ones after it. */
static void write_slow_input(const struct fixture *f, char *path, size_t size)
{
    struct text lines = {0};
    assert_true(text_append_string(&lines, "{\"prompt\": \"slow\", \"max_tokens\": -1}\n"));
    for (int i = 0; i < QUICK_LINES; i++) assert_true(text_append_string(&lines, "{\"prompt\": \"quick\"}\n"));
    temp_folder_write_string(&f->files, "slow.txt", lines.data);
    path_of(f, "slow.txt", path, size);
    text_free(&lines);
}

/* Waits until the file has that many lines. */
static void wait_for_lines(const char *path, int count)
{
    const double until = clock_seconds() + 300;
    int found = 0;
    while (found < count) {
        struct text contents = {0};
        if (clock_seconds() > until) fail_msg("%s has %d lines after five minutes, not %d", path, found, count);
        usleep(10000);
        if (file_exists(path)) read_file(path, &contents);
        found = count_lines(&contents);
        text_free(&contents);
    }
}

/* Every quick line has its answer, whole. */
static void check_quick_answers(const char *path)
{
    struct text contents = {0};
    bool seen[QUICK_LINES + 1] = {false};
    read_file(path, &contents);
    assert_int_equal(count_lines(&contents), QUICK_LINES);
    assert_int_equal(contents.data[contents.length - 1], '\n');
    const char *at = contents.data;
    for (int i = 0; i < QUICK_LINES; i++) {
        json_t *line = next_json(&at);
        const int64_t index = integer_of(line, "index");
        assert_in_range(index, 1, QUICK_LINES);
        assert_false(seen[index]);
        seen[index] = true;
        json_decref(line);
    }
    text_free(&contents);
}

/* After SIGKILL every finished answer is in the file, although the first line's answer is not finished. */
static void test_killed(void **state)
{
    const struct fixture *f = *state;
    char in[512], out[512];
    int status, nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    write_slow_input(f, in, sizeof in);
    path_of(f, "killed.jsonl", out, sizeof out);
    pid_t pid = start(f, nothing, nothing, nothing,
                      (const char *[]){"-i", in, "-o", out, "--max-model-len", "60000", "--max-tokens", "2", NULL});
    wait_for_lines(out, QUICK_LINES);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    check_quick_answers(out);
    close(nothing);
}

/* The terminal is closed, as by an ssh connection that breaks. */
static void test_closed_terminal(void **state)
{
    const struct fixture *f = *state;
    char in[512], out[512];
    const char *argv[MAX_ARGS + 1];
    int status;
    struct pty p;
    write_slow_input(f, in, sizeof in);
    path_of(f, "closed.jsonl", out, sizeof out);
    make_argv(argv, f, (const char *[]){"-i", in, "-o", out, "--max-model-len", "60000", "--max-tokens", "2", NULL});
    pty_start(&p, argv);
    wait_for_lines(out, QUICK_LINES);
    close(p.fd);
    text_free(&p.screen);
    assert_int_equal(waitpid(p.pid, &status, 0), p.pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGHUP);
    check_quick_answers(out);
}

/* nohup: SIGHUP is ignored from the start, and stays so. */
static void test_nohup(void **state)
{
    const struct fixture *f = *state;
    int in[2], out[2], err[2], status;
    assert_int_equal(pipe2(in, O_CLOEXEC), 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    assert_int_equal(pipe2(err, O_CLOEXEC), 0);
    signal(SIGHUP, SIG_IGN); /* inherited */
    pid_t pid = start(f, in[0], out[1], err[1], (const char *[]){"--max-tokens", "1", NULL});
    signal(SIGHUP, SIG_DFL);
    close(in[0]);
    close(out[1]);
    close(err[1]);
    struct text answers = {0};
    assert_int_equal(write(in[1], "one\n", 4), 4);
    read_line(out[0], &answers);
    assert_int_equal(kill(pid, SIGHUP), 0);
    assert_int_equal(write(in[1], "two\n", 4), 4);
    close(in[1]);
    read_all(out[0], &answers);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(count_lines(&answers), 2);
    text_free(&answers);
    close(out[0]);
    close(err[0]);
}

/* ---- the shipped model ---- */

static void test_shipped_model(void **state)
{
    (void)state;
    struct program p;
    program_run(&p,
                (const char *[]){QUIRE_EXECUTABLE, "generate", "--device", "cpu", "--temperature", "0", "--max-tokens",
                                 "64", "--quiet", NULL},
                "{\"messages\": [{\"role\": \"user\", \"content\": \"What is a block table?\"}]}\n");
    assert_int_equal(p.exit_status, 0);
    json_t *line = json_line(&p.out, 0);
    assert_true(strlen(string_of(line, "text")) > 10);
    json_decref(line);
    program_free(&p);
}

/* runtime/input.h: the prompts beside the flags. Each way gives the same answers. */
static void test_prompts_beside_flags(void **state)
{
    static const char lines[] = "@ first prompt\nsecond";
    struct temp_folder files;
    struct program p;
    struct text expected = {0};
    char file[600];
    temp_folder_make(&files);
    temp_folder_write_string(&files, "prompts", lines);
    snprintf(file, sizeof file, "@%s/prompts", files.path);
    run(&p, *state, NULL, (const char *[]){"--chat", "--system", "-", "x", NULL});
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "--system takes a text, or @FILE"));
    program_free(&p);
    const char *const words[] = {"-", file, "@@ first prompt\nsecond", NULL};
    for (int i = 0; words[i]; i++) {
        run(&p, *state, i == 0 ? lines : NULL, (const char *[]){"--ordered", words[i], NULL});
        assert_int_equal(p.exit_status, 0);
        assert_non_null(strstr(p.out.data, "{\"index\": 1, "));
        if (i > 0) assert_string_equal(p.out.data, expected.data);
        if (i == 0) assert_true(text_append_string(&expected, p.out.data));
        program_free(&p);
    }
    text_free(&expected);
    temp_folder_remove(&files);
}

/* Who types prompts is told that quire waits for them. */
static void test_prompts_of_a_terminal(void **state)
{
    const struct fixture *f = *state;
    struct pty p;
    pty_start(&p, (const char *[]){QUIRE_EXECUTABLE, "generate", "--model", f->model.path, "--load-format", "dummy",
                                   "--device", "cpu", "--max-num-seqs", "4", "--max-tokens", "2", "--no-chat", NULL});
    pty_expect(&p, "quire generate: reading prompts, one a line, from the terminal until Ctrl-D");
    pty_type(&p, "a prompt\r\x04");
    pty_expect(&p, "\"prompt_tokens\": ");
    assert_int_equal(pty_finish(&p), 0);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_lines_do_not_wait),
        cmocka_unit_test(test_line_too_long),
        cmocka_unit_test(test_prompt_forms),
        cmocka_unit_test(test_what_templates_see),
        cmocka_unit_test(test_every_field),
        cmocka_unit_test(test_refused_lines),
        cmocka_unit_test(test_id_of_a_bad_line),
        cmocka_unit_test(test_mutated_lines),
        cmocka_unit_test(test_text_lines),
        cmocka_unit_test(test_json_lines),
        cmocka_unit_test(test_spelling),
        cmocka_unit_test(test_text_among_objects),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_generation_config),
        cmocka_unit_test(test_several_ends),
        cmocka_unit_test(test_priorities_need_their_policy),
        cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_several_answers_and_logprobs),
        cmocka_unit_test(test_prompt_logprobs),
        cmocka_unit_test(test_ranked_answers),
        cmocka_unit_test(test_refused_beam_flags),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_many_lines),
        cmocka_unit_test(test_without_tokenizer),
        cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_files),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_overwrite),
        cmocka_unit_test(test_full_disk),
        cmocka_unit_test(test_fifo),
        cmocka_unit_test(test_closed_pipe),
        cmocka_unit_test(test_stream_and_interrupt),
        cmocka_unit_test(test_trace_of_interrupted_run),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_closed_terminal),
        cmocka_unit_test(test_nohup),
        cmocka_unit_test(test_shipped_model),
        cmocka_unit_test(test_prompts_beside_flags),
        cmocka_unit_test(test_prompts_of_a_terminal),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
