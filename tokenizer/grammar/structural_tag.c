#include "tokenizer/grammar/structural_tag.h"

#include <stdlib.h>
#include <string.h>

#include "base/json_value.h"
#include "tokenizer/grammar/grammar_form.h"
#include "tokenizer/grammar/tag_reader.h"

enum {
    MAX_DEPTH = 100,       /* of formats in formats */
    MAX_SEARCHED = 1 << 16 /* bytes of the strings that all texts together are searched for */
};

/* ---- nodes ---- */

static grammar_node two(struct tag_reader *r, grammar_node first, grammar_node second)
{
    return grammar_sequence(r->builder, (grammar_node[]){first, second}, 2);
}

static grammar_node either(struct tag_reader *r, grammar_node first, grammar_node second)
{
    return grammar_choice(r->builder, (grammar_node[]){first, second}, 2);
}

static grammar_node string_node(struct tag_reader *r, const char *text)
{
    return grammar_bytes(r->builder, text, strlen(text));
}

static grammar_node marks_node(struct tag_reader *r, const struct free_text_marks *marks)
{
    grammar_node node = grammar_never(r->builder);
    for (int32_t i = 0; i < marks->count; i++) node = either(r, node, string_node(r, marks->list[i]));
    return node;
}

/* What has an end of its own, and then an end of the tag around it, where one is due. */
static grammar_node ended(struct tag_reader *r, grammar_node node, const struct free_text_marks *end)
{
    return end ? two(r, node, marks_node(r, end)) : node;
}

static grammar_node free_text(struct tag_reader *r, const struct tag_place *at, const struct free_text_marks *marks,
                              int32_t which)
{
    grammar_node node = grammar_never(r->builder);
    for (int32_t i = 0; i < marks->count; i++) r->num_searched += strlen(marks->list[i]);
    if (r->num_searched > MAX_SEARCHED)
        tag_fail(r, at, STATUS_UNSUPPORTED,
                 "the texts of a tag are searched for strings of more than %d bytes together", MAX_SEARCHED);
    if (r->status == STATUS_OK) tag_take_failure(r, at, free_text_node(marks, which, r->builder, &node, r->err));
    return node;
}

/* Text up to the end of the tag around it, where one is due, in which none of the marks [first ...] stands: `marks` are
 * those, and at `first` those of the end. */
static grammar_node free_rest(struct tag_reader *r, const struct tag_place *at, const struct free_text_marks *marks,
                              int32_t first, const struct free_text_marks *end)
{
    if (!end) return free_text(r, at, marks, FREE_TEXT_NO_MARK);
    grammar_node node = grammar_never(r->builder);
    for (int32_t i = 0; i < end->count; i++) node = either(r, node, free_text(r, at, marks, first + i));
    return node;
}

/* ---- formats ---- */

/* Each reads a format. `end`: the strings of the tag around it, one of which the node ends with; NULL: it ends without
 * one. */
typedef grammar_node format_reader(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                                   const struct free_text_marks *end);
static format_reader read_format;

static grammar_node read_part(struct tag_reader *r, const json_t *object, const struct tag_place *at, const char *key,
                              const struct free_text_marks *end)
{
    const struct tag_place place = tag_under(at, key);
    return read_format(r, json_object_get(object, key), &place, end);
}

static grammar_node read_const_string(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                                      const struct free_text_marks *end)
{
    return ended(r, string_node(r, tag_string(r, format, at, "value")), end);
}

static grammar_node read_json_schema(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                                     const struct free_text_marks *end)
{
    const json_t *schema = json_object_get(format, "json_schema"), *style = json_object_get(format, "style");
    const struct tag_place place = tag_under(at, "json_schema");
    grammar_node node = grammar_never(r->builder);
    if (tag_has(format, "style") && !json_is_word(style, "json"))
        tag_fail(r, at, STATUS_UNSUPPORTED, "quire supports the style \"json\" only, found %s", show_value(style).text);
    if (tag_bool(r, format, at, "any_order")) tag_fail(r, at, STATUS_UNSUPPORTED, "quire does not support any_order");
    if (!schema) tag_fail(r, at, STATUS_INVALID, "json_schema is missing");
    if (r->status == STATUS_OK)
        tag_take_failure(r, &place, json_schema_node(schema, r->options, r->builder, &node, r->err));
    return ended(r, node, end);
}

static grammar_node read_grammar(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                                 const struct free_text_marks *end)
{
    const char *text = tag_string(r, format, at, "grammar");
    const struct tag_place place = tag_under(at, "grammar");
    grammar_node node = grammar_never(r->builder);
    if (r->status == STATUS_OK)
        tag_take_failure(r, &place, grammar_form_node(text, strlen(text), r->builder, &node, r->err));
    return ended(r, node, end);
}

static grammar_node read_regex(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                               const struct free_text_marks *end)
{
    const char *pattern = tag_string(r, format, at, "pattern");
    const struct tag_place place = tag_under(at, "pattern");
    grammar_node node = grammar_never(r->builder);
    if (r->status == STATUS_OK)
        tag_take_failure(r, &place, grammar_pattern_node(pattern, strlen(pattern), r->builder, &node, r->err));
    return ended(r, node, end);
}

static grammar_node read_any_text(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                                  const struct free_text_marks *end)
{
    struct free_text_marks marks = {.count = 0};
    if (tag_has(format, "max_tokens")) tag_fail(r, at, STATUS_UNSUPPORTED, "quire does not support max_tokens");
    tag_marks(r, format, at, "excludes", &marks);
    const int32_t first = marks.count;
    tag_add_marks(r, at, r->end, &marks);
    return free_rest(r, at, &marks, first, end);
}

static grammar_node read_sequence(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                                  const struct free_text_marks *end)
{
    const json_t *list = tag_list(r, format, at, "elements"), *part;
    const struct tag_place list_place = tag_under(at, "elements");
    grammar_node node = grammar_empty(r->builder);
    size_t i;
    json_array_foreach(list, i, part)
    {
        const struct tag_place place = tag_element(&list_place, i);
        node = two(r, node, read_format(r, part, &place, i + 1 == json_array_size(list) ? end : NULL));
    }
    return node;
}

static grammar_node read_or(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                            const struct free_text_marks *end)
{
    const json_t *list = tag_list(r, format, at, "elements"), *part;
    const struct tag_place list_place = tag_under(at, "elements");
    grammar_node node = grammar_never(r->builder);
    size_t i;
    json_array_foreach(list, i, part)
    {
        const struct tag_place place = tag_element(&list_place, i);
        node = either(r, node, read_format(r, part, &place, end));
    }
    return node;
}

static grammar_node read_repetition(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                                    const struct free_text_marks *end)
{
    const json_t *type = json_object_get(format, "type");
    const json_t *min = json_object_get(format, "min"), *max = json_object_get(format, "max");
    json_int_t least = json_is_word(type, "plus"), most = json_is_word(type, "optional") ? 1 : GRAMMAR_UNBOUNDED;
    if (json_is_word(type, "repeat")) {
        least = json_integer_value(min);
        most = json_integer_value(max);
        const bool in_order = most == GRAMMAR_UNBOUNDED || most >= least;
        if (!json_is_integer(min) || !json_is_integer(max) || least < 0 || least > INT32_MAX ||
            most < GRAMMAR_UNBOUNDED || most > INT32_MAX || !in_order)
            tag_fail(r, at, STATUS_INVALID,
                     "min and max must be integers with 0 <= min <= max, or max -1 for no bound");
    }
    const grammar_node node = read_part(r, format, at, "content", NULL);
    if (r->status != STATUS_OK) return node;
    return ended(r, grammar_repeat(r->builder, node, (int32_t)least, (int32_t)most), end);
}

/* ---- tags ---- */

/* What follows the begin of a tag. */
static grammar_node read_behind_begin(struct tag_reader *r, const json_t *tag, const struct tag_place *at)
{
    const struct free_text_marks *around = r->end;
    const json_t *last = json_object_get(tag, "end");
    const bool ends_anywhere = json_is_word(last, "");
    struct free_text_marks end = {.count = 0};
    if (json_is_array(last)) {
        tag_marks(r, tag, at, "end", &end);
    } else if (!ends_anywhere) {
        const struct tag_place place = tag_under(at, "end");
        tag_add_mark(r, &place, last, &end);
    }
    if (!ends_anywhere && end.count == 0) tag_fail(r, at, STATUS_INVALID, "end must be a string or a list of strings");
    if (r->status != STATUS_OK) return grammar_never(r->builder);
    if (!ends_anywhere) r->end = &end;
    const grammar_node node = read_part(r, tag, at, "content", ends_anywhere ? NULL : &end);
    r->end = around;
    return node;
}

static grammar_node read_tag(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                             const struct free_text_marks *end)
{
    const grammar_node begin = string_node(r, tag_string(r, format, at, "begin"));
    return ended(r, two(r, begin, read_behind_begin(r, format, at)), end);
}

/* The "tags" of a format. */
struct tags {
    const json_t *list;
    grammar_node *behind; /* [size of the list] what follows the begin of each */
};

/* Free tags.behind. After a failure it may be NULL. */
static struct tags read_tags(struct tag_reader *r, const json_t *format, const struct tag_place *at)
{
    struct tags tags = {.list = tag_list(r, format, at, "tags")};
    const struct tag_place list_place = tag_under(at, "tags");
    const json_t *tag;
    size_t i;
    if (tags.list && !(tags.behind = calloc(json_array_size(tags.list), sizeof *tags.behind)))
        tag_fail(r, at, STATUS_OUT_OF_MEMORY, "no memory for a structural tag");
    json_array_foreach(tags.list, i, tag)
    {
        const struct tag_place place = tag_element(&list_place, i);
        if (tag_has(tag, "type") && !json_is_word(json_object_get(tag, "type"), "tag"))
            tag_fail(r, &place, STATUS_INVALID, "type must be \"tag\"");
        tag_check_fields(r, tag, &place, "begin content end");
        tag_string(r, tag, &place, "begin");
        if (r->status == STATUS_OK) tags.behind[i] = read_behind_begin(r, tag, &place);
    }
    return tags;
}

/* Those that begin with the trigger, behind it. */
static grammar_node tags_node(struct tag_reader *r, const struct tags *tags, const char *trigger)
{
    grammar_node node = grammar_never(r->builder);
    const size_t length = strlen(trigger);
    for (size_t i = 0; i < json_array_size(tags->list) && r->status == STATUS_OK; i++) {
        const char *begin = json_string_value(json_object_get(json_array_get(tags->list, i), "begin"));
        if (strncmp(begin, trigger, length) == 0)
            node = either(r, node, two(r, string_node(r, begin + length), tags->behind[i]));
    }
    return node;
}

static void check_triggers(struct tag_reader *r, const struct tags *tags, const struct tag_place *at,
                           const struct free_text_marks *triggers)
{
    const struct tag_place list_place = tag_under(at, "tags");
    for (size_t i = 0; i < json_array_size(tags->list) && r->status == STATUS_OK; i++) {
        const struct tag_place place = tag_element(&list_place, i);
        const char *begin = json_string_value(json_object_get(json_array_get(tags->list, i), "begin"));
        bool found = false;
        for (int32_t t = 0; t < triggers->count; t++)
            found = found || strncmp(begin, triggers->list[t], strlen(triggers->list[t])) == 0;
        if (!found) tag_fail(r, &place, STATUS_INVALID, "begin begins with none of the triggers");
    }
}

/* Free text, and regions of which each begins with a mark: marks.list[0 .. num_regions - 1]. */
struct dispatch {
    struct free_text_marks marks; /* of the regions; then strings that are excluded; then those of the tag around */
    grammar_node regions;         /* free text up to one of the marks, and the region behind it; once */
    grammar_node first;           /* what must stand first; only with at_least_one */
    bool at_least_one, stop_after_first;
};

static grammar_node dispatch_node(struct tag_reader *r, const struct tag_place *at, const struct dispatch *d,
                                  int32_t first_end, const struct free_text_marks *end)
{
    const grammar_node rest = free_rest(r, at, &d->marks, first_end, end);
    if (d->stop_after_first && d->at_least_one) return ended(r, d->first, end);
    if (d->stop_after_first) return either(r, ended(r, d->regions, end), rest);
    const grammar_node regions = two(r, grammar_repeat(r->builder, d->regions, 0, GRAMMAR_UNBOUNDED), rest);
    return d->at_least_one ? two(r, d->first, regions) : regions;
}

static grammar_node read_triggered_tags(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                                        const struct free_text_marks *end)
{
    struct dispatch d = {.regions = grammar_never(r->builder),
                         .at_least_one = tag_bool(r, format, at, "at_least_one"),
                         .stop_after_first = tag_bool(r, format, at, "stop_after_first")};
    const struct tags tags = read_tags(r, format, at);
    tag_list(r, format, at, "triggers");
    tag_marks(r, format, at, "triggers", &d.marks);
    check_triggers(r, &tags, at, &d.marks);
    const int32_t num_triggers = d.marks.count;
    tag_marks(r, format, at, "excludes", &d.marks);
    const int32_t first_end = d.marks.count;
    tag_add_marks(r, at, r->end, &d.marks);
    for (int32_t i = 0; i < num_triggers && r->status == STATUS_OK; i++) {
        const grammar_node region = tags_node(r, &tags, d.marks.list[i]);
        d.regions = either(r, d.regions, two(r, free_text(r, at, &d.marks, i), region));
    }
    d.first = d.at_least_one ? tags_node(r, &tags, "") : grammar_empty(r->builder);
    free(tags.behind);
    return dispatch_node(r, at, &d, first_end, end);
}

static grammar_node read_dispatch(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                                  const struct free_text_marks *end)
{
    const json_t *list = tag_list(r, format, at, "rules"), *rule;
    const struct tag_place list_place = tag_under(at, "rules");
    struct dispatch d = {.regions = grammar_never(r->builder),
                         .stop_after_first = json_is_false(json_object_get(format, "loop"))};
    size_t i;
    json_array_foreach(list, i, rule)
    {
        const struct tag_place place = tag_element(&list_place, i);
        tag_add_mark(r, &place, json_array_get(rule, 0), &d.marks);
    }
    tag_bool(r, format, at, "loop");
    tag_marks(r, format, at, "excludes", &d.marks);
    const int32_t first_end = d.marks.count;
    tag_add_marks(r, at, r->end, &d.marks);
    json_array_foreach(list, i, rule)
    {
        const struct tag_place place = tag_element(&list_place, i);
        if (r->status != STATUS_OK) break;
        const grammar_node region = read_format(r, json_array_get(rule, 1), &place, NULL);
        d.regions = either(r, d.regions, two(r, free_text(r, at, &d.marks, (int32_t)i), region));
    }
    return dispatch_node(r, at, &d, first_end, end);
}

static grammar_node read_tags_with_separator(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                                             const struct free_text_marks *end)
{
    const char *separator = tag_string(r, format, at, "separator");
    const struct tags tags = read_tags(r, format, at);
    const grammar_node one = tags_node(r, &tags, "");
    grammar_node node = one;
    free(tags.behind);
    if (!tag_bool(r, format, at, "stop_after_first")) {
        const grammar_node more = two(r, string_node(r, separator), one);
        node = two(r, one, grammar_repeat(r->builder, more, 0, GRAMMAR_UNBOUNDED));
    }
    if (!tag_bool(r, format, at, "at_least_one")) node = grammar_repeat(r->builder, node, 0, 1);
    return ended(r, node, end);
}

/* ---- all formats ---- */

static const struct {
    const char *type, *fields; /* words */
    format_reader *read;       /* NULL: quire does not support it */
} formats[] = {
    {"const_string", "value", read_const_string},
    {"json_schema", "json_schema style any_order", read_json_schema},
    {"grammar", "grammar", read_grammar},
    {"regex", "pattern", read_regex},
    {"any_text", "excludes max_tokens", read_any_text},
    {"sequence", "elements", read_sequence},
    {"or", "elements", read_or},
    {"optional", "content", read_repetition},
    {"plus", "content", read_repetition},
    {"star", "content", read_repetition},
    {"repeat", "content min max", read_repetition},
    {"tag", "begin content end", read_tag},
    {"triggered_tags", "triggers tags at_least_one stop_after_first excludes", read_triggered_tags},
    {"tags_with_separator", "tags separator at_least_one stop_after_first", read_tags_with_separator},
    {"dispatch", "rules loop excludes", read_dispatch},
};

static grammar_node read_format(struct tag_reader *r, const json_t *format, const struct tag_place *at,
                                const struct free_text_marks *end)
{
    struct tag_place here = *at;
    const json_t *type = json_object_get(format, "type");
    if (!json_is_map(format))
        tag_fail(r, at, STATUS_INVALID, "a format must be an object, found %s",
                 format ? show_value(format).text : "none");
    else if (++here.depth > MAX_DEPTH)
        tag_fail(r, at, STATUS_UNSUPPORTED, "formats are nested more than %d deep", MAX_DEPTH);
    else if (!json_is_string(type))
        tag_fail(r, at, STATUS_INVALID, "type must be a string");
    if (r->status != STATUS_OK) return grammar_never(r->builder);
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (!json_is_word(type, formats[i].type)) continue;
        tag_check_fields(r, format, at, formats[i].fields);
        return formats[i].read(r, format, &here, end);
    }
    tag_fail(r, at, STATUS_UNSUPPORTED, "quire has no format of type %s", show_value(type).text);
    return grammar_never(r->builder);
}

/* ---- the whole ---- */

/* {"structures": [{"begin", "schema", "end"}, ...], "triggers": [...]} as triggered_tags. NULL: memory ran out. */
static json_t *modern_form(const json_t *tag)
{
    json_t *tags = json_array(), *structure;
    size_t i;
    json_array_foreach(json_object_get(tag, "structures"), i, structure)
    {
        json_t *schema = json_object_get(structure, "schema"), *modern = json_object();
        json_t *content = schema ? json_pack("{s:s,s:O}", "type", "json_schema", "json_schema", schema) : NULL;
        json_object_update(modern, structure);
        json_object_del(modern, "schema");
        if (content) json_object_set_new(modern, "content", content);
        json_array_append_new(tags, modern);
    }
    return json_pack("{s:s,s:o,s:O?}", "type", "triggered_tags", "tags", tags, "triggers",
                     json_object_get(tag, "triggers"));
}

enum status structural_tag_node(const json_t *tag, const struct json_schema_options *options, struct grammar_builder *b,
                                grammar_node *out, struct error *err)
{
    struct tag_reader r = {.options = options, .builder = b, .err = err};
    const struct tag_place top = {.above = NULL}, place = {.above = &top, .key = "format"};
    const bool is_old = json_object_get(tag, "structures") != NULL;
    json_t *modern = is_old ? modern_form(tag) : NULL;
    *out = grammar_never(b);
    if (is_old && !modern)
        tag_fail(&r, &top, STATUS_OUT_OF_MEMORY, "no memory for a structural tag");
    else
        *out = is_old ? read_format(&r, modern, &top, NULL)
                      : read_format(&r, json_object_get(tag, "format"), &place, NULL);
    json_decref(modern);
    return r.status;
}
