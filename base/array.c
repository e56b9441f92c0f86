#include "base/array.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

bool array_reserve(void *data, size_t *capacity, size_t count, size_t element_size)
{
    if (count <= *capacity) return true;
    size_t wanted = *capacity < 8 ? 8 : *capacity * 2;
    if (wanted < count) wanted = count;
    if (element_size && wanted > SIZE_MAX / 2 / element_size) return false;
    void *old;
    memcpy(&old, data, sizeof old); /* `data` is the address of a pointer of any type */
    void *grown = realloc(old, wanted * element_size);
    if (!grown) return false;
    memcpy(data, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

void *table_new(size_t bytes)
{
    const size_t huge = (size_t)2 << 20;
    const bool is_large = bytes >= huge && bytes % huge == 0;
    void *table = is_large ? aligned_alloc(huge, bytes) : malloc(bytes);
    if (!table) return NULL;
    if (is_large) madvise(table, bytes, MADV_HUGEPAGE); /* a hint: errors do not matter */
    return memset(table, 0xFF, bytes);
}

bool text_reserve(struct text *t, size_t length)
{
    bool fresh = t->data == NULL;
    if (!array_reserve(&t->data, &t->capacity, length + 1, 1)) return false;
    if (fresh) t->data[0] = '\0';
    return true;
}

bool text_append(struct text *t, const char *bytes, size_t count)
{
    if (!text_reserve(t, t->length + count)) return false;
    if (count) memcpy(t->data + t->length, bytes, count);
    t->length += count;
    t->data[t->length] = '\0';
    return true;
}

bool text_append_string(struct text *t, const char *string)
{
    return text_append(t, string, strlen(string));
}

bool text_vprintf(struct text *t, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    bool ok = n >= 0 && text_reserve(t, t->length + (size_t)n);
    if (ok) {
        vsnprintf(t->data + t->length, (size_t)n + 1, format, again);
        t->length += (size_t)n;
    }
    va_end(again);
    return ok;
}

bool text_printf(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bool ok = text_vprintf(t, format, args);
    va_end(args);
    return ok;
}

void text_clear(struct text *t)
{
    t->length = 0;
    if (t->data) t->data[0] = '\0';
}

void text_free(struct text *t)
{
    free(t->data);
    *t = (struct text){0};
}
