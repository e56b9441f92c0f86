/* Memory: array_reserve for arrays of any type that grow, struct text for bytes and strings that grow, table_new for
 * tables. */
#ifndef QUIRE_BASE_ARRAY_H
#define QUIRE_BASE_ARRAY_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes room for `count` elements of `element_size` bytes: *data is moved when *capacity (in elements) is too small,
 * doubling so that appending is O(1). `data` is the address of the array's pointer. Returns false when memory ran out
 * (the array is as it was). New elements are not initialised. Free *data with free(). */
bool array_reserve(void *data, size_t *capacity, size_t count, size_t element_size);

/* Memory for a table that is looked up at random, every byte 0xFF: on huge pages, which the processor finds faster,
 * where it is large enough and the system has them. NULL when memory ran out. Free it with free(). */
void *table_new(size_t bytes);

/* A byte string that grows. Always NUL-terminated once something was appended; may hold NULs. Zero-initialise it. */
struct text {
    char *data;      /* NULL while empty and never reserved */
    size_t length;   /* bytes, without the final NUL */
    size_t capacity; /* bytes allocated */
};

bool text_reserve(struct text *t, size_t length); /* room for `length` bytes in all, and the NUL */
bool text_append(struct text *t, const char *bytes, size_t count);
bool text_append_string(struct text *t, const char *string);
bool text_printf(struct text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool text_vprintf(struct text *t, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
void text_clear(struct text *t); /* length 0; keeps the memory */
void text_free(struct text *t);

#ifdef __cplusplus
}
#endif

#endif
