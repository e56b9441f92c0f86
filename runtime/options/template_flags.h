/* The flags that say how conversations are rendered: --chat-template, --chat-template-kwargs and
 * --allow-special-in-messages. */
#ifndef QUIRE_RUNTIME_TEMPLATE_FLAGS_H
#define QUIRE_RUNTIME_TEMPLATE_FLAGS_H

#include <jansson.h>

#include "base/array.h"
#include "runtime/options/options.h"

struct template_flags {
    const char *file;   /* NULL: the checkpoint's own templates */
    const char *kwargs; /* JSON, or NULL */
    bool allow_special;
    struct text source; /* of the file, which may be a pipe and is read once, by template_flags_read */
};

/* `flags` must outlive the table. `heading`: of the group that begins with them, or NULL. */
void template_flags_add(struct option_table *table, struct template_flags *flags, const char *heading);

/* What options_parse cannot see: that the kwargs are a JSON object. */
enum status template_flags_check(const struct template_flags *flags, struct error *err);
/* Reads the file, if one is given. Free with template_flags_free, also after a failure. */
enum status template_flags_read(struct template_flags *flags, struct error *err);
void template_flags_free(struct template_flags *flags);
/* The kwargs as an object, which the caller owns; NULL: none were given. */
enum status template_flags_kwargs(const struct template_flags *flags, json_t **out, struct error *err);

#endif
