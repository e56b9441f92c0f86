#include "runtime/serve/api_keys.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "runtime/input.h"

enum status api_keys_add(struct api_keys *keys, const char *key, size_t length, struct error *err)
{
    char *copy =
        array_reserve(&keys->list, &keys->capacity, keys->count + 1, sizeof *keys->list) ? strndup(key, length) : NULL;
    if (!copy) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for keys");
    keys->list[keys->count++] = copy;
    return STATUS_OK;
}

enum status api_keys_read(struct api_keys *keys, const char *path, struct error *err)
{
    static const char blanks[] = " \t\r\n";
    struct text text = {0};
    const size_t before = keys->count;
    enum status status = input_read_file(path, &text, err);
    const char *at = status == STATUS_OK && text.length ? text.data + strspn(text.data, blanks) : "";
    while (*at && status == STATUS_OK) {
        size_t length = strcspn(at, "\r\n");
        const char *next = at + length + strspn(at + length, blanks);
        while (strchr(blanks, at[length - 1])) length--;
        status = api_keys_add(keys, at, length, err);
        at = next;
    }
    text_free(&text);
    if (status == STATUS_OK && keys->count == before)
        return error_set(err, STATUS_INVALID, "%s has no key; expected one a line", path);
    return status;
}

void api_keys_free(struct api_keys *keys)
{
    for (size_t i = 0; i < keys->count; i++) free(keys->list[i]);
    free(keys->list);
    *keys = (struct api_keys){0};
}

/* Looks at all bytes of what was shown, whatever the key. */
static bool equals(const char *key, const char *shown)
{
    const size_t key_length = strlen(key), length = strlen(shown);
    volatile unsigned char difference = key_length != length;
    for (size_t i = 0; i < length; i++) difference |= (unsigned char)(shown[i] ^ key[key_length ? i % key_length : 0]);
    return difference == 0;
}

static bool has(const struct api_keys *keys, const char *shown)
{
    bool found = false;
    for (size_t i = 0; i < keys->count; i++) found |= equals(keys->list[i], shown);
    return found;
}

bool api_keys_allow(const struct api_keys *keys, const char *authorization, const char *x_api_key)
{
    static const char scheme[] = "Bearer ";
    if (keys->count == 0) return true;
    if (authorization && strncasecmp(authorization, scheme, sizeof scheme - 1) == 0 &&
        has(keys, authorization + sizeof scheme - 1))
        return true;
    return x_api_key && has(keys, x_api_key);
}
