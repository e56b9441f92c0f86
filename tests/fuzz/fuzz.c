#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/support/temp_folder.h"

void fuzz_require(bool right, const char *sentence)
{
    if (right) return;
    fprintf(stderr, "%s\n", sentence);
    abort();
}

struct fuzz_part fuzz_split(struct fuzz_part *rest, char separator)
{
    const char *end = rest->length ? memchr(rest->bytes, separator, rest->length) : NULL;
    const struct fuzz_part first = {rest->bytes, end ? (size_t)(end - rest->bytes) : rest->length};
    const size_t used = first.length + (end != NULL);
    *rest = (struct fuzz_part){rest->bytes + used, rest->length - used};
    return first;
}

char *fuzz_string(struct fuzz_part part)
{
    char *string = strndup(part.bytes, part.length);
    fuzz_require(string != NULL, "no memory");
    return string;
}

/* All bytes, some characters, contractions and digits; the byte pairs and merges are those of "low lower". */
const char fuzz_tokenizer_json[] =
    "{\"version\":\"1.0\",\"added_tokens\":["
    "{\"id\":20,\"content\":\"<s>\",\"special\":true,\"normalized\":false},"
    "{\"id\":21,\"content\":\"<|im_start|>\",\"special\":true,\"normalized\":false},"
    "{\"id\":22,\"content\":\"<|im_end|>\",\"special\":true,\"normalized\":false},"
    "{\"id\":23,\"content\":\"<think>\",\"special\":false,\"normalized\":true},"
    "{\"id\":24,\"content\":\"<tool>\",\"special\":true,\"lstrip\":true,\"rstrip\":true,\"normalized\":false}],"
    "\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
    "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{\"l\":0,\"o\":1,\"w\":2,\"e\":3,\"r\":4,\"lo\":5,"
    "\"low\":6,\"er\":7,\"\\u0120\":8,\"<\":9,\"|\":10,\">\":11,\"?\":12,\"\\u010a\":13,\"s\":14,\"_\":15},"
    "\"merges\":[\"l o\",\"lo w\",\"e r\"]}}";

const struct tokenizer *fuzz_shared_tokenizer(void)
{
    static struct tokenizer *shared;
    struct temp_folder folder;
    struct error err = {""};
    if (shared) return shared;
    temp_folder_make(&folder);
    temp_folder_write_string(&folder, "tokenizer.json", fuzz_tokenizer_json);
    temp_folder_write_string(&folder, "tokenizer_config.json", "{\"bos_token\":\"<s>\",\"eos_token\":\"<|im_end|>\"}");
    const enum status status = tokenizer_open(folder.path, &shared, &err);
    temp_folder_remove(&folder);
    fuzz_require(status == STATUS_OK, err.text);
    return shared;
}

void fuzz_require_sentence(const struct error *err)
{
    const size_t length = strlen(err->text);
    fuzz_require(length > 0, "a failure without a sentence");
    fuzz_require(utf8_valid_prefix(err->text, length) == length, "a sentence that is not UTF-8");
}
