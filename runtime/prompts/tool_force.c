/* What an answer must begin with, so that it is a call, as a structural tag (XGrammar's, as structured.h takes it): the
 * text of the form, and in it the arguments, whose schema is the tool's.
 *
 * Where arguments are no JSON, the required ones come first and then those of the others that the model wants. There a
 * string is any text, or one of an enum's; its other constraints are not kept. */
#include <string.h>

#include "base/json_value.h"
#include "runtime/prompts/answer_parser_state.h"
#include "runtime/prompts/tool_value.h"

/* Formats that follow one another. Texts that follow one another become one. */
struct sequence {
    json_t *elements;
    struct text text;
    bool failed; /* memory ran out */
};

/* ---- formats ----
 *
 * Each takes what it is made of. NULL in, NULL out: jansson had no memory, which the sequence remembers. */

static json_t *format_of(const char *type, const char *key, json_t *value)
{
    json_t *format = value ? json_pack("{s:s,s:O}", "type", type, key, value) : NULL;
    json_decref(value); /* which json_pack would not take if it failed before */
    return format;
}

static void flush_text(struct sequence *s);

static void add_format(struct sequence *s, json_t *format)
{
    flush_text(s);
    if (json_array_append_new(s->elements, format) != 0) s->failed = true;
}

static void flush_text(struct sequence *s)
{
    if (s->text.length == 0) return;
    json_t *text = json_stringn(s->text.data, s->text.length);
    text_clear(&s->text);
    add_format(s, format_of("const_string", "value", text));
}

static void add_text(struct sequence *s, const char *text)
{
    if (text && !text_append_string(&s->text, text)) s->failed = true;
}

static void add_line(struct sequence *s, bool ends)
{
    if (ends) add_text(s, "\n");
}

static struct sequence begin_sequence(void)
{
    return (struct sequence){.elements = json_array()};
}

/* NULL: memory ran out. */
static json_t *end_sequence(struct sequence *s)
{
    flush_text(s);
    text_free(&s->text);
    if (!s->failed) return format_of("sequence", "elements", s->elements);
    json_decref(s->elements);
    return NULL;
}

/* ---- values ---- */

/* The schema of an argument, with the definitions to which it may refer. */
static json_t *property_schema(const json_t *root, const json_t *property)
{
    static const char *const keys[] = {"$defs", "definitions"};
    json_t *schema = json_is_object(property) ? json_copy((json_t *)property) : json_object();
    for (size_t i = 0; schema && i < sizeof keys / sizeof *keys; i++) {
        json_t *definitions = json_object_get(root, keys[i]);
        if (definitions && !json_object_get(schema, keys[i])) json_object_set(schema, keys[i], definitions);
    }
    return schema;
}

static json_t *string_format(const json_t *property, const char *begin, const char *end)
{
    const json_t *constants = json_object_get(property, "enum"), *constant = json_object_get(property, "const");
    if (!json_is_array(constants) && !constant)
        return json_pack("{s:s,s:s,s:{s:s},s:s}", "type", "tag", "begin", begin, "content", "type", "any_text", "end",
                         end);
    json_t *choices = json_array();
    for (size_t i = 0; constant ? i < 1 : i < json_array_size(constants); i++) {
        struct sequence s = begin_sequence();
        add_text(&s, begin);
        add_text(&s, json_string_value(constant ? constant : json_array_get(constants, i)));
        add_text(&s, end);
        if (json_array_append_new(choices, end_sequence(&s)) != 0) return json_decref(choices), NULL;
    }
    return format_of("or", "elements", choices);
}

/* The marks around the arguments of a form without JSON. */
struct argument_marks {
    const char *key, *value, *end;
    const char *string, *string_end; /* instead of value and end, if it is a string; NULL: it is written as JSON */
    const char *behind;              /* each argument */
    const char *separator;           /* between two */
};

static void add_argument(struct sequence *s, const struct argument_marks *marks, const json_t *root, const char *key,
                         const json_t *property)
{
    add_text(s, marks->key);
    add_text(s, key);
    if (marks->string && tool_value_types(root, property) == TOOL_STRING) {
        add_format(s, string_format(property, marks->string, marks->string_end));
    } else {
        add_text(s, marks->value);
        add_format(s, format_of("json_schema", "json_schema", property_schema(root, property)));
        add_text(s, marks->end);
    }
    add_text(s, marks->behind);
}

static bool is_required(const json_t *root, const char *key)
{
    const json_t *required = json_object_get(root, "required");
    for (size_t i = 0; i < json_array_size(required); i++)
        if (json_is_word(json_array_get(required, i), key)) return true;
    return false;
}

/* The optional arguments from `iterator` on, each or none, with a separator before it. */
static void add_optional(struct sequence *s, const struct argument_marks *marks, const json_t *root, void *iterator)
{
    json_t *properties = json_object_get(root, "properties");
    for (; iterator; iterator = json_object_iter_next(properties, iterator)) {
        const char *key = json_object_iter_key(iterator);
        if (is_required(root, key)) continue;
        struct sequence one = begin_sequence();
        add_text(&one, marks->separator);
        add_argument(&one, marks, root, key, json_object_iter_value(iterator));
        add_format(s, format_of("optional", "content", end_sequence(&one)));
    }
}

/* No argument is required: none, or one of them and those behind it. */
static void add_some(struct sequence *s, const struct argument_marks *marks, const json_t *root)
{
    json_t *properties = json_object_get(root, "properties"), *choices = json_array();
    for (void *i = json_object_iter(properties); i; i = json_object_iter_next(properties, i)) {
        struct sequence one = begin_sequence();
        add_argument(&one, marks, root, json_object_iter_key(i), json_object_iter_value(i));
        add_optional(&one, marks, root, json_object_iter_next(properties, i));
        if (json_array_append_new(choices, end_sequence(&one)) != 0) s->failed = true;
    }
    if (json_array_size(choices) > 0)
        add_format(s, format_of("optional", "content", format_of("or", "elements", choices)));
    else
        json_decref(choices);
}

static void add_arguments(struct sequence *s, const struct argument_marks *marks, const json_t *root)
{
    json_t *properties = json_object_get(root, "properties");
    bool is_first = true;
    for (void *i = json_object_iter(properties); i; i = json_object_iter_next(properties, i)) {
        if (!is_required(root, json_object_iter_key(i))) continue;
        if (!is_first) add_text(s, marks->separator);
        add_argument(s, marks, root, json_object_iter_key(i), json_object_iter_value(i));
        is_first = false;
    }
    if (is_first && marks->separator[0])
        add_some(s, marks, root);
    else
        add_optional(s, marks, root, json_object_iter(properties));
}

static void add_json_arguments(struct sequence *s, const json_t *schema)
{
    json_t *any = schema ? json_incref((json_t *)schema) : json_pack("{s:s}", "type", "object");
    add_format(s, format_of("json_schema", "json_schema", any));
}

/* ---- a call of each syntax ---- */

static void add_json_call(struct sequence *s, const struct tool_form *form, const char *name, const json_t *schema)
{
    const bool marked = !form->writes_list && !form->bare;
    struct text quoted = {0};
    if (!json_append_escaped(&quoted, name, strlen(name))) s->failed = true;
    if (marked) add_text(s, form->begins[0]);
    if (marked) add_text(s, form->writes_lines ? "\n" : " ");
    add_text(s, "{\"");
    if (!form->name_is_key) add_text(s, form->name_key ? form->name_key : "name");
    if (!form->name_is_key) add_text(s, "\": \"");
    add_text(s, quoted.data);
    add_text(s, form->name_is_key ? "\": " : "\", \"");
    if (!form->name_is_key) add_text(s, form->arguments_key ? form->arguments_key : "arguments");
    if (!form->name_is_key) add_text(s, "\": ");
    add_json_arguments(s, schema);
    add_text(s, "}");
    if (marked && form->ends[0]) add_line(s, form->writes_lines);
    if (marked) add_text(s, form->ends[0]);
    text_free(&quoted);
}

static void add_named_call(struct sequence *s, const struct tool_form *form, const char *name, const json_t *schema)
{
    add_text(s, form->marks.call ? form->marks.call : form->begins[0]);
    if (form->has_id) add_text(s, "functions.");
    add_text(s, name);
    if (form->has_id) add_text(s, ":0");
    add_line(s, form->writes_lines);
    add_text(s, form->marks.name_end[0]);
    add_line(s, form->writes_lines);
    add_json_arguments(s, schema);
    add_line(s, form->writes_lines);
    add_text(s, form->marks.call_end);
}

static void add_xml_call(struct sequence *s, const struct tool_form *form, const char *name, const json_t *schema)
{
    struct text value = {0}, string = {0}, end = {0};
    const struct call_marks *marks = &form->marks;
    const char *line = form->writes_lines ? "\n" : "", *value_line = form->writes_value_lines ? "\n" : "";
    const bool ok = text_printf(&value, "%s%s%s%s", marks->key_end, marks->value ? line : "",
                                marks->value ? marks->value : "", value_line) &&
                    text_printf(&string, "%s", marks->string_key_end ? marks->string_key_end : value.data) &&
                    text_printf(&end, "%s%s", value_line, marks->value_end);
    if (ok) {
        /* The newline before a string's end is a part of its text, which the parser leaves out. */
        const struct argument_marks around = {marks->key,       value.data, end.data, string.data,
                                              marks->value_end, line,       ""};
        add_text(s, marks->call);
        add_text(s, name);
        add_text(s, marks->name_end[0]);
        add_text(s, line);
        add_arguments(s, &around, schema);
        add_text(s, marks->call_end);
    }
    s->failed = s->failed || !ok;
    text_free(&value);
    text_free(&string);
    text_free(&end);
}

static void add_literal_call(struct sequence *s, const struct tool_form *form, const char *name, const json_t *schema)
{
    struct argument_marks marks = {"", "=", "", NULL, NULL, "", ", "};
    struct text string = {0};
    if (form->quote) {
        if (!text_printf(&string, ":%s", form->quote)) s->failed = true;
        marks = (struct argument_marks){"", ":", "", string.data, form->quote, "", ","};
        add_text(s, form->begins[0]);
    }
    add_text(s, name);
    add_text(s, form->quote ? "{" : "(");
    if (!s->failed) add_arguments(s, &marks, schema);
    add_text(s, form->quote ? "}" : ")");
    if (form->quote) add_text(s, form->ends[0]);
    text_free(&string);
}

static json_t *call_format(const struct tool_form *form, const json_t *tool)
{
    struct sequence s = begin_sequence();
    const char *name = json_string_value(json_object_get(tool, "name"));
    const json_t *schema = answer_tool_schema(tool);
    switch (form->syntax) {
    case SYNTAX_XML:
        add_xml_call(&s, form, name, schema);
        break;
    case SYNTAX_LITERAL:
        add_literal_call(&s, form, name, schema);
        break;
    case SYNTAX_HARMONY:
        add_text(&s, "<|channel|>commentary to=functions.");
        add_text(&s, name);
        add_text(&s, " <|constrain|>json<|message|>");
        add_json_arguments(&s, schema);
        break;
    default:
        if (form->syntax == SYNTAX_NAMED || form->may_be_named)
            add_named_call(&s, form, name, schema);
        else
            add_json_call(&s, form, name, schema);
    }
    return end_sequence(&s);
}

/* ---- all calls ---- */

/* What stands before, between and behind calls; no separator: there is one call. */
struct frame {
    const char *begin, *bracket, *separator, *bracket_end, *end;
    bool lines; /* around what is inside */
};

static struct frame frame_of(const struct tool_form *form)
{
    const char *begin = form->begins[0], *end = form->ends[0];
    switch (form->syntax) {
    case SYNTAX_NAMED:
        return (struct frame){begin, NULL, form->has_id ? NULL : form->writes_lines ? "\n" : "", NULL, end};
    case SYNTAX_XML:
        if (strcmp(begin, form->marks.call) == 0) return (struct frame){.separator = "\n"};
        return (struct frame){begin, NULL, form->writes_lines ? "\n" : "", NULL, end, form->writes_lines};
    case SYNTAX_LITERAL:
        if (form->quote) return (struct frame){.separator = ""};
        if (form->writes_lines) return (struct frame){begin, NULL, "\n", NULL, end, true};
        return (struct frame){begin, "[", ", ", "]", end};
    case SYNTAX_JSON:
        if (form->writes_list) return (struct frame){begin, "[", ", ", "]", end};
        if (form->may_be_named) return (struct frame){.separator = ""};
        return (struct frame){.separator = form->separator ? "; " : form->writes_lines ? "\n" : " "};
    default:
        return (struct frame){NULL};
    }
}

static json_t *whole_format(const struct tool_form *form, json_t *calls, bool one)
{
    const struct frame frame = frame_of(form);
    const bool is_bare = form->bare && form->syntax == SYNTAX_JSON && !form->writes_list;
    struct sequence s = begin_sequence();
    if (!is_bare) add_text(&s, frame.begin);
    add_line(&s, frame.lines);
    add_text(&s, frame.bracket);
    add_format(&s, json_incref(calls));
    if (!one && frame.separator) {
        struct sequence more = begin_sequence();
        add_text(&more, frame.separator);
        add_format(&more, json_incref(calls));
        add_format(&s, format_of("star", "content", end_sequence(&more)));
    }
    add_text(&s, frame.bracket_end);
    add_line(&s, frame.lines);
    if (!is_bare) add_text(&s, frame.end);
    return end_sequence(&s);
}

/* One call of the tool, or of each if name is NULL. NULL: memory ran out. */
static json_t *calls_format(const struct tool_form *form, const json_t *tool_list, const char *name)
{
    if (name) return call_format(form, answer_tool_find(tool_list, name, strlen(name)));
    json_t *choices = json_array();
    for (size_t i = 0; i < json_array_size(tool_list); i++) {
        const json_t *entry = json_array_get(tool_list, i), *function = json_object_get(entry, "function");
        const json_t *tool = function ? function : entry;
        if (!json_is_text(json_object_get(tool, "name"))) continue;
        if (json_array_append_new(choices, call_format(form, tool)) != 0) return json_decref(choices), NULL;
    }
    return format_of("or", "elements", choices);
}

enum status tool_format_force(const struct answer_format *tools, const json_t *tool_list, const char *name,
                              json_t **out, struct error *err)
{
    const struct tool_form *form = (const struct tool_form *)tools;
    *out = NULL;
    if (json_array_size(tool_list) == 0)
        return error_set(err, STATUS_INVALID, "a tool must be called, but there is none");
    if (name && !answer_tool_find(tool_list, name, strlen(name)))
        return error_set(err, STATUS_INVALID, "tool %s must be called, but it is none of the tools",
                         show_string(name).text);
    json_t *calls = calls_format(form, tool_list, name);
    json_t *whole = calls ? whole_format(form, calls, name != NULL) : NULL;
    json_decref(calls);
    *out = format_of("structural_tag", "format", whole);
    return *out ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "no memory for the form of a call");
}
