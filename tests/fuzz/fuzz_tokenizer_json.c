/* tokenizer.json. The input's first line is a text to encode, the rest is the file. */
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_part file = {(const char *)data, size};
    const struct fuzz_part text = fuzz_split(&file, '\n');
    fuzz_tokenizer_file("tokenizer.json", file, text);
    return 0;
}
