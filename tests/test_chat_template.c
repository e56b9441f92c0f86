/* chat_template.h: templates render as transformers renders them, and no message speaks as another. */
#include "test_tokenizer_support.h"

#include <time.h>

#include "tokenizer/chat_template.h"

#define TEMPLATES QUIRE_TEST_DATA "/templates"
#define TOKENIZERS QUIRE_TEST_DATA "/tokenizers"

static struct chat_template *open_template(const struct tokenizer *t, const char *source)
{
    struct chat_template *c;
    struct error err = {{0}};
    if (chat_template_open(t, source, &c, &err)) fail_msg("%s", err.text);
    return c;
}

static json_t *parse(const char *text)
{
    json_error_t error;
    json_t *value = json_loads(text, JSON_ALLOW_NUL, &error);
    if (!value) fail_msg("%s: %s", error.text, text);
    return value;
}

static json_t *load(const char *path)
{
    json_error_t error;
    json_t *value = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!value) fail_msg("%s: %s", path, error.text);
    return value;
}

static struct text read_source(const char *file)
{
    char path[512];
    struct text source = {0};
    assert_true(path_join(path, sizeof path, TEMPLATES, file));
    assert_int_equal(file_read(path, &source, NULL), STATUS_OK);
    return source;
}

static struct token_list encode(const struct chat_template *c, const struct chat_input *input)
{
    struct token_list ids = {0};
    struct error err = {{0}};
    if (chat_template_encode(c, input, &ids, &err)) fail_msg("%s", err.text);
    return ids;
}

/* --- as transformers renders --- */

struct golden {
    json_t *root;
    struct tokenizer *tokenizer;
};

static struct chat_template *open_golden(const struct golden *g, const json_t *entry, struct error *err)
{
    const char *file = json_string_value(json_object_get(entry, "file"));
    struct text read = {0};
    struct chat_template *c = NULL;
    if (file) read = read_source(file);
    chat_template_open(g->tokenizer, file ? read.data : json_string_value(json_object_get(entry, "source")), &c, err);
    text_free(&read);
    return c;
}

static const json_t *named(const struct golden *g, const char *table, const json_t *name)
{
    return name ? json_object_get(json_object_get(g->root, table), json_string_value(name)) : NULL;
}

/* Content that quire refuses whatever the template: an image, a number. */
static bool is_refused(const json_t *messages)
{
    const json_t *message, *part;
    size_t i, k;
    json_array_foreach((json_t *)messages, i, message)
    {
        const json_t *content = json_object_get(message, "content");
        if (content && !json_is_string(content) && !json_is_null(content) && !json_is_array(content)) return true;
        json_array_foreach((json_t *)content, k, part) if (!json_object_get(part, "text")) return true;
    }
    return false;
}

static void check_text(const json_t *entry, const struct marked_text *got, const json_t *expected)
{
    if (got->text.length == json_string_length(expected) &&
        memcmp(got->text.data, json_string_value(expected), got->text.length) == 0)
        return;
    char *shown = json_dumps(entry, 0);
    print_error("%s\nGOT\n%s\nEXPECTED\n%s\n", shown, got->text.data, json_string_value(expected));
    free(shown);
    fail();
}

static void check_error(const json_t *entry, const struct error *err)
{
    const char *message = json_string_value(json_object_get(entry, "error"));
    if (!json_object_get(entry, "raised") || strstr(err->text, message)) return;
    fail_msg("\"%s\" is not in: %s", message, err->text);
}

/* Renders one case; returns whether it was rendered or failed as in transformers, and not refused. */
static bool check_case(const struct golden *g, const json_t *entry)
{
    const json_t *template = named(g, "templates", json_object_get(entry, "template"));
    const json_t *expected = json_object_get(entry, "expected");
    json_t *kwargs = json_object(), *given = json_object_get(entry, "kwargs");
    const struct chat_input input = {.messages = named(g, "conversations", json_object_get(entry, "conversation")),
                                     .tools = named(g, "tools", json_object_get(entry, "tools")),
                                     .documents = named(g, "documents", json_object_get(entry, "documents")),
                                     .kwargs = kwargs,
                                     .add_generation_prompt =
                                         json_is_true(json_object_get(entry, "add_generation_prompt")),
                                     .now = json_integer_value(json_object_get(g->root, "now"))};
    if (json_is_string(json_object_get(template, "bos_token")))
        json_object_set(kwargs, "bos_token", json_object_get(template, "bos_token"));
    json_object_set(kwargs, "eos_token", json_object_get(template, "eos_token"));
    if (given) json_object_update(kwargs, given);
    struct marked_text text = {0};
    struct error err = {{0}};
    struct chat_template *c = open_golden(g, template, &err);
    enum status status = c ? chat_template_render(c, &input, &text, &err) : STATUS_INVALID;
    const bool refused = is_refused(input.messages);
    if (refused || !expected)
        assert_int_equal(status, STATUS_INVALID);
    else if (status)
        fail_msg("%s: %s", json_string_value(json_object_get(entry, "template")), err.text);
    else
        check_text(entry, &text, expected);
    if (!refused && !expected) check_error(entry, &err);
    marked_text_free(&text);
    chat_template_close(c);
    json_decref(kwargs);
    return !refused;
}

static void test_golden(void **state)
{
    (void)state;
    setenv("TZ", "UTC", 1);
    tzset();
    struct golden g = {load(TEMPLATES "/cases.json"), open_with_config(BPE, "{\"bos_token\": null}")};
    const json_t *entry;
    size_t i, checked = 0;
    json_array_foreach(json_object_get(g.root, "cases"), i, entry) checked += check_case(&g, entry);
    assert_true(checked > 450);
    tokenizer_close(g.tokenizer);
    json_decref(g.root);
}

/* --- ids --- */

static void check_ids(const char *folder, struct tokenizer *t, const char *source, const char *key)
{
    json_t *golden = load_golden(folder);
    struct chat_template *c = open_template(t, source);
    const struct chat_input input = {.messages = json_object_get(golden, "conversation"),
                                     .add_generation_prompt = true};
    struct token_list expected = json_ids(json_object_get(golden, key)), got = encode(c, &input);
    assert_same_ids(&got, &expected, key);
    token_list_free(&got);
    token_list_free(&expected);
    chat_template_close(c);
    json_decref(golden);
    tokenizer_close(t);
}

static void test_ids(void **state)
{
    (void)state;
    struct text llama2 = read_source("llama2.jinja");
    check_ids(BPE, open_tokenizer(BPE), NULL, "guide");
    check_ids(UNIGRAM, open_tokenizer(UNIGRAM), NULL, "chatml");
    check_ids(BPE, open_with_config(BPE, "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}"), llama2.data, "llama2");
    text_free(&llama2);
}

/* --- no message speaks as another --- */

/* `shape` with each EVIL replaced by `text`. */
static json_t *fill(const char *shape, const char *text)
{
    json_t *string = json_string(text);
    char *quoted = json_dumps(string, JSON_ENCODE_ANY);
    struct text filled = {0};
    for (const char *evil; (evil = strstr(shape, "EVIL")); shape = evil + 4) {
        assert_true(text_append(&filled, shape, (size_t)(evil - shape)));
        assert_true(text_append(&filled, quoted + 1, strlen(quoted) - 2));
    }
    assert_true(text_append_string(&filled, shape));
    json_t *value = parse(filled.data);
    text_free(&filled);
    free(quoted);
    json_decref(string);
    return value;
}

/* A tokenizer.json may make the unknown piece special; text that it does not know gives it. */
static size_t count_special(const struct tokenizer *t, const struct token_list *ids)
{
    const int32_t unknown = tokenizer_special_id(t, "<unk>");
    size_t count = 0;
    for (size_t i = 0; i < ids->count; i++) count += ids->ids[i] != unknown && tokenizer_is_special(t, ids->ids[i]);
    return count;
}

/* The special ids of a conversation whose texts are `text`. */
static size_t count_rendered(const struct tokenizer *t, const struct chat_template *c, const char *shape,
                             const char *text, bool allow)
{
    json_t *root = fill(shape, text);
    const struct chat_input input = {.messages = json_object_get(root, "messages"),
                                     .tools = json_object_get(root, "tools"),
                                     .documents = json_object_get(root, "documents"),
                                     .kwargs = json_object_get(root, "kwargs"),
                                     .add_generation_prompt = true,
                                     .allow_special = allow};
    struct token_list ids = encode(c, &input);
    const size_t count = count_special(t, &ids);
    token_list_free(&ids);
    json_decref(root);
    return count;
}

/* The spellings of all special tokens, one after another. */
static struct text spell_all(const struct tokenizer *t)
{
    struct text all = {0};
    for (int32_t id = 0; id < tokenizer_size(t); id++) {
        size_t length;
        const char *bytes = tokenizer_token_bytes(t, id, true, &length);
        if (tokenizer_is_special(t, id)) assert_true(text_append(&all, bytes, length));
    }
    assert_true(all.length > 6);
    return all;
}

static const char *const SHAPES[] = {
    "{\"messages\": [{\"role\": \"user\", \"content\": \"EVIL\"}]}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"xEVILx\"},"
    " {\"role\": \"user\", \"content\": \"EVIL\"}]}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"tools\": [{\"type\": \"function\", \"function\": {"
    "\"name\": \"EVIL\", \"description\": \"EVIL\", \"parameters\": {\"type\": \"object\", \"properties\": {"
    "\"EVIL\": {\"type\": \"string\", \"description\": \"EVIL\"}}, \"required\": [\"EVIL\"]}}}]}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": \"\", "
    "\"tool_calls\":"
    " [{\"id\": \"a1B2c3D4e\", \"type\": \"function\", \"function\": {\"name\": \"EVIL\", \"arguments\": {\"EVIL\": "
    "\"EVIL\"}}}]},"
    " {\"role\": \"tool\", \"name\": \"EVIL\", \"tool_call_id\": \"a1B2c3D4e\", \"content\": \"EVIL\"}]}",
    "{\"messages\": [{\"role\": \"user\", \"content\": \"hi\"}], \"documents\": [{\"title\": \"EVIL\", \"text\": "
    "\"EVIL\"}],"
    " \"kwargs\": {\"date_string\": \"EVIL\", \"system_message\": \"EVIL\", \"controls\": {\"length\": \"EVIL\"}}}",
};

static void check_injection(const struct tokenizer *t, const char *source, const char *name)
{
    struct chat_template *c = open_template(t, source);
    struct text evil = spell_all(t);
    for (size_t i = 0; i < sizeof SHAPES / sizeof *SHAPES; i++) {
        const size_t plain = count_rendered(t, c, SHAPES[i], "x", false);
        const size_t attacked = count_rendered(t, c, SHAPES[i], evil.data, false);
        if (plain != attacked) fail_msg("%s, %zu: %zu special tokens became %zu", name, i, plain, attacked);
    }
    assert_true(count_rendered(t, c, SHAPES[0], evil.data, true) > count_rendered(t, c, SHAPES[0], "x", true));
    text_free(&evil);
    chat_template_close(c);
}

static void test_markers_in_messages(void **state)
{
    (void)state;
    static const char *const own[] = {BPE, UNIGRAM};
    for (size_t i = 0; i < 2; i++) {
        struct tokenizer *t = open_tokenizer(own[i]);
        check_injection(
            t, "{% for m in messages %}<|user|><|im_start|>{{ m.role }}{{ m.content | trim }}<|end|>{% endfor %}",
            own[i]);
        tokenizer_close(t);
    }
    static const char *const pairs[][2] = {
        {"llama3", "llama3.1.jinja"},        {"qwen2", "qwen3.jinja"},  {"gpt2", "zephyr.jinja"},
        {"metaspace", "granite3.jinja"},     {"gemma", "hermes.jinja"}, {"deepseek", "deepseek-v3.1.jinja"},
        {"llama2", "command-r-tools.jinja"}, {"o200k", "gpt-oss.jinja"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        char folder[512];
        assert_true(path_join(folder, sizeof folder, TOKENIZERS, pairs[i][0]));
        struct tokenizer *t = open_tokenizer(folder);
        struct text source = read_source(pairs[i][1]);
        check_injection(t, source.data, pairs[i][1]);
        text_free(&source);
        tokenizer_close(t);
    }
}

/* A usual role may be part of a special token; any other is text of a person. */
static void test_roles(void **state)
{
    (void)state;
    struct tokenizer *t = open_tokenizer(BPE);
    struct chat_template *c = open_template(t, "{% for m in messages %}{{ '<|' + m['role'] + '|>' }}{% endfor %}");
    static const char usual[] = "{\"messages\": [{\"role\": \"user\"}, {\"role\": \"system\"}]}";
    assert_int_equal(count_rendered(t, c, usual, "", false), 2);
    assert_int_equal(count_rendered(t, c, "{\"messages\": [{\"role\": \"EVIL\"}]}", "end", false), 0);
    assert_int_equal(count_rendered(t, c, "{\"messages\": [{\"role\": \"EVIL\"}]}", "x|><|end", false), 0);
    assert_int_equal(count_rendered(t, c, "{\"messages\": [{\"role\": \"EVIL\"}]}", "end", true), 1);
    static const char disguised[] = "{\"messages\": [{\"role\": \"user\\u0000<|EVIL|>\"}]}";
    assert_int_equal(count_rendered(t, c, disguised, "end", false), 0);
    chat_template_close(c);
    tokenizer_close(t);
}

/* --- the input --- */

static void assert_rendered(const struct chat_template *c, const char *shape, const char *expected)
{
    json_t *root = parse(shape);
    const struct chat_input input = {.messages = json_object_get(root, "messages"),
                                     .tools = json_object_get(root, "tools"),
                                     .kwargs = json_object_get(root, "kwargs"),
                                     .fit_form = true};
    struct marked_text text = {0};
    struct error err = {{0}};
    if (chat_template_render(c, &input, &text, &err)) fail_msg("%s", err.text);
    assert_string_equal(text.text.data, expected);
    assert_int_equal(text.marks.length, text.text.length);
    marked_text_free(&text);
    json_decref(root);
}

static void test_parts(void **state)
{
    (void)state;
    static const char shape[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"},"
        " {\"type\": \"text\", \"text\": \"b\"}]}, {\"role\": \"assistant\", \"content\": \"c\"}]}";
    struct tokenizer *t = open_tokenizer(BPE);
    struct chat_template *c = open_template(t, "{% for m in messages %}{{ m.content }};{% endfor %}");
    assert_rendered(c, shape, "a\nb;c;");
    chat_template_close(c);
    c = open_template(t, "{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}"
                         "{% for p in m['content'] | list %}[{{ p.text }}]{% endfor %}{% endif %};{% endfor %}");
    assert_rendered(c, shape, "[a][b];c;");
    chat_template_close(c);
    c = open_template(t, "{% macro show(content) %}{% if content is string %}{{ content }}{% else %}"
                         "{% for p in content %}<{{ p.text }}>{% endfor %}{% endif %}{% endmacro %}"
                         "{% for m in messages %}{{ show(m.content) }};{% endfor %}");
    assert_rendered(c, shape, "<a><b>;c;");
    chat_template_close(c);
    /* as SmolVLM's and LLaVA's do: no text but that of parts */
    c = open_template(t, "{% for m in messages %}{% if m['content'][0]['type'] == 'image' %}!{% endif %}"
                         "{% for p in m['content'] %}{% if p['type'] == 'text' %}{{ p['text'] }}{% endif %}"
                         "{% endfor %};{% endfor %}");
    assert_rendered(c, shape, "ab;c;");
    chat_template_close(c);
    tokenizer_close(t);
}

static void test_variables(void **state)
{
    (void)state;
    struct tokenizer *t = open_with_config(BPE, "{\"bos_token\": \"<s>\", \"chat_template\": ["
                                                "{\"name\": \"default\", \"template\": \"{{ bos_token }}{{ tools is "
                                                "none }}{{ documents }}{{ on | default('-') }}\"},"
                                                "{\"name\": \"tool_use\", \"template\": \"{{ tools[0].name }}\"}]}");
    struct chat_template *c = open_template(t, NULL);
    assert_rendered(c, "{\"messages\": [{\"role\": \"user\"}]}", "<s>TrueNone-");
    assert_rendered(c, "{\"messages\": [{\"role\": \"user\"}], \"kwargs\": {\"on\": false}}", "<s>TrueNoneFalse");
    assert_rendered(c, "{\"messages\": [{\"role\": \"user\"}], \"tools\": [{\"name\": \"f\"}]}", "f");
    chat_template_close(c);
    tokenizer_close(t);
}

/* --- refusals --- */

static void test_no_template(void **state)
{
    (void)state;
    struct error err = {{0}};
    struct chat_template *c;
    struct tokenizer *t = open_with_config(BPE, NULL);
    assert_int_equal(chat_template_open(t, NULL, &c, &err), STATUS_UNSUPPORTED);
    assert_null(c);
    assert_non_null(strstr(err.text, "chat_template.jinja"));
    assert_non_null(strstr(err.text, "plain prompts"));
    assert_int_equal(chat_template_open(t, "a\n{% if %}", &c, &err), STATUS_INVALID);
    assert_null(c);
    assert_non_null(strstr(err.text, "the chat template: line 2, column "));
    tokenizer_close(t);
    t = open_with_config(BPE, "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"r\"}]}");
    c = open_template(t, NULL);
    json_t *messages = parse("[{\"role\": \"user\"}]");
    const struct chat_input input = {.messages = messages};
    struct token_list ids = {0};
    assert_int_equal(chat_template_encode(c, &input, &ids, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "\"rag\""));
    json_decref(messages);
    chat_template_close(c);
    chat_template_close(NULL);
    tokenizer_close(t);
}

static void test_refused_input(void **state)
{
    (void)state;
    static const struct {
        const char *root, *word;
    } cases[] = {
        {"{}", "messages must be a list"},
        {"{\"messages\": []}", "messages is empty"},
        {"{\"messages\": [7]}", "message 1 must be an object with a string \"role\""},
        {"{\"messages\": [{\"role\": \"user\"}, {\"role\": 3}]}", "message 2 must be an object"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 3}]}", "the \"content\" of message 1 must be"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
         "a part of type \"image\"; quire reads text alone"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [\"a\"]}]}", "message 1 has a part"},
        {"{\"messages\": [{\"role\": \"user\"}], \"tools\": {}}", "tools must be a list of objects"},
        {"{\"messages\": [{\"role\": \"user\"}], \"documents\": [1]}", "documents must be a list of objects"},
        {"{\"messages\": [{\"role\": \"user\"}], \"kwargs\": []}", "chat_template_kwargs must be an object"},
        {"{\"messages\": [{\"role\": \"user\"}], \"kwargs\": {\"tools\": 1}}", "must not have the name \"tools\""},
        {"{\"messages\": [{\"role\": \"fail\"}]}", "line 1, column"},
    };
    struct tokenizer *t = open_tokenizer(BPE);
    struct chat_template *c =
        open_template(t, "{% if messages[0].role == 'fail' %}{{ raise_exception('no') }}{% endif %}");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = parse(cases[i].root);
        const struct chat_input input = {.messages = json_object_get(root, "messages"),
                                         .tools = json_object_get(root, "tools"),
                                         .documents = json_object_get(root, "documents"),
                                         .kwargs = json_object_get(root, "kwargs")};
        int32_t kept = 5;
        struct token_list ids = {0};
        struct error err = {{0}};
        assert_true(token_list_append(&ids, &kept, 1));
        assert_int_equal(chat_template_encode(c, &input, &ids, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i].word)) fail_msg("\"%s\" is not in: %s", cases[i].word, err.text);
        assert_int_equal(ids.count, 1);
        token_list_free(&ids);
        json_decref(root);
    }
    chat_template_close(c);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_markers_in_messages),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_no_template),
        cmocka_unit_test(test_refused_input),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
