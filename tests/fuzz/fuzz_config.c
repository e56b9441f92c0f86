/* config.json and generation_config.json. The first byte of the input says what the rest is: a whole config.json, more
 * keys of one that is valid, or a generation_config.json. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/array.h"
#include "model/config.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temp_folder.h"

#define SIZES                                                                                                          \
    "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":8,"                   \
    "\"num_key_value_heads\":4,\"vocab_size\":320"

/* A config that was accepted must give a table of numbers. */
static void check_table(const struct model_spec *spec)
{
    for (int32_t rope = 0; rope < spec->num_ropes; rope++) {
        const int count = rope_table_rows(spec, 2) * rope_rotary_dim(spec, rope);
        float *table = malloc((size_t)count * sizeof *table + 1);
        if (!table) abort();
        rope_table(spec, rope, 2, table, NULL);
        for (int i = 0; i < count; i++)
            if (!isfinite(table[i])) abort();
        free(table);
    }
}

/* config.json of a family, with the input as further keys. */
static void write_family(const struct temp_folder *folder, int family, const uint8_t *keys, size_t size)
{
    static const char *const types[] = {
        "llama",   "mistral", "qwen2", "qwen3",       "gemma2",   "olmo2",   "granite",   "cohere",
        "cohere2", "glm",     "glm4",  "helium",      "ernie4_5", "exaone4", "seed_oss",  "arcee",
        "apertus", "phi3",    "gemma", "gemma3_text", "olmo3",    "smollm3", "ministral", "granitemoehybrid"};
    struct text text = {0};
    const char *type = types[family % (int)(sizeof types / sizeof *types)];
    if (!text_printf(&text, "{\"model_type\":\"%s\"," SIZES "%s", type, size ? "," : "") ||
        !text_append(&text, (const char *)keys, size) || !text_append_string(&text, "}"))
        abort();
    temp_folder_write(folder, "config.json", text.data, text.length);
    text_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct temp_folder folder;
    struct model_config config;
    struct error err = {""};
    if (size == 0) return 0;
    temp_folder_make(&folder);
    if (data[0] % 4 == 0) {
        temp_folder_write(&folder, "config.json", data + 1, size - 1);
    } else if (data[0] % 4 == 1) {
        write_family(&folder, 0, NULL, 0);
        temp_folder_write(&folder, "generation_config.json", data + 1, size - 1);
    } else {
        write_family(&folder, data[0] / 4, data + 1, size - 1);
    }
    if (model_config_load(folder.path, NULL, NULL, &config, &err) == STATUS_OK) check_table(&config.spec);
    temp_folder_remove(&folder);
    return 0;
}
