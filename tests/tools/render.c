/* Renders Jinja templates, for comparison with another implementation.
 *
 * A request is a line of standard input: {"template": ..., "variables": {...}}. An answer is a line of standard output:
 * {"text": ...}, or {"error": ...} with the sentence. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tokenizer/jinja/jinja.h"

static void must(bool right, const char *what)
{
    if (right) return;
    fprintf(stderr, "render: %s\n", what);
    exit(1);
}

static enum status render(const char *source, size_t length, const json_t *values, struct jinja_output *out,
                          struct error *err)
{
    struct jinja_template *template;
    struct jinja_variable *variables = calloc(json_object_size(values) + 1, sizeof *variables);
    struct jinja_context context = {.variables = variables, .now = 1700000000};
    const char *name;
    json_t *value;
    must(variables != NULL, "no memory");
    json_object_foreach((json_t *)values, name, value) variables[context.num_variables++] =
        (struct jinja_variable){.name = name, .value = value};
    enum status status = jinja_parse(source, length, &template, err);
    if (!status) status = jinja_render(template, &context, out, err);
    jinja_template_free(template);
    free(variables);
    return status;
}

static void answer(const char *line, size_t length)
{
    json_t *request = json_loadb(line, length, JSON_ALLOW_NUL, NULL);
    const json_t *source = json_object_get(request, "template");
    struct jinja_output out = {0};
    struct error err = {""};
    must(json_is_string(source), "a line is not a request");
    const enum status status = render(json_string_value(source), json_string_length(source),
                                      json_object_get(request, "variables"), &out, &err);
    json_t *reply = status ? json_pack("{s:s}", "error", err.text)
                           : json_pack("{s:s%}", "text", out.text.length ? out.text.data : "", out.text.length);
    must(reply && json_dumpf(reply, stdout, JSON_COMPACT) == 0 && putchar('\n') != EOF && fflush(stdout) == 0,
         "the answer cannot be written");
    json_decref(reply);
    json_decref(request);
    jinja_output_free(&out);
}

int main(void)
{
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, stdin)) > 0) answer(line, (size_t)length);
    free(line);
    return 0;
}
