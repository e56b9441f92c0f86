/* The source of a Jinja template, rendered with variables in which every string has the character U+F2A7C. Where it
 * is rendered it must be marked, unless the template has it too. */
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tokenizer/jinja/jinja.h"

#define PERSON "\xf3\xb2\xa9\xbc"

static const char variables[] =
    "{\"messages\":[{\"role\":\"user" PERSON "\",\"content\":\" Hello " PERSON " <b>you</b>\\n\",\"n\":[1,-2.5,null]},"
    "{\"role\":\"assistant" PERSON "\",\"content\":[{\"type\":\"text" PERSON "\",\"text\":\"a" PERSON "\"}],"
    "\"tool_calls\":[{\"function\":{\"name\":\"f" PERSON "\",\"arguments\":{\"x" PERSON "\":true}}}]}],"
    "\"s\":\"" PERSON "x,y" PERSON " Zz\",\"i\":7,\"f\":0.5,\"none\":null,\"l\":[3,1,2],\"d\":{\"b" PERSON
    "\":1,\"a\":2},"
    "\"tools\":[{\"type\":\"function" PERSON "\",\"function\":{\"name\":\"g" PERSON "\",\"parameters\":{}}}],"
    "\"add_generation_prompt\":true}";

static void check_output(const struct jinja_output *out, bool template_has_it)
{
    const size_t length = out->text.length;
    fuzz_require(out->marks.length == length, "not one mark for each byte");
    fuzz_require(utf8_valid_prefix(out->text.data, length) == length, "rendered text that is not UTF-8");
    for (size_t i = 0; i < length; i++) {
        fuzz_require(out->marks.data[i] == 0 || out->marks.data[i] == 1, "a mark that is none");
        if (!template_has_it && length - i >= strlen(PERSON) && memcmp(out->text.data + i, PERSON, strlen(PERSON)) == 0)
            fuzz_require(memcmp(out->marks.data + i, "\1\1\1\1", strlen(PERSON)) == 0,
                         "text of a variable lost its mark");
    }
}

static void render(const struct jinja_template *template, const json_t *values, bool template_has_it)
{
    struct jinja_variable list[16];
    struct jinja_context context = {.variables = list, .now = 1700000000, .seconds = 0.2, .max_bytes = (size_t)4 << 20};
    struct jinja_output out = {0};
    struct error err = {""};
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)values, name, value) list[context.num_variables++] =
        (struct jinja_variable){.name = name, .value = value, .marked = true};
    if (jinja_render(template, &context, &out, &err) == STATUS_OK)
        check_output(&out, template_has_it);
    else
        fuzz_require_sentence(&err);
    jinja_output_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static json_t *values;
    struct jinja_template *template;
    struct error err = {""};
    const char *source = (const char *)data;
    if (!values) values = json_loads(variables, 0, NULL);
    fuzz_require(values != NULL, "the variables are not JSON");
    if (utf8_valid_prefix(source, size) < size) return 0; /* the caller's part of the contract */
    if (jinja_parse(source, size, &template, &err) == STATUS_OK)
        render(template, values, memmem(source, size, PERSON, strlen(PERSON)) != NULL);
    else
        fuzz_require(!template && strncmp(err.text, "line ", 5) == 0, "an error of a template without its line");
    if (!template) fuzz_require_sentence(&err);
    jinja_template_free(template);
    return 0;
}
