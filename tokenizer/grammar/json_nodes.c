#include "tokenizer/grammar/json_nodes.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_value.h"
#include "tokenizer/grammar/decimal.h"

enum { MAX_BLANKS = 2, MAX_INDENTATION = 64 };

static grammar_node bytes_node(const struct json_nodes *n, const char *bytes)
{
    return grammar_bytes(n->b, bytes, strlen(bytes));
}

static grammar_node pair(const struct json_nodes *n, grammar_node a, grammar_node b)
{
    return grammar_sequence(n->b, (grammar_node[]){a, b}, 2);
}

grammar_node json_optional_node(const struct json_nodes *n, grammar_node part)
{
    return grammar_choice(n->b, (grammar_node[]){grammar_empty(n->b), part}, 2);
}

/* A few blanks, or a newline and an indentation. */
static grammar_node space_node(const struct json_nodes *n)
{
    const grammar_node blank = bytes_node(n, " "), tab = bytes_node(n, "\t");
    const grammar_node indentation[] = {grammar_repeat(n->b, blank, 0, MAX_INDENTATION),
                                        grammar_repeat(n->b, tab, 1, MAX_INDENTATION / 4)};
    const grammar_node line = pair(n, bytes_node(n, "\n"), grammar_choice(n->b, indentation, 2));
    const int32_t rule = grammar_rule(n->b, NULL);
    grammar_define(n->b, rule,
                   grammar_choice(n->b, (grammar_node[]){grammar_repeat(n->b, blank, 0, MAX_BLANKS), line}, 2));
    return grammar_reference(n->b, rule);
}

static void define_value(struct json_nodes *n)
{
    const grammar_node value = grammar_reference(n->b, n->value);
    const grammar_node member = json_member_node(n, n->string, value);
    const grammar_node object = json_brackets_node(n, "{}", json_list_node(n, member, 0, GRAMMAR_UNBOUNDED));
    const grammar_node array = json_brackets_node(n, "[]", json_list_node(n, value, 0, GRAMMAR_UNBOUNDED));
    const grammar_node all[] = {n->string, n->number, n->boolean, n->null, object, array};
    grammar_define(n->b, n->value, grammar_choice(n->b, all, 6));
}

/* A language that a regular expression has in the grammar's bytes. */
static bool add_pattern(struct json_nodes *n, const char *pattern, enum regular_spelling spelling, grammar_node *out)
{
    struct regular *r;
    if (regular_parse(pattern, strlen(pattern), false, &r, NULL)) return false;
    const bool made = regular_node(r, spelling, n->b, out);
    regular_free(r);
    return made;
}

bool json_nodes_make(struct json_nodes *n, const struct json_schema_options *options, struct grammar_builder *b)
{
    *n = (struct json_nodes){.b = b, .quote = grammar_bytes(b, "\"", 1), .value = grammar_rule(b, NULL)};
    const bool any_space = options->any_whitespace;
    grammar_node number;
    if (!add_pattern(n, "(?s).", REGULAR_JSON_STRING, &n->character) ||
        !add_pattern(n, "0|-?[1-9]\\d*", REGULAR_PLAIN, &n->integer) ||
        !add_pattern(n, "-?(0|[1-9]\\d*)(\\.\\d+)?([eE][+-]?\\d{1,3})?", REGULAR_PLAIN, &number))
        return false;
    n->space = any_space ? space_node(n) : grammar_empty(b);
    n->comma = any_space ? pair(n, bytes_node(n, ","), n->space) : bytes_node(n, ", ");
    n->colon = any_space ? pair(n, bytes_node(n, ":"), n->space) : bytes_node(n, ": ");
    n->null = bytes_node(n, "null");
    n->boolean = grammar_choice(b, (grammar_node[]){bytes_node(n, "true"), bytes_node(n, "false")}, 2);
    const int32_t string_rule = grammar_rule(b, NULL), number_rule = grammar_rule(b, NULL);
    grammar_define(b, string_rule, json_string_node(n, grammar_repeat(b, n->character, 0, GRAMMAR_UNBOUNDED)));
    grammar_define(b, number_rule, number);
    n->string = grammar_reference(b, string_rule);
    n->number = grammar_reference(b, number_rule);
    define_value(n);
    return true;
}

grammar_node json_string_node(const struct json_nodes *n, grammar_node characters)
{
    return grammar_sequence(n->b, (grammar_node[]){n->quote, characters, n->quote}, 3);
}

grammar_node json_brackets_node(const struct json_nodes *n, const char *brackets, grammar_node inside)
{
    const grammar_node parts[] = {grammar_bytes(n->b, brackets, 1), n->space, inside, n->space,
                                  grammar_bytes(n->b, brackets + 1, 1)};
    return grammar_sequence(n->b, parts, 5);
}

grammar_node json_list_node(const struct json_nodes *n, grammar_node part, int32_t least, int32_t most)
{
    if (most == 0) return grammar_empty(n->b);
    const grammar_node rest = grammar_repeat(n->b, pair(n, n->comma, part), least > 0 ? least - 1 : 0,
                                             most == GRAMMAR_UNBOUNDED ? most : most - 1);
    const grammar_node list = pair(n, part, rest);
    return least > 0 ? list : json_optional_node(n, list);
}

grammar_node json_member_node(const struct json_nodes *n, grammar_node name, grammar_node value)
{
    return grammar_sequence(n->b, (grammar_node[]){name, n->colon, value}, 3);
}

static bool append_escaped(struct text *out, const char *text, size_t length)
{
    static const char escaped[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    bool added = text_append(out, "\"", 1);
    for (size_t i = 0; i < length && added; i++) {
        const char *known = text[i] ? strchr(escaped, text[i]) : NULL;
        if (known)
            added = text_printf(out, "\\%c", letters[known - escaped]);
        else if ((unsigned char)text[i] < 0x20)
            added = text_printf(out, "\\u%04x", (unsigned)text[i]);
        else
            added = text_append(out, text + i, 1);
    }
    return added && text_append(out, "\"", 1);
}

/* Numbers as Python writes them. */
static bool append_scalar(struct text *out, const json_t *value)
{
    if (json_is_string(value)) return append_escaped(out, json_string_value(value), json_string_length(value));
    if (json_is_number(value) || json_spelling(value)) return json_append_number(out, value);
    return text_append_string(out, json_is_true(value) ? "true" : json_is_false(value) ? "false" : "null");
}

static grammar_node scalar_node(struct json_nodes *n, const json_t *value)
{
    struct text text = {0};
    const bool written = append_scalar(&text, value);
    const grammar_node node = written ? grammar_bytes(n->b, text.data, text.length) : grammar_never(n->b);
    n->failed = n->failed || !written;
    text_free(&text);
    return node;
}

grammar_node json_text_node(struct json_nodes *n, const char *text, size_t length)
{
    struct text out = {0};
    const bool written = append_escaped(&out, text, length);
    const grammar_node node = written ? grammar_bytes(n->b, out.data, out.length) : grammar_never(n->b);
    n->failed = n->failed || !written;
    text_free(&out);
    return node;
}

/* The elements or members, with commas between them. */
static grammar_node inside_node(struct json_nodes *n, const json_t *value)
{
    grammar_node list = grammar_empty(n->b);
    bool first = true;
    size_t index;
    const char *key;
    json_t *part;
    if (json_is_array(value)) {
        json_array_foreach(value, index, part)
        {
            list = grammar_sequence(n->b, (grammar_node[]){list, first ? list : n->comma, json_value_node(n, part)}, 3);
            first = false;
        }
    } else {
        json_object_foreach((json_t *)value, key, part)
        {
            const grammar_node member =
                json_member_node(n, json_text_node(n, key, strlen(key)), json_value_node(n, part));
            list = grammar_sequence(n->b, (grammar_node[]){list, first ? list : n->comma, member}, 3);
            first = false;
        }
    }
    return list;
}

grammar_node json_value_node(struct json_nodes *n, const json_t *value)
{
    if (json_is_array(value)) return json_brackets_node(n, "[]", inside_node(n, value));
    if (json_is_map(value)) return json_brackets_node(n, "{}", inside_node(n, value));
    return scalar_node(n, value);
}
