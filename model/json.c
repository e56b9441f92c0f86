#include "model/json.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum status json_object_parse(const char *bytes, size_t length, const char *path, json_t **out, struct error *err)
{
    json_error_t problem;
    *out = json_loadb(bytes, length, JSON_REJECT_DUPLICATES, &problem);
    if (!*out) {
        struct shown text = show_string(problem.text);
        enum status status =
            json_error_code(&problem) == json_error_out_of_memory ? STATUS_OUT_OF_MEMORY : STATUS_INVALID;
        return error_set(err, status, "%s: not valid JSON at line %d, column %d: %s", path, problem.line,
                         problem.column, text.text);
    }
    if (json_is_object(*out)) return STATUS_OK;
    json_decref(*out);
    *out = NULL;
    return error_set(err, STATUS_INVALID, "%s: expected a JSON object {...}, found an array", path);
}

enum status json_object_read(const char *path, json_t **out, struct error *err)
{
    struct mapped_file file;
    *out = NULL;
    enum status status = mapped_file_open(path, &file, err);
    if (status != STATUS_OK) return status;
    if (file.size == 0)
        status = error_set(err, STATUS_INVALID, "%s: the file is empty; expected a JSON object", path);
    else
        status = json_object_parse((const char *)file.data, file.size, path, out, err);
    mapped_file_close(&file);
    return status;
}

struct shown show_string(const char *string)
{
    struct shown shown;
    const size_t room = sizeof shown.text - 1;
    size_t n = strnlen(string, room + 1);
    const int cut = n > room;
    if (cut) {
        n = room - 3;
        while (n > 0 && ((unsigned char)string[n] & 0xC0) == 0x80) n--; /* not inside a UTF-8 character */
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)string[i];
        shown.text[i] = c < 0x20 || c == 0x7f ? '?' : string[i];
    }
    memcpy(shown.text + n, cut ? "..." : "", cut ? 4 : 1);
    return shown;
}

struct shown show_value(const json_t *value)
{
    struct shown shown = {""};
    char *text = value ? json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text) shown = show_string(text);
    free(text);
    return shown;
}
