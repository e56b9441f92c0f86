#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/support/padded_model.h"

#include "base/array.h"
#include "base/file.h"
#include "model/checkpoint/tensor_file.h"

#define EMBEDDING "model.embed_tokens.weight"

static void write_config(const struct temp_folder *folder, const char *guide)
{
    char path[4096];
    assert_true(path_join(path, sizeof path, guide, "config.json"));
    json_t *config = json_load_file(path, 0, NULL);
    assert_non_null(config);
    const json_int_t rows = json_integer_value(json_object_get(config, "vocab_size"));
    json_object_set_new(config, "vocab_size", json_integer(2 * rows));
    char *text = json_dumps(config, 0);
    assert_non_null(text);
    temp_folder_write_string(folder, "config.json", text);
    free(text);
    json_decref(config);
}

/* The tensor's bytes, then those of each element times two. All are bfloat16. */
static void append_twice(struct text *data, const struct stored_tensor *t)
{
    const uint16_t *elements = t->data, exponent = 0x7f80, one_more = 0x0080;
    assert_true(text_append(data, t->data, t->bytes));
    for (uint64_t i = 0; i < t->bytes / sizeof *elements; i++) {
        const uint16_t twice = elements[i] & exponent ? (uint16_t)(elements[i] + one_more) : elements[i];
        assert_true(text_append(data, (const char *)&twice, sizeof twice));
    }
}

static void write_weights(const struct temp_folder *folder, const char *guide)
{
    char path[4096];
    struct tensor_file *set = NULL;
    struct text data = {0};
    struct error err;
    json_t *header = json_object();
    assert_true(path_join(path, sizeof path, guide, "model.safetensors"));
    if (tensor_file_open_path(path, &set, &err) != STATUS_OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < tensor_file_count(set); i++) {
        const struct stored_tensor *t = tensor_file_at(set, i);
        const bool padded = strcmp(t->name, EMBEDDING) == 0;
        const json_int_t first = (json_int_t)data.length;
        if (padded)
            append_twice(&data, t);
        else
            assert_true(text_append(&data, t->data, t->bytes));
        json_t *shape = json_array();
        for (int k = 0; k < t->num_dims; k++)
            json_array_append_new(shape, json_integer(padded && k == 0 ? 2 * t->shape[k] : t->shape[k]));
        json_object_set_new(header, t->name,
                            json_pack("{s:s, s:o, s:[I,I]}", "dtype", t->type->name, "shape", shape, "data_offsets",
                                      first, (json_int_t)data.length));
    }
    char *text = json_dumps(header, JSON_COMPACT | JSON_EMBED);
    temp_folder_write_safetensors(folder, "model.safetensors", text, data.data, data.length);
    free(text);
    json_decref(header);
    text_free(&data);
    tensor_file_close(set);
}

void padded_model_make(struct temp_folder *folder, const char *guide)
{
    static const char *const same[] = {"tokenizer.model", "tokenizer_config.json", "generation_config.json"};
    temp_folder_make(folder);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) temp_folder_copy(folder, guide, same[i]);
    write_config(folder, guide);
    write_weights(folder, guide);
}
