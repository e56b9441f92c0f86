#include "tests/support/stored_copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/must.h"

void stored_copy_add(struct stored_copy *copy, const char *folder, const char *prefix,
                     void (*edit)(const struct stored_tensor *t, void *bytes))
{
    struct text *header = &copy->header, *data = &copy->data;
    struct tensor_file *file;
    struct error err;
    must(tensor_file_open(folder, &file, &err), &err);
    for (int64_t i = 0; i < tensor_file_count(file); i++) {
        const struct stored_tensor *t = tensor_file_at(file, i);
        const size_t first = data->length;
        if (strncmp(t->name, prefix, strlen(prefix)) != 0) continue;
        text_printf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", header->length > 0 ? "," : "", t->name,
                    t->type->name);
        for (int d = 0; d < t->num_dims; d++) text_printf(header, d > 0 ? ",%lld" : "%lld", (long long)t->shape[d]);
        text_append(data, t->data, t->bytes);
        text_printf(header, "],\"data_offsets\":[%zu,%zu]}", first, data->length);
        if (edit) edit(t, data->data + first);
    }
    tensor_file_close(file);
}

void stored_copy_write(struct stored_copy *copy, const struct temp_folder *folder)
{
    temp_folder_write_safetensors(folder, "model.safetensors", copy->header.data, copy->data.data, copy->data.length);
    text_free(&copy->header);
    text_free(&copy->data);
}
