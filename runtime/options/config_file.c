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
};

/* ---- what both forms share ---- */

/* Keeps value[length] and gives it to the caller. */
static enum status take(struct reader *r, const char *name, const char *value, size_t length, bool again,
                        struct error *err)
{
    char label[512], line[16] = "", flag[64];
    snprintf(flag, sizeof flag, "%s", name);
    for (char *at = flag; *at; at++)
        if (*at == '_') *at = '-';
    if (r->line) snprintf(line, sizeof line, "%d: ", r->line);
    snprintf(label, sizeof label, "%.400s:%s%s%s", r->path, r->line ? "" : " ", line, flag);
    if (memchr(value, '\0', length)) return error_set(err, STATUS_INVALID, "%s: the value has a NUL byte", label);
    if (length >= r->room)
        return error_set(err, STATUS_INVALID, "%s: the file's values are too long: at most 64 KiB in all", label);
    const struct config_entry entry = {flag, label, r->values, again};
    memcpy(r->values, value, length);
    r->values[length] = '\0';
    r->values += length + 1;
    r->room -= length + 1;
    return r->take(r->user, &entry, err);
}

/* ---- JSON ---- */

static enum status take_json(struct reader *r, const char *name, const json_t *value, bool again, struct error *err)
{
    if (json_is_null(value)) return STATUS_OK;
    if (json_is_string(value)) return take(r, name, json_string_value(value), json_string_length(value), again, err);
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
    if (!text) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for %s", r->path);
    const enum status status = take(r, name, text, strlen(text), again, err);
    free(text);
    return status;
}

static enum status read_json(struct reader *r, const struct text *file, struct error *err)
{
    json_t *object, *value;
    const char *name;
    enum status status =
        json_object_parse(file->data, file->length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, r->path, &object, err);
    if (status != STATUS_OK) return status;
    json_object_foreach(object, name, value)
    {
        const size_t count = json_is_array(value) ? json_array_size(value) : 1;
        for (size_t i = 0; i < count && status == STATUS_OK; i++)
            status = take_json(r, name, json_is_array(value) ? json_array_get(value, i) : value, i > 0, err);
        if (status != STATUS_OK) break;
    }
    json_decref(object);
    return status;
}

/* ---- lines ---- */

static enum status bad_line(const struct reader *r, const char *why, struct error *err)
{
    return error_set(err, STATUS_INVALID, "%s:%d: %s; a line is 'name: value' or a JSON object is the whole file",
                     r->path, r->line, why);
}

static bool is_rest_of_line_empty(const char *at)
{
    const char *after = at + strspn(at, " \t");
    return !*after || (*after == '#' && after > at);
}

/* "...": JSON's strings. */
static enum status take_double_quoted(struct reader *r, const char *name, const char *value, struct error *err)
{
    size_t end = 1;
    while (value[end] && value[end] != '"') end += value[end] == '\\' && value[end + 1] ? 2 : 1;
    if (!value[end] || !is_rest_of_line_empty(value + end + 1))
        return bad_line(r, "a value in double quotes must end with one on the same line", err);
    json_t *string = json_loadb(value, end + 1, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!string)
        return bad_line(r, "between double quotes only JSON's escapes may stand (\\n, \\\", \\\\, \\u00e9)", err);
    const enum status status = take(r, name, json_string_value(string), json_string_length(string), false, err);
    json_decref(string);
    return status;
}

/* '...', where '' is a quote. */
static enum status take_single_quoted(struct reader *r, const char *name, char *value, struct error *err)
{
    char *from = value + 1, *to = value;
    for (; *from && (*from != '\'' || from[1] == '\''); from++) {
        *to++ = *from;
        if (*from == '\'') from++;
    }
    if (!*from || !is_rest_of_line_empty(from + 1))
        return bad_line(r, "a value in single quotes must end with one on the same line", err);
    return take(r, name, value, (size_t)(to - value), false, err);
}

static enum status take_plain(struct reader *r, const char *name, const char *value, struct error *err)
{
    if (strchr("[{|>&*!%@`", value[0]) && value[0])
        return bad_line(r, "lists, objects and other nested values are not read here: put the value in quotes", err);
    size_t length = 0;
    while (value[length] && !(value[length] == '#' && (length == 0 || strchr(" \t", value[length - 1])))) length++;
    while (length > 0 && strchr(" \t", value[length - 1])) length--;
    if ((length == 1 && value[0] == '~') || (length == 4 && strncmp(value, "null", 4) == 0)) return STATUS_OK;
    return take(r, name, value, length, false, err);
}

/* `line` has no newline; it is changed. */
static enum status read_line(struct reader *r, char *line, struct error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    if (is_rest_of_line_empty(line) || line[0] == '#' || strcmp(line, "---") == 0) return STATUS_OK;
    if (strchr(" \t", line[0])) return bad_line(r, "the line begins with a blank, but nothing is nested here", err);
    if (line[0] == '-') return bad_line(r, "lists are not read here, and names have no dashes before them", err);
    const size_t length = strspn(line, letters);
    char *separator = line + length + strspn(line + length, " \t");
    const bool colon = *separator == ':' && (!separator[1] || strchr(" \t", separator[1]));
    if (length == 0 || (!colon && *separator != '='))
        return bad_line(r, "there is no name with ':' and a blank, or '='", err);
    char *value = separator + 1 + strspn(separator + 1, " \t");
    line[length] = '\0';
    if (*value == '"') return take_double_quoted(r, line, value, err);
    if (*value == '\'') return take_single_quoted(r, line, value, err);
    return take_plain(r, line, value, err);
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
    return status;
}

enum status config_file_read(const char *path, char *values, size_t size, config_entry_function *take_entry, void *user,
                             struct error *err)
{
    struct reader r = {path, values, size, take_entry, user, 0};
    struct text file = {0};
    enum status status = file_read_or_pipe(path, &file, err);
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
