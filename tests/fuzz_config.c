/* libFuzzer's way into the reader of config.json and generation_config.json (the input's first byte says which). Not
 * part of the build:
 *
 *     clang -g -O1 -fsanitize=fuzzer,address,undefined -D_GNU_SOURCE -I. tests/fuzz_config.c model/config.c \
 *         model/rope.c model/json.c base/file.c base/array.c base/status.c kernels/dtype.c \
 *         tests/support/temp_folder.c -ljansson -lm -o fuzz_config
 *     ./fuzz_config -max_len=4096 CORPUS
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "model/config.h"
#include "tests/support/temp_folder.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char minimal[] = "{\"model_type\":\"llama\",\"hidden_size\":64,\"intermediate_size\":96,"
                              "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"vocab_size\":320}";

/* A config that was accepted must give a table of numbers. */
static void check_table(const struct model_spec *spec)
{
    float *table = malloc(2 * (size_t)spec->head_size * sizeof *table);
    if (!table) abort();
    rope_table(spec, 2, table);
    for (int i = 0; i < 2 * spec->head_size; i++)
        if (!isfinite(table[i])) abort();
    free(table);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct temp_folder folder;
    struct model_config config;
    struct error err = {""};
    if (size == 0) return 0;
    temp_folder_make(&folder);
    if (data[0] % 8) {
        temp_folder_write(&folder, "config.json", data + 1, size - 1);
    } else {
        temp_folder_write_string(&folder, "config.json", minimal);
        temp_folder_write(&folder, "generation_config.json", data + 1, size - 1);
    }
    if (model_config_load(folder.path, &config, &err) == STATUS_OK) check_table(&config.spec);
    temp_folder_remove(&folder);
    return 0;
}
