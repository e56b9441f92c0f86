#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/json_path.h"

const json_t *json_at(const json_t *object, const char *path)
{
    char key[64];
    for (; *path && object; path += strcspn(path, "/"), path += *path == '/') {
        snprintf(key, sizeof key, "%.*s", (int)strcspn(path, "/"), path);
        object = json_is_array(object) ? json_array_get(object, (size_t)atoi(key)) : json_object_get(object, key);
    }
    return object;
}

void expect_json_text(const json_t *object, const char *path, const char *expected)
{
    const char *text = json_string_value(json_at(object, path));
    if (!text || strcmp(text, expected) != 0) fail_msg("%s: not '%s' in %s", path, expected, json_dumps(object, 0));
}

void expect_json(const json_t *object, const char *path, const char *expected)
{
    json_error_t why;
    json_t *wanted = json_loads(expected, JSON_DECODE_ANY, &why);
    if (!wanted) fail_msg("%s: %s", expected, why.text);
    if (!json_equal(json_at(object, path), wanted)) fail_msg("%s: not %s in %s", path, expected, json_dumps(object, 0));
    json_decref(wanted);
}

void expect_no_json(const json_t *object, const char *path)
{
    if (json_at(object, path)) fail_msg("%s is in %s", path, json_dumps(object, 0));
}
