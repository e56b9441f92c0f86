#include "runtime/options/structured_flags.h"

#include <stdio.h>

#include "base/file.h"

static enum status add_choice(void *target, const char *text, struct error *err)
{
    json_t **choices = target;
    if (!*choices) *choices = json_array();
    json_t *choice = json_string(text);
    if (!choice) return error_set(err, STATUS_INVALID, "expected a text in UTF-8");
    if (json_array_append_new(*choices, choice) == 0) return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a choice");
}

void structured_flags_add(struct option_table *table, struct structured_flags *flags, const char *heading)
{
    const struct option_spec specs[] = {
        {"json-schema", OPTION_STRING, &flags->schema, "FILE",
         .help = "Answers are JSON, an instance of the JSON Schema in this file. Default: none. This flag, --regex, "
                 "--choice or --grammar holds the answers to all prompts to a form, unless a line gives its own.",
         .heading = heading, .not_empty = true},
        {"regex", OPTION_STRING, &flags->regex, "REGEX",
         .help = "Each answer as a whole matches this regular expression. Default: none.", .not_empty = true},
        {"choice", OPTION_CUSTOM, &flags->choices, "TEXT",
         .help = "Each answer is this text, or one of those of all --choice flags. Default: none.", .parse = add_choice,
         .not_empty = true, .repeats = true},
        {"grammar", OPTION_STRING, &flags->grammar, "FILE",
         .help = "Answers are texts of the grammar in this file, which is GBNF (rules NAME ::= ..., the first of which "
                 "is root) or Lark (rules NAME: ..., start). Default: none.",
         .not_empty = true},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

/* The schema in the file, or the grammar in it as a string. */
static enum status read_file(const char *path, bool is_schema, json_t **out, struct error *err)
{
    struct text text = {0};
    enum status status = file_read_or_pipe(path, &text, err);
    const char *bytes = text.data ? text.data : "";
    if (status == STATUS_OK && is_schema)
        status = json_value_parse(bytes, text.length, JSON_DECODE_ANY, path, out, err);
    if (status == STATUS_OK && !is_schema && !(*out = json_stringn(bytes, text.length)))
        status = error_set(err, STATUS_INVALID, "%s: the file is not UTF-8", path);
    text_free(&text);
    return status;
}

static enum status read_value(struct structured_flags *f, struct error *err)
{
    struct structured *s = &f->fields.structured;
    enum status status = STATUS_OK;
    if (s->kind == STRUCTURED_JSON) status = read_file(f->schema, true, &f->value, err);
    if (s->kind == STRUCTURED_GRAMMAR) status = read_file(f->grammar, false, &f->value, err);
    if (s->kind == STRUCTURED_CHOICE) f->value = json_incref(f->choices);
    if (s->kind == STRUCTURED_REGEX && !(f->value = json_string(f->regex)))
        status = error_set(err, STATUS_INVALID, "--regex is not UTF-8");
    s->value = f->value;
    return status;
}

/* A form that no answer can have is found before the model is loaded. */
static enum status check_value(const struct structured_fields *fields, struct error *err)
{
    struct grammar *grammar = NULL;
    const enum status status = structured_grammar(&fields->structured, &grammar, err);
    grammar_free(grammar);
    return status == STATUS_OK ? status : error_prefix(err, status, fields->place);
}

enum status structured_flags_read(struct structured_flags *f, struct error *err)
{
    const struct {
        enum structured_kind kind;
        const char *name;
        bool is_given;
    } kinds[] = {{STRUCTURED_JSON, "--json-schema", f->schema != NULL},
                 {STRUCTURED_REGEX, "--regex", f->regex != NULL},
                 {STRUCTURED_CHOICE, "--choice", f->choices != NULL},
                 {STRUCTURED_GRAMMAR, "--grammar", f->grammar != NULL}};
    struct structured_fields *fields = &f->fields;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (!kinds[i].is_given) continue;
        if (fields->structured.kind != STRUCTURED_NONE)
            return error_set(err, STATUS_INVALID, "%s and %s are both given; one is enough", fields->place,
                             kinds[i].name);
        fields->structured.kind = kinds[i].kind;
        snprintf(fields->place, sizeof fields->place, "%s", kinds[i].name);
    }
    if (fields->structured.kind == STRUCTURED_NONE) return STATUS_OK;
    const enum status status = read_value(f, err);
    return status == STATUS_OK ? check_value(fields, err) : status;
}

void structured_flags_free(struct structured_flags *f)
{
    json_decref(f->choices);
    json_decref(f->value);
}
