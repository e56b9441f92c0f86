#include "runtime/prompts/api_text.h"

#include "base/json_value.h"

bool api_write_string(struct text *out, const char *text, size_t length)
{
    if (!text) return text_append(out, "null", 4);
    return text_append(out, "\"", 1) && json_append_escaped(out, text, length) && text_append(out, "\"", 1);
}

bool api_write_text(struct text *out, const struct text *text)
{
    return text->length == 0 || text_append(out, text->data, text->length);
}

bool api_write_integer(struct text *out, int64_t value)
{
    char digits[24], *at = digits + sizeof digits;
    uint64_t rest = value < 0 ? -(uint64_t)value : (uint64_t)value;
    do *--at = (char)('0' + rest % 10);
    while ((rest /= 10) > 0);
    if (value < 0) *--at = '-';
    return text_append(out, at, (size_t)(digits + sizeof digits - at));
}

bool api_write_ids(struct text *list, const int32_t *ids, size_t count)
{
    bool ok = true;
    for (size_t i = 0; ok && i < count; i++)
        ok = (list->length == 0 || text_append(list, ",", 1)) && api_write_integer(list, ids[i]);
    return ok;
}
