#include "runtime/input_form.h"

#include <string.h>

#include "base/json_parse.h"

static bool ends_with(const char *name, size_t length, const char *end)
{
    const size_t count = strlen(end);
    return length >= count && memcmp(name + length - count, end, count) == 0;
}

/* The length of the name without the ending of a packed file. */
static size_t unpacked_length(const char *name)
{
    const size_t length = strlen(name);
    return ends_with(name, length, ".gz") ? length - 3 : ends_with(name, length, ".zst") ? length - 4 : length;
}

bool input_name_is_packed(const char *name)
{
    return unpacked_length(name) < strlen(name);
}

struct input_form input_form_of(const char *name)
{
    const size_t length = unpacked_length(name);
    return (struct input_form){.objects = ends_with(name, length, ".json") || ends_with(name, length, ".jsonl")};
}

enum status input_form_take(struct input_form *form, const char *line, size_t length, struct error *err)
{
    const size_t at = json_leading_blanks(line, length);
    const size_t next = at < length ? at + 1 + json_leading_blanks(line + at + 1, length - at - 1) : length;
    const char first = at < length ? line[at] : '\0', second = next < length ? line[next] : '\0';
    const bool is_first = !form->begun;
    form->begun = true;
    if (is_first && first == '[' && (form->objects || !second || second == '{'))
        return error_set(err, STATUS_INVALID,
                         "this is a JSON array, and not an object on each line: convert it with jq -c '.[]', or take "
                         "its lines as texts with --format text");
    if (is_first && first == '{' && !second)
        return error_set(err, STATUS_INVALID,
                         "this is a JSON object over several lines, and not an object on each line: convert it with "
                         "jq -c ., or take its lines as texts with --format text");
    form->objects = form->objects || first == '{';
    return STATUS_OK;
}
