/* quire tokenize and quire template, from outside. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/commands.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

#define BPE QUIRE_TEST_DATA "/tokenizer_bpe"
#define QWEN QUIRE_TEST_DATA "/tokenizers/qwen2"
#define CHAT "[{\"role\": \"user\", \"content\": \"hi<|end|>\"}]"

enum { MAX_ARGS = 8 };

static void run(struct program *p, const char *const *args, const char *input)
{
    const char *argv[MAX_ARGS + 2] = {QUIRE_EXECUTABLE};
    for (int i = 0; i < MAX_ARGS && args[i]; i++) argv[i + 1] = args[i];
    program_run(p, argv, input);
}

static void expect_output(const char *const *args, const char *input, const char *expected)
{
    struct program p;
    run(&p, args, input);
    if (p.exit_status != 0) fail_msg("%s", p.err.data);
    assert_string_equal(p.out.length ? p.out.data : "", expected);
    assert_int_equal(p.err.length, 0);
    program_free(&p);
}

static void expect_error(const char *const *args, const char *input, int exit_status, const char *sentence)
{
    struct program p;
    run(&p, args, input);
    assert_int_equal(p.exit_status, exit_status);
    assert_int_equal(p.out.length, 0);
    if (!strstr(p.err.data, sentence)) fail_msg("no '%s' in: %s", sentence, p.err.data);
    program_free(&p);
}

#define ARGS(...) ((const char *[]){__VA_ARGS__, NULL})
#define TOKENIZE(...) ARGS("tokenize", "--model", BPE, __VA_ARGS__)
#define TEMPLATE(...) ARGS("template", "--model", BPE, __VA_ARGS__)

static void test_tokenize(void **state)
{
    (void)state;
    expect_output(TOKENIZE("the river"), NULL, "269\t the\n401\t river\n");
    expect_output(TOKENIZE("-"), "the river", "269\t the\n401\t river\n");
    expect_output(TOKENIZE("\a"), NULL, "529\t \n14\t\\x07\n");
    expect_output(TOKENIZE("--special", "<|end|>"), NULL, "1\t<s>\n6\t<|end|>\n");
    expect_output(TOKENIZE(""), NULL, "");
    expect_output(TOKENIZE("--json", "the river"), NULL,
                  "{\"count\":2,\"ids\":[269,401],\"pieces\":[\" the\",\" river\"]}\n");
    expect_output(ARGS("tokenize", "--model", QWEN, "--special", "--ids", "761"), NULL, "<|im_start|>\n");
}

/* runtime/input.h: a text, a file, what is piped in. */
static void test_where_text_comes_from(void **state)
{
    (void)state;
    struct temp_folder files;
    char argument[600];
    temp_folder_make(&files);
    temp_folder_write_string(&files, "text", "the river");
    temp_folder_write_string(&files, "chat.json", CHAT);
    snprintf(argument, sizeof argument, "@%s/text", files.path);
    expect_output(TOKENIZE(argument), NULL, "269\t the\n401\t river\n");
    expect_output(ARGS("tokenize", "--model", BPE), "the river", "269\t the\n401\t river\n");
    expect_error(TOKENIZE("--ids", "@@1"), NULL, EXIT_STATUS_FAILURE, "'@1' is not a token id");
    snprintf(argument, sizeof argument, "@%s/chat.json", files.path);
    expect_output(TEMPLATE(argument), NULL, "<s><|user|>hi<|end|><|end|><|assistant|>");
    expect_output(TEMPLATE("-"), CHAT, "<s><|user|>hi<|end|><|end|><|assistant|>");
    expect_output(TEMPLATE(CHAT), NULL, "<s><|user|>hi<|end|><|end|><|assistant|>");
    temp_folder_remove(&files);
}

static void test_ids_to_text(void **state)
{
    (void)state;
    expect_output(TOKENIZE("--ids", "269 401"), NULL, "the river\n");
    expect_output(TOKENIZE("--ids", "-"), "[1, 269,401]\n", "the river\n");
    expect_output(TOKENIZE("--ids", "--special", "1 6"), NULL, "<s><|end|>\n");
    expect_output(TOKENIZE("--ids", "--json", "269"), NULL, "{\"text\":\"the\"}\n");
    expect_error(TOKENIZE("--ids", "1 x"), NULL, EXIT_STATUS_FAILURE, "'x' is not a token id");
    expect_error(TOKENIZE("--ids", "-1"), NULL, EXIT_STATUS_USAGE, "-1");
    expect_error(TOKENIZE("--ids", "99999999999999999999"), NULL, EXIT_STATUS_FAILURE, "is not a token id");
    expect_error(TOKENIZE("--ids", "602"), NULL, EXIT_STATUS_FAILURE, "token id 602 is not in the vocabulary");
}

static void test_tokenize_refuses(void **state)
{
    (void)state;
    expect_error(TOKENIZE("@/nonexistent"), NULL, EXIT_STATUS_FAILURE, "@@ begins a text that begins with @)");
    expect_error(TOKENIZE("two", "words"), NULL, EXIT_STATUS_USAGE, "'words' is a word too many");
    expect_error(ARGS("tokenize", "--model", "/nonexistent", "x"), NULL, EXIT_STATUS_FAILURE, "/nonexistent");
}

static void test_template(void **state)
{
    (void)state;
    static const char expected[] = "<s><|user|>hi<|end|><|end|><|assistant|>";
    struct temp_folder files;
    char path[600];
    temp_folder_make(&files);
    temp_folder_write_string(&files, "chat.json",
                             " {\"messages\": " CHAT ", \"chat_template_kwargs\": {\"x\": \"y\"}}");
    temp_folder_write_string(&files, "short.jinja",
                             "{{ x }}{{ messages[0].content }}{% if add_generation_prompt %}>{% endif %}");
    snprintf(path, sizeof path, "%s/chat.json", files.path);
    expect_output(ARGS("template", "--model", BPE), CHAT, expected);
    expect_output(TEMPLATE("--messages", "-"), "\n{\"messages\": " CHAT "}", expected);
    expect_output(TEMPLATE("--messages", path), NULL, expected);
    char template[620];
    snprintf(template, sizeof template, "%s/short.jinja", files.path);
    expect_output(TEMPLATE("--messages", path, "--chat-template", template), NULL, "yhi<|end|>>");
    expect_output(TEMPLATE("--no-add-generation-prompt", "--chat-template", template), CHAT, "hi<|end|>");
    temp_folder_remove(&files);
}

/* The message's <|end|> is text; with the flag it is the token. */
static void test_template_ids(void **state)
{
    (void)state;
    struct program p;
    int ends = 0;
    run(&p, ARGS("template", "--model", BPE, "--ids"), CHAT);
    assert_int_equal(p.exit_status, 0);
    for (const char *at = p.out.data; (at = strstr(at, " 6 ")); at++) ends++;
    assert_int_equal(ends, 1);
    program_free(&p);
    run(&p, TEMPLATE("--ids", "--allow-special-in-messages"), CHAT);
    assert_non_null(strstr(p.out.data, " 6 6 5\n"));
    program_free(&p);
}

static void test_template_refuses(void **state)
{
    (void)state;
    const char *const *plain = ARGS("template", "--model", BPE);
    expect_error(plain, "x", EXIT_STATUS_FAILURE, "standard input: not valid JSON");
    expect_error(plain, "[{\"role\": x}]", EXIT_STATUS_FAILURE, "at line 1, column 11");
    expect_error(plain, "{\"messages\": " CHAT ", \"tool\": []}", EXIT_STATUS_FAILURE, "unknown field \"tool\"");
    expect_error(plain, "", EXIT_STATUS_FAILURE, "standard input");
    expect_error(plain, "{\"messages\": 3}", EXIT_STATUS_FAILURE, "messages must be a list");
    expect_error(plain, "[{\"role\": \"user\"}]", EXIT_STATUS_FAILURE, "the chat template: line 1, column");
    expect_error(TEMPLATE("--messages", "/nonexistent"), NULL, EXIT_STATUS_FAILURE, "/nonexistent");
    expect_error(TEMPLATE("--chat-template", "/nonexistent"), CHAT, EXIT_STATUS_FAILURE, "/nonexistent");
    expect_error(TEMPLATE("--chat-template-kwargs", "3"), CHAT, EXIT_STATUS_USAGE, "--chat-template-kwargs");
    expect_error(TEMPLATE("word"), CHAT, EXIT_STATUS_FAILURE, "the conversation: not valid JSON at line 1");
    expect_error(TEMPLATE("@/nonexistent"), CHAT, EXIT_STATUS_FAILURE, "/nonexistent: cannot open");
    expect_error(ARGS("template", "--model", QWEN), CHAT, EXIT_STATUS_FAILURE, "no chat template");
}

static void test_help(void **state)
{
    (void)state;
    static const char *const commands[] = {"tokenize", "template"};
    for (size_t i = 0; i < 2; i++) {
        struct program p;
        run(&p, ARGS(commands[i], "--help"), NULL);
        assert_int_equal(p.exit_status, 0);
        assert_non_null(strstr(p.out.data, "--model"));
        program_free(&p);
        expect_error(ARGS(commands[i], "--modle", "x"), NULL, EXIT_STATUS_USAGE, "did you mean --model?");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_ids_to_text),
        cmocka_unit_test(test_tokenize_refuses),
        cmocka_unit_test(test_template),
        cmocka_unit_test(test_template_ids),
        cmocka_unit_test(test_template_refuses),
        cmocka_unit_test(test_where_text_comes_from),
        cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
