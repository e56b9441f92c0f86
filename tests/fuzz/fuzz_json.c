/* JSON text. What jansson reads is read as the same value; what is read is written as JSON that gives it again. */
#include <string.h>

#include "base/json.h"
#include "tests/fuzz/fuzz.h"

/* Both take the last of equal keys. jansson passes over NUL bytes between tokens, which are no JSON. */
static void compare_with_jansson(const struct fuzz_part text, const json_t *value)
{
    if (memchr(text.bytes, '\0', text.length)) return;
    json_t *other = json_loadb(text.bytes, text.length, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    fuzz_require(!other || (value && json_equal(value, other)), "jansson reads another value");
    json_decref(other);
}

static void write_and_read(const json_t *value)
{
    struct text text = {0};
    struct error err = {""};
    json_t *again;
    fuzz_require(json_append(&text, value, JSON_INDENT(1) | JSON_REAL_PRECISION(17)), "the value is not written");
    if (json_value_parse(text.data, text.length, JSON_DECODE_ANY, NULL, &again, &err)) fuzz_require(false, err.text);
    fuzz_require(json_equal(value, again), "what is written is another value");
    json_decref(again);
    text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct fuzz_part text = {(const char *)data, size};
    struct error err = {""};
    json_t *value;
    const enum status status = json_value_parse(text.bytes, size, JSON_DECODE_ANY, NULL, &value, &err);
    fuzz_require((status == STATUS_OK) == (value != NULL) && (value || err.text[0]), "a failure without a sentence");
    compare_with_jansson(text, value);
    if (value) write_and_read(value);
    json_decref(value);
    return 0;
}
