#include "runtime/options/config_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"

struct reader {
    const char *path;
    char *values; /* [room] left for values */
    size_t room;
    config_entry_function *take;
    void *user;
    int line; /* 0: the file is JSON */
    /* The name whose values are read. */
    char flag[64];
    int count; /* of its values so far */
    int open;  /* the line on which it stands without a value, which may follow as a list; 0: it has one */
};

/* ---- what both forms share ---- */

static void begin_name(struct reader *r, const char *name)
{
    snprintf(r->flag, sizeof r->flag, "%s", name);
    for (char *at = r->flag; *at; at++)
        if (*at == '_') *at = '-';
    r->count = r->open = 0;
}

/* Keeps value[length] and gives it to the caller. */
static enum status take(struct reader *r, const char *value, size_t length, struct error *err)
{
    char label[512], line[16] = "";
    if (r->line) snprintf(line, sizeof line, "%d: ", r->line);
    snprintf(label, sizeof label, "%.400s:%s%s%s", r->path, r->line ? "" : " ", line, r->flag);
    if (memchr(value, '\0', length)) return error_set(err, STATUS_INVALID, "%s: the value has a NUL byte", label);
    if (length >= r->room)
        return error_set(err, STATUS_INVALID, "%s: the file's values are too long: at most 64 KiB in all", label);
    const struct config_entry entry = {r->flag, label, r->values, r->count++ > 0};
    memcpy(r->values, value, length);
    r->values[length] = '\0';
    r->values += length + 1;
    r->room -= length + 1;
    return r->take(r->user, &entry, err);
}

/* ---- JSON ---- */

static enum status take_json(struct reader *r, const json_t *value, struct error *err)
{
    if (json_is_null(value)) return STATUS_OK;
    if (json_is_string(value)) return take(r, json_string_value(value), json_string_length(value), err);
    struct text text = {0};
    const enum status status = json_append(&text, value, JSON_REAL_PRECISION(17))
                                   ? take(r, text.data, text.length, err)
                                   : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %s", r->path);
    text_free(&text);
    return status;
}

static enum status read_json(struct reader *r, const struct text *file, struct error *err)
{
    json_t *object, *value;
    const char *name;
    enum status status = json_object_parse(file->data, file->length, JSON_REJECT_DUPLICATES, r->path, &object, err);
    if (status != STATUS_OK) return status;
    json_object_foreach(object, name, value)
    {
        const size_t count = json_is_array(value) ? json_array_size(value) : 1;
        begin_name(r, name);
        for (size_t i = 0; i < count && status == STATUS_OK; i++)
            status = take_json(r, json_is_array(value) ? json_array_get(value, i) : value, err);
        if (status != STATUS_OK) break;
    }
    json_decref(object);
    return status;
}

/* ---- values of lines ---- */

static enum status bad_line(const struct reader *r, const char *why, struct error *err)
{
    return error_set(err, STATUS_INVALID, "%s:%d: %s; a line is 'name: value' or a JSON object is the whole file",
                     r->path, r->line, why);
}

/* Where a value ends. */
enum place {
    IN_LINE, /* at the line's end, or before a comment */
    IN_LIST  /* at ',' or ']' */
};

static bool is_end(const char *at, enum place place)
{
    const char *after = at + strspn(at, " \t");
    if (place == IN_LIST) return *after == ',' || *after == ']';
    return !*after || (*after == '#' && after > at);
}

/* "...": JSON's strings. *end is what follows. */
static enum status take_double_quoted(struct reader *r, char *value, enum place place, char **end, struct error *err)
{
    char *last = value + 1;
    while (*last && *last != '"') last += *last == '\\' && last[1] ? 2 : 1;
    if (!*last || !is_end(last + 1, place))
        return bad_line(r, "a value in double quotes must end with one on the same line", err);
    json_t *string;
    if (json_value_parse(value, (size_t)(last + 1 - value), JSON_DECODE_ANY, NULL, &string, NULL) != STATUS_OK)
        return bad_line(r, "between double quotes only JSON's escapes may stand (\\n, \\\", \\\\, \\u00e9)", err);
    *end = last + 1;
    const enum status status = take(r, json_string_value(string), json_string_length(string), err);
    json_decref(string);
    return status;
}

/* '...', where '' is a quote. */
static enum status take_single_quoted(struct reader *r, char *value, enum place place, char **end, struct error *err)
{
    char *from = value + 1, *to = value;
    for (; *from && (*from != '\'' || from[1] == '\''); from++) {
        *to++ = *from;
        if (*from == '\'') from++;
    }
    if (!*from || !is_end(from + 1, place))
        return bad_line(r, "a value in single quotes must end with one on the same line", err);
    *end = from + 1;
    return take(r, value, (size_t)(to - value), err);
}

static enum status take_plain(struct reader *r, char *value, enum place place, char **end, struct error *err)
{
    if (strchr("[]{}|>&*!%@`", value[0]) && value[0])
        return bad_line(
            r, "objects, nested lists and texts of several lines are not read here: put the value in quotes", err);
    size_t length = 0;
    if (place == IN_LIST) length = strcspn(value, ",]");
    while (place == IN_LINE && value[length] && !is_end(value + length, place)) length++;
    *end = value + length;
    if (place == IN_LIST && !**end) return bad_line(r, "a list in [ ] must end on the same line", err);
    while (length > 0 && strchr(" \t", value[length - 1])) length--;
    if ((length == 1 && value[0] == '~') || (length == 4 && strncmp(value, "null", 4) == 0)) return STATUS_OK;
    return take(r, value, length, err);
}

static enum status take_value(struct reader *r, char *value, enum place place, char **end, struct error *err)
{
    if (*value == '"') return take_double_quoted(r, value, place, end, err);
    if (*value == '\'') return take_single_quoted(r, value, place, end, err);
    return take_plain(r, value, place, end, err);
}

/* "[a, 'b', "c"]"; a comma may stand behind the last. */
static enum status take_list(struct reader *r, char *at, struct error *err)
{
    enum status status = STATUS_OK;
    do {
        at += 1 + strspn(at + 1, " \t");
        if (*at == ']') break;
        status = take_value(r, at, IN_LIST, &at, err);
        if (status == STATUS_OK) at += strspn(at, " \t");
    } while (status == STATUS_OK && *at == ',');
    if (status == STATUS_OK && !is_end(at + 1, IN_LINE)) return bad_line(r, "something stands behind the list", err);
    return status;
}

/* ---- lines ---- */

/* A name had no value on its line, and no line of a list has followed: the value is empty. */
static enum status end_name(struct reader *r, struct error *err)
{
    const int line = r->line;
    if (!r->open || r->count > 0) return STATUS_OK;
    r->line = r->open;
    const enum status status = take(r, "", 0, err);
    r->line = line;
    return status;
}

/* "- value", below a name without one. */
static enum status read_element(struct reader *r, char *value, struct error *err)
{
    char *end;
    if (!r->open) return bad_line(r, "a line of a list stands below no 'name:'", err);
    value += strspn(value, " \t");
    return take_value(r, value, IN_LINE, &end, err);
}

/* `line` has no newline; it is changed. */
static enum status read_line(struct reader *r, char *line, struct error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    char *begin = line + strspn(line, " \t"), *end;
    if (!*begin || *begin == '#' || strcmp(line, "---") == 0) return STATUS_OK;
    if (begin[0] == '-' && (!begin[1] || strchr(" \t", begin[1]))) return read_element(r, begin + 1, err);
    const enum status status = end_name(r, err);
    if (status != STATUS_OK) return status;
    if (begin > line) return bad_line(r, "the line begins with a blank, but nothing is nested here", err);
    if (line[0] == '-') return bad_line(r, "names have no dashes before them", err);
    const size_t length = strspn(line, letters);
    char *separator = line + length + strspn(line + length, " \t");
    const bool colon = *separator == ':' && (!separator[1] || strchr(" \t", separator[1]));
    if (length == 0 || (!colon && *separator != '='))
        return bad_line(r, "there is no name with ':' and a blank, or '='", err);
    char *value = separator + 1 + strspn(separator + 1, " \t");
    line[length] = '\0';
    begin_name(r, line);
    if (is_end(separator + 1, IN_LINE)) {
        r->open = r->line;
        return STATUS_OK;
    }
    return *value == '[' ? take_list(r, value, err) : take_value(r, value, IN_LINE, &end, err);
}

static enum status read_lines(struct reader *r, char *at, struct error *err)
{
    enum status status = STATUS_OK;
    while (*at && status == STATUS_OK) {
        const size_t length = strcspn(at, "\n");
        char *next = at + length + (at[length] == '\n');
        at[length] = '\0';
        if (length > 0 && at[length - 1] == '\r') at[length - 1] = '\0';
        r->line++;
        status = read_line(r, at, err);
        at = next;
    }
    return status == STATUS_OK ? end_name(r, err) : status;
}

enum status config_file_read(const char *path, char *values, size_t size, config_entry_function *take_entry, void *user,
                             struct error *err)
{
    struct reader r = {.path = path, .values = values, .room = size, .take = take_entry, .user = user};
    struct text file = {0};
    enum status status = file_read(path, &file, err);
    if (status == STATUS_OK && file.length > 0) {
        char *begin = file.data + (strncmp(file.data, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0);
        if (strlen(file.data) != file.length)
            status = error_set(err, STATUS_INVALID, "%s: a NUL byte: this is no text file", path);
        else if (begin[strspn(begin, " \t\r\n")] == '{')
            status = read_json(&r, &(struct text){.data = begin, .length = strlen(begin)}, err);
        else
            status = read_lines(&r, begin, err);
    }
    text_free(&file);
    return status;
}
