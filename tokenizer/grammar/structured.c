#include "tokenizer/grammar/structured.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_parse.h"
#include "base/json_value.h"
#include "tokenizer/grammar/free_text.h"
#include "tokenizer/grammar/grammar_form.h"
#include "tokenizer/grammar/json_schema.h"
#include "tokenizer/grammar/structural_tag.h"

static const char *const names[NUM_STRUCTURED_KINDS] = {[STRUCTURED_NONE] = "none",
                                                        [STRUCTURED_JSON] = "json",
                                                        [STRUCTURED_JSON_OBJECT] = "json_object",
                                                        [STRUCTURED_REGEX] = "regex",
                                                        [STRUCTURED_CHOICE] = "choice",
                                                        [STRUCTURED_GRAMMAR] = "grammar",
                                                        [STRUCTURED_STRUCTURAL_TAG] = "structural_tag"};

const char *structured_kind_name(enum structured_kind kind)
{
    return names[kind];
}

/* ---- kinds ---- */

/* Makes *out the value, or what the string that it is holds; the caller owns it. */
static enum status parse_value(const json_t *value, json_t **out, struct error *err)
{
    if (json_is_string(value))
        return json_value_parse(json_string_value(value), json_string_length(value), JSON_DECODE_ANY, NULL, out, err);
    *out = json_incref((json_t *)value);
    return STATUS_OK;
}

static enum status add_json(const struct structured *s, const struct json_schema_options *options,
                            struct grammar_builder *b, grammar_node *out, struct error *err)
{
    json_t *schema = NULL;
    enum status status = parse_value(s->value, &schema, err);
    if (status == STATUS_OK) status = json_schema_node(schema, options, b, out, err);
    json_decref(schema);
    return status;
}

static enum status add_tag(const struct structured *s, const struct json_schema_options *options,
                           struct grammar_builder *b, grammar_node *out, struct error *err)
{
    json_t *tag = NULL;
    enum status status = parse_value(s->value, &tag, err);
    if (status == STATUS_OK && !json_is_map(tag))
        status = error_set(err, STATUS_INVALID, "a structural tag must be an object, found %s", show_value(tag).text);
    if (status == STATUS_OK) status = structural_tag_node(tag, options, b, out, err);
    json_decref(tag);
    return status;
}

static enum status add_choice(const struct structured *s, struct grammar_builder *b, grammar_node *out,
                              struct error *err)
{
    const size_t count = json_array_size(s->value);
    grammar_node *nodes = NULL;
    enum status status = STATUS_OK;
    if (count == 0)
        status = error_set(err, STATUS_INVALID, "it must be a list of strings that is not empty, found %s",
                           show_value(s->value).text);
    else if (!(nodes = calloc(count, sizeof *nodes)))
        status = error_set(err, STATUS_OUT_OF_MEMORY, "no memory for %zu choices", count);
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        const json_t *choice = json_array_get(s->value, i);
        if (json_is_text(choice))
            nodes[i] = grammar_bytes(b, json_string_value(choice), json_string_length(choice));
        else
            status =
                error_set(err, STATUS_INVALID, "[%zu] must be %s, found %s", i, JSON_TEXT, show_value(choice).text);
    }
    if (status == STATUS_OK) *out = grammar_choice(b, nodes, (int32_t)count);
    free(nodes);
    return status;
}

static enum status add_kind(const struct structured *s, struct grammar_builder *b, grammar_node *out, struct error *err)
{
    const struct json_schema_options options = {.any_whitespace = !s->disable_any_whitespace,
                                                .disable_additional_properties = s->disable_additional_properties};
    const bool wants_string = s->kind == STRUCTURED_REGEX || s->kind == STRUCTURED_GRAMMAR;
    if (wants_string && !json_is_text(s->value))
        return error_set(err, STATUS_INVALID, "it must be %s, found %s", JSON_TEXT, show_value(s->value).text);
    switch (s->kind) {
    case STRUCTURED_JSON:
        return add_json(s, &options, b, out, err);
    case STRUCTURED_JSON_OBJECT:
        return json_object_node(&options, b, out, err);
    case STRUCTURED_REGEX:
        return grammar_pattern_node(json_string_value(s->value), json_string_length(s->value), b, out, err);
    case STRUCTURED_CHOICE:
        return add_choice(s, b, out, err);
    case STRUCTURED_GRAMMAR:
        return grammar_form_node(json_string_value(s->value), json_string_length(s->value), b, out, err);
    case STRUCTURED_STRUCTURAL_TAG:
        return add_tag(s, &options, b, out, err);
    case STRUCTURED_NONE:
        break;
    }
    return error_set(err, STATUS_INTERNAL, "no structure was asked for");
}

/* ---- thoughts ---- */

/* Free text up to one of the marks; then a few blanks. */
static enum status add_thought(const struct free_text_marks *ends, struct grammar_builder *b, grammar_node *out,
                               struct error *err)
{
    static const struct character_range blanks[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}};
    grammar_node thought = grammar_never(b), part;
    enum status status = STATUS_OK;
    for (int32_t i = 0; i < ends->count && status == STATUS_OK; i++) {
        status = free_text_node(ends, i, b, &part, err);
        thought = grammar_choice(b, (grammar_node[]){thought, part}, 2);
    }
    const grammar_node space = grammar_repeat(b, grammar_characters(b, blanks, 3), 0, 4);
    *out = grammar_sequence(b, (grammar_node[]){thought, space}, 2);
    return status;
}

/* Puts the thought before *node, which it may have, or must. */
static enum status put_thought(const struct structured_thought *t, struct grammar_builder *b, grammar_node *node,
                               struct error *err)
{
    struct free_text_marks ends = {.count = 0};
    grammar_node thought, begin = t->is_open ? grammar_empty(b) : grammar_never(b);
    for (int i = 0; t->ends && t->ends[i] && ends.count < FREE_TEXT_MAX_MARKS; i++)
        ends.list[ends.count++] = t->ends[i];
    if (ends.count == 0) return STATUS_OK;
    const enum status status = add_thought(&ends, b, &thought, err);
    for (int i = 0; !t->is_open && t->begins && t->begins[i]; i++)
        begin = grammar_choice(b, (grammar_node[]){begin, grammar_bytes(b, t->begins[i], strlen(t->begins[i]))}, 2);
    const grammar_node whole = grammar_sequence(b, (grammar_node[]){begin, thought, *node}, 3);
    *node = t->is_open ? whole : grammar_choice(b, (grammar_node[]){whole, *node}, 2);
    return status;
}

enum status structured_grammar(const struct structured *s, struct grammar **out, struct error *err)
{
    struct grammar_builder *b = grammar_builder_create();
    *out = NULL;
    if (!b) return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for a grammar");
    const int32_t root = grammar_rule(b, NULL);
    grammar_node node = grammar_never(b);
    enum status status = add_kind(s, b, &node, err);
    if (status == STATUS_OK) status = put_thought(&s->thought, b, &node, err);
    if (status == STATUS_OK) {
        grammar_define(b, root, node);
        status = grammar_build(b, root, out, err);
    }
    grammar_builder_free(b);
    return status;
}
