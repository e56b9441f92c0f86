/* The fields and flags that hold answers to a form (runtime/prompts/structured_json.h,
 * runtime/options/structured_flags.h), and the answers of a model with random weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/engine/grammars.h"
#include "runtime/prompts/prompt.h"
#include "tests/support/generate.h"
#include "tests/support/must.h"
#include "tokenizer/grammar/regular.h"

struct fixture {
    struct temp_folder model, files;
    struct engine_options options;
    struct loaded_model *loaded;
    struct grammars *grammars;
    struct engine_info info;
};

static int set_up(void **state)
{
    static struct fixture f;
    struct error err = {""};
    toy_model_make(&f.model, QUIRE_GUIDE, true);
    temp_folder_make(&f.files);
    f.options = engine_options_default();
    f.options.model = f.model.path;
    must(loaded_model_outline(&f.options, &f.loaded, &err), &err);
    must(grammars_create(f.loaded, &f.grammars, &err), &err);
    f.info = loaded_model_info(&f.options, f.loaded);
    f.info.grammars = f.grammars;
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    grammars_free(f->grammars);
    loaded_model_close(f->loaded);
    temp_folder_remove(&f->files);
    temp_folder_remove(&f->model);
    return 0;
}

/* ---- fields ---- */

static struct prompt_rules make_rules(const struct fixture *f, const struct prompt_options *options)
{
    struct prompt_rules rules;
    struct error err = {""};
    must(prompt_rules_make(&f->info, options, &rules, &err), &err);
    return rules;
}

/* Goes on with one token for the longest beginning of the text that is one; returns its bytes, 0 if none is allowed. */
static size_t accept_one(const struct fixture *f, struct matcher *m, const char *text)
{
    for (size_t length = strlen(text) < 4 ? strlen(text) : 4; length > 0; length--) {
        for (int32_t id = 0; id < f->info.num_ids; id++) {
            size_t count;
            const char *bytes = tokenizer_token_bytes(f->info.tokenizer, id, false, &count);
            if (count == length && memcmp(bytes, text, length) == 0 && matcher_accept(m, id)) return length;
        }
    }
    return 0;
}

static bool may_answer(const struct fixture *f, const struct prompt *p, const char *text)
{
    struct matcher *m;
    struct error err = {""};
    size_t at = 0, count = 1;
    if (!p->constraint) return true;
    must(matcher_create(p->constraint, false, &m, &err), &err);
    for (; text[at] && count > 0; at += count) count = accept_one(f, m, text + at);
    const bool ok = !text[at] && matcher_may_end(m);
    matcher_free(m);
    return ok;
}

static void check_line(const struct fixture *f, const struct prompt_rules *rules, const char *line, const char *yes,
                       const char *no)
{
    struct prompt p;
    struct error err = {""};
    if (prompt_parse(rules, line, strlen(line), &p, &err) != STATUS_OK) fail_msg("%s: %s", line, err.text);
    if (!may_answer(f, &p, yes)) fail_msg("%s has not: %s", line, yes);
    if (no && may_answer(f, &p, no)) fail_msg("%s has: %s", line, no);
    prompt_free(&p);
}

#define LINE(fields) "{\"prompt\": \"x\", " fields "}"
#define CHAT_LINE(fields)                                                                                              \
    "{\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/chat/completions\", \"body\": {\"messages\": "        \
    "[{\"role\": \"user\", \"content\": \"x\"}], " fields "}}"
#define COMPLETION_LINE(fields)                                                                                        \
    "{\"custom_id\": \"1\", \"method\": \"POST\", \"url\": \"/v1/completions\", \"body\": {\"prompt\": \"x\", " fields \
    "}}"

static void test_fields(void **state)
{
    static const struct {
        const char *line, *yes, *no;
    } cases[] = {
        {LINE("\"response_format\": {\"type\": \"text\"}"), "anything", NULL},
        {LINE("\"response_format\": null, \"structured_outputs\": null"), "anything", NULL},
        {LINE("\"response_format\": {\"type\": \"json_object\"}"), "{\"a\": 1}", "[1]"},
        {LINE("\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\", \"description\": "
              "\"d\", \"strict\": true, \"schema\": {\"enum\": [1, \"x\"]}}}"),
         "\"x\"", "2"},
        {LINE("\"response_format\": {\"type\": \"structural_tag\", \"format\": {\"type\": \"const_string\", "
              "\"value\": \"Hi\"}}"),
         "Hi", "Ho"},
        {LINE("\"response_format\": {\"type\": \"text\"}, \"structured_outputs\": {\"choice\": [\"a\"]}"), "a", "b"},
        {LINE("\"structured_outputs\": {\"json\": {\"const\": 1}}"), "1", "2"},
        {LINE("\"structured_outputs\": {\"json\": \"{\\\"const\\\": 1}\", \"regex\": null, \"json_object\": false}"),
         "1", "2"},
        {LINE("\"structured_outputs\": {\"json_object\": true}"), "{}", "1"},
        {LINE("\"structured_outputs\": {\"regex\": \"[ab]+\"}"), "abba", "c"},
        {LINE("\"structured_outputs\": {\"choice\": [\"yes\", \"no\"]}"), "no", "maybe"},
        {LINE("\"structured_outputs\": {\"grammar\": \"root ::= \\\"a\\\"+\"}"), "aa", "b"},
        {LINE("\"structured_outputs\": {\"grammar\": \"start: \\\"a\\\"+\"}"), "aa", "b"},
        {LINE("\"structured_outputs\": {\"structural_tag\": \"{\\\"format\\\": {\\\"type\\\": \\\"const_string\\\", "
              "\\\"value\\\": \\\"Hi\\\"}}\"}"),
         "Hi", "Ho"},
        {LINE("\"structured_outputs\": {\"json\": {\"type\": \"array\"}, \"disable_any_whitespace\": true}"), "[1, 2]",
         "[1,  2]"},
        {LINE("\"structured_outputs\": {\"json\": {\"type\": \"object\", \"properties\": {\"a\": {}}}, "
              "\"disable_additional_properties\": true}"),
         "{\"a\": 1}", "{\"b\": 1}"},
        {CHAT_LINE("\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {\"const\": 1}}}"),
         "1", "2"},
        {CHAT_LINE("\"structured_outputs\": {\"choice\": [\"a\"]}"), "a", "b"},
        {COMPLETION_LINE("\"response_format\": {\"type\": \"json_object\"}"), "{}", "1"},
        {COMPLETION_LINE("\"structured_outputs\": {\"regex\": \"a\"}"), "a", "b"},
    };
    const struct fixture *f = *state;
    struct prompt_rules rules = make_rules(f, &(struct prompt_options){.format = "jsonl"});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_line(f, &rules, cases[i].line, cases[i].yes, cases[i].no);
    prompt_rules_free(&rules);
}

static void test_refused(void **state)
{
    static const struct {
        const char *line, *sentence;
    } refused[] = {
        {LINE("\"response_format\": 1"), "response_format must be an object, found 1"},
        {LINE("\"response_format\": {}"), "response_format.type must be \"text\", \"json_object\", \"json_schema\" or "
                                          "\"structural_tag\", found nothing"},
        {LINE("\"response_format\": {\"type\": \"text\", \"x\": 1}"), "there is no field 'response_format.x'"},
        {LINE("\"response_format\": {\"type\": \"json_object\", \"schema\": {}}"),
         "there is no field 'response_format.schema'"},
        {LINE("\"response_format\": {\"type\": \"json_schema\"}"),
         "response_format.json_schema must be an object, found nothing"},
        {LINE("\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"n\"}}"),
         "response_format.json_schema.schema is missing"},
        {LINE("\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"schema\": {}, \"x\": 1}}"),
         "there is no field 'response_format.json_schema.x'"},
        {LINE("\"response_format\": {\"type\": \"structural_tag\"}"),
         "response_format: format: a format must be an object, found none"},
        {LINE("\"response_format\": {\"type\": \"json_object\"}, \"structured_outputs\": {\"regex\": \"a\"}"),
         "response_format and structured_outputs are both given; one is enough"},
        {LINE("\"structured_outputs\": []"), "structured_outputs must be an object, found []"},
        {LINE("\"structured_outputs\": {}"), "structured_outputs must have one of json, json_object, regex, choice, "
                                             "grammar and structural_tag"},
        {LINE("\"structured_outputs\": {\"regex\": \"a\", \"choice\": [\"a\"]}"),
         "structured_outputs.regex and structured_outputs.choice are both given; one is enough"},
        {LINE("\"structured_outputs\": {\"regex\": \"a\", \"whitespace_pattern\": \" \"}"),
         "there is no field 'structured_outputs.whitespace_pattern'"},
        {LINE("\"structured_outputs\": {\"json_object\": 1}"),
         "structured_outputs.json_object must be true or false, found 1"},
        {LINE("\"structured_outputs\": {\"regex\": \"(\"}"),
         "structured_outputs.regex: character 1 of the regular expression: this ( has no )"},
        {LINE("\"structured_outputs\": {\"choice\": []}"),
         "structured_outputs.choice: it must be a list of strings that is not empty, found []"},
        {LINE("\"structured_outputs\": {\"grammar\": \"root ::= x\"}"),
         "structured_outputs.grammar: line 1, column 10: 'x' is not defined"},
    };
    const struct fixture *f = *state;
    struct prompt_rules rules = make_rules(f, &(struct prompt_options){.format = "jsonl"});
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct prompt p;
        struct error err = {""};
        if (prompt_parse(&rules, refused[i].line, strlen(refused[i].line), &p, &err) == STATUS_OK)
            fail_msg("accepted: %s", refused[i].line);
        assert_string_equal(err.text, refused[i].sentence);
        prompt_free(&p);
    }
    prompt_rules_free(&rules);
}

/* The flags' form is that of texts and of lines that say nothing; a line that says "text" is free. */
static void test_default_form(void **state)
{
    const struct fixture *f = *state;
    json_t *value = json_string("[ab]");
    const struct structured_fields form = {{.kind = STRUCTURED_REGEX, .value = value}, "--regex"};
    struct prompt_rules rules =
        make_rules(f, &(struct prompt_options){.format = "auto", .structured = &form, .as_chat = 1});
    check_line(f, &rules, "a text", "a", "c");
    check_line(f, &rules, "{\"prompt\": [1]}", "b", "c");
    check_line(f, &rules, CHAT_LINE("\"n\": 1"), "a", "c");
    check_line(f, &rules, LINE("\"structured_outputs\": {\"choice\": [\"c\"]}"), "c", "a");
    check_line(f, &rules, LINE("\"response_format\": {\"type\": \"text\"}"), "anything", NULL);
    prompt_rules_free(&rules);
    json_decref(value);
}

/* An answer whose reasoning is taken apart may have it before the form, and must end it where the prompt began it. */
static void test_thoughts(void **state)
{
    const struct fixture *f = *state;
    const char *const line = "{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], "
                             "\"structured_outputs\": {\"choice\": [\"yes\"]}}";
    struct chat_setup_options template = {.source = {0}, .file = "open.jinja"};
    struct prompt_rules rules =
        make_rules(f, &(struct prompt_options){.format = "jsonl", .reasoning_parser = "deepseek_r1"});
    check_line(f, &rules, line, "yes", "x</think>yes");
    check_line(f, &rules, line, "<think>so</think>\n\nyes", "<think>yes");
    prompt_rules_free(&rules);
    text_append_string(&template.source, "{{ messages[0].content }}<think>\n");
    rules = make_rules(
        f, &(struct prompt_options){.format = "jsonl", .reasoning_parser = "deepseek_r1", .template = &template});
    check_line(f, &rules, line, "so</think>\n\nyes", "yes");
    prompt_rules_free(&rules);
    rules = make_rules(f, &(struct prompt_options){.format = "jsonl", .template = &template});
    check_line(f, &rules, line, "yes", "so</think>yes");
    prompt_rules_free(&rules);
    text_free(&template.source);
}

static void test_without_tokenizer(void **state)
{
    struct fixture f = *(struct fixture *)*state;
    struct prompt p;
    struct error err = {""};
    const char *const line = "{\"prompt\": [1], \"structured_outputs\": {\"regex\": \"a\"}}";
    f.info.tokenizer = NULL;
    f.info.grammars = NULL;
    struct prompt_rules rules = make_rules(&f, &(struct prompt_options){.format = "jsonl"});
    assert_int_equal(prompt_parse(&rules, line, strlen(line), &p, &err), STATUS_INVALID);
    assert_string_equal(err.text, "structured_outputs.regex: without a tokenizer an answer cannot be held to a form");
    prompt_free(&p);
    prompt_rules_free(&rules);
}

/* ---- answers ---- */

static bool matches(const char *pattern, const char *text)
{
    struct regular *r;
    struct error err = {""};
    must(regular_parse(pattern, strlen(pattern), false, &r, &err), &err);
    const bool found = regular_matches(r, text, strlen(text));
    regular_free(r);
    return found;
}

static void check_text(const json_t *text, const json_t *reason, const char *pattern)
{
    if (!json_is_string(text) || !matches(pattern, json_string_value(text)))
        fail_msg("%s: %s", pattern, json_string_value(text));
    assert_string_equal(json_string_value(reason), "stop");
}

/* All answers of a line that the program wrote match the pattern, and ended by themselves. */
static void check_answers(const struct program *p, int index, int count, const char *pattern)
{
    json_t *line = generate_line(&p->out, index);
    const json_t *texts = json_object_get(line, "texts"), *reasons = json_object_get(line, "finish_reasons");
    if (count == 1) check_text(json_object_get(line, "text"), json_object_get(line, "finish_reason"), pattern);
    if (count > 1) assert_int_equal(json_array_size(texts), count);
    for (int i = 0; count > 1 && i < count; i++)
        check_text(json_array_get(texts, (size_t)i), json_array_get(reasons, (size_t)i), pattern);
    json_decref(line);
}

/* A model of random weights keeps to every form, with sampling, penalties, several answers and log-probabilities. */
static void test_answers(void **state)
{
    const struct fixture *f = *state;
    static const char input[] = LINE("\"structured_outputs\": {\"regex\": \"[0-9]{3}-[a-c]{1,2}\\\\.\"}, \"n\": 4") "\n" LINE(
        "\"struct"
        "ured_"
        "outputs"
        "\": "
        "{\"choic"
        "e\": "
        "[\"y\\u0"
        "0e9s\", "
        "\"no\", "
        "\"no "
        "way\"]},"
        " \"logpr"
        "obs\": "
        "2") "\n" LINE("\"structured_outputs\": {\"grammar\": \"root ::= e\\ne ::= [0-9] | \\\"(\\\" e [+] [0-9] "
                       "\\\")\\\"\"}, "
                       "\"temperature\": 0, \"presence_penalty\": 2") "\n" LINE("\"response_format\": {\"type\": "
                                                                                "\"json_schema\", \"json_schema\": "
                                                                                "{\"schema\": {\"enum\": [[1, "
                                                                                "null], "
                                                                                "\"\\u00fc\"]}}}, \"best_of\": 3, "
                                                                                "\"n\": "
                                                                                "2") "\n" CHAT_LINE("\"response_"
                                                                                                    "format\": "
                                                                                                    "{\"type\": "
                                                                                                    "\"json_"
                                                                                                    "schema\", "
                                                                                                    "\"json_"
                                                                                                    "schema\": "
                                                                                                    "{\"schema\": "
                                                                                                    "{\"const\": "
                                                                                                    "7}}}") "\n" LINE("\"structured_outputs\": {\"regex\": \"x{6}\"}, \"stop\": [\"xxxx\"], \"min_tokens\": 1") "\n";
    struct program p;
    generate_run(&p, &f->model, input,
                 (const char *const[]){"--temperature", "1.5", "--max-tokens", "200", "--format", "jsonl", "--ordered",
                                       "--output", "-", NULL});
    if (p.exit_status != 0) fail_msg("%s", p.err.data);
    check_answers(&p, 0, 4, "[0-9]{3}-[a-c]{1,2}\\.");
    check_answers(&p, 1, 1, "y\xc3\xa9s|no|no way");
    check_answers(&p, 2, 1, "[0-9]|\\(+[0-9](\\+[0-9]\\))+");
    check_answers(&p, 3, 2, "\\[\\s*1\\s*,\\s*null\\s*\\]|\"\xc3\xbc\"");
    check_answers(&p, 5, 1, "x{0,2}");
    program_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fields),   cmocka_unit_test(test_refused),           cmocka_unit_test(test_default_form),
        cmocka_unit_test(test_thoughts), cmocka_unit_test(test_without_tokenizer), cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
