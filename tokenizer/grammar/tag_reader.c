#include "tokenizer/grammar/tag_reader.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/json_value.h"
#include "base/words.h"

struct tag_place tag_under(const struct tag_place *above, const char *key)
{
    return (struct tag_place){.above = above, .key = key, .depth = above->depth};
}

struct tag_place tag_element(const struct tag_place *above, size_t index)
{
    return (struct tag_place){.above = above, .index = index, .depth = above->depth};
}

/* ---- failures ---- */

static void write_place(const struct tag_place *at, struct text *out)
{
    if (!at->above) return;
    write_place(at->above, out);
    if (at->key)
        text_printf(out, "%s%s", out->length > 0 ? "." : "", show_string(at->key).text);
    else
        text_printf(out, "[%zu]", at->index);
}

static void prefix_place(struct tag_reader *r, const struct tag_place *at)
{
    struct text path = {0};
    write_place(at, &path);
    if (path.length > 0) error_prefix(r->err, r->status, path.data);
    text_free(&path);
}

void tag_fail(struct tag_reader *r, const struct tag_place *at, enum status status, const char *format, ...)
{
    char sentence[512];
    va_list args;
    if (r->status != STATUS_OK) return;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    r->status = error_set(r->err, status, "%s", sentence);
    prefix_place(r, at);
}

/* Takes the failure of another reader, whose sentence is in r->err. */
void tag_take_failure(struct tag_reader *r, const struct tag_place *at, enum status status)
{
    if (status == STATUS_OK) return;
    r->status = status;
    prefix_place(r, at);
}

/* ---- fields ---- */

bool tag_has(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

const char *tag_string(struct tag_reader *r, const json_t *object, const struct tag_place *at, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_text(value)) return json_string_value(value);
    tag_fail(r, at, STATUS_INVALID, "%s must be %s, found %s", key, JSON_TEXT, value ? show_value(value).text : "none");
    return "";
}

bool tag_bool(struct tag_reader *r, const json_t *object, const struct tag_place *at, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (tag_has(object, key) && !json_is_boolean(value))
        tag_fail(r, at, STATUS_INVALID, "%s must be true or false, found %s", key, show_value(value).text);
    return json_is_true(value);
}

/* A list that must be there, and not be empty. */
const json_t *tag_list(struct tag_reader *r, const json_t *object, const struct tag_place *at, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_array_size(value) > 0) return value;
    tag_fail(r, at, STATUS_INVALID, "%s must be a list that is not empty, found %s", key,
             value ? show_value(value).text : "none");
    return NULL;
}

void tag_add_mark(struct tag_reader *r, const struct tag_place *at, const json_t *value, struct free_text_marks *marks)
{
    if (!json_is_text(value) || json_string_length(value) == 0)
        tag_fail(r, at, STATUS_INVALID, "it must be a string that is not empty, found %s",
                 value ? show_value(value).text : "none");
    else if (marks->count == FREE_TEXT_MAX_MARKS)
        tag_fail(r, at, STATUS_UNSUPPORTED, "quire searches text for at most %d strings", FREE_TEXT_MAX_MARKS);
    else
        marks->list[marks->count++] = json_string_value(value);
}

/* Adds the strings of a list that may be absent. */
void tag_marks(struct tag_reader *r, const json_t *object, const struct tag_place *at, const char *key,
               struct free_text_marks *marks)
{
    const json_t *list = json_object_get(object, key), *value;
    const struct tag_place list_place = tag_under(at, key);
    size_t i;
    if (tag_has(object, key) && !json_is_array(list))
        tag_fail(r, at, STATUS_INVALID, "%s must be a list of strings, found %s", key, show_value(list).text);
    json_array_foreach(list, i, value)
    {
        const struct tag_place place = tag_element(&list_place, i);
        tag_add_mark(r, &place, value, marks);
    }
}

void tag_add_marks(struct tag_reader *r, const struct tag_place *at, const struct free_text_marks *more,
                   struct free_text_marks *marks)
{
    for (int32_t i = 0; more && i < more->count; i++) {
        if (marks->count == FREE_TEXT_MAX_MARKS)
            tag_fail(r, at, STATUS_UNSUPPORTED, "quire searches text for at most %d strings", FREE_TEXT_MAX_MARKS);
        else
            marks->list[marks->count++] = more->list[i];
    }
}

void tag_check_fields(struct tag_reader *r, const json_t *format, const struct tag_place *at, const char *fields)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)format, key, value)
    {
        if (strcmp(key, "type") != 0 && !words_have(fields, key))
            tag_fail(r, at, STATUS_INVALID, "a format of this type has no field '%s'", show_string(key).text);
    }
}
