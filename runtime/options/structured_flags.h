/* The flags that hold answers to a form: --json-schema, --regex, --choice and --grammar. */
#ifndef QUIRE_RUNTIME_STRUCTURED_FLAGS_H
#define QUIRE_RUNTIME_STRUCTURED_FLAGS_H

#include "runtime/options/options.h"
#include "runtime/prompts/structured_json.h"

/* Zero-initialise. It must outlive the option table. */
struct structured_flags {
    const char *schema, *regex, *grammar; /* as they are given; of two, the file */
    json_t *choices;                      /* a list of strings */
    json_t *value;                        /* of fields.structured */
    struct structured_fields fields;      /* what the flags say; STRUCTURED_NONE: nothing */
};

/* `heading`: of the group that begins with them, or NULL. */
void structured_flags_add(struct option_table *table, struct structured_flags *flags, const char *heading);
/* After parsing: reads the file, if there is one, once, as it may be a pipe, and checks that answers can have the form.
 * Free with structured_flags_free, also after a failure. */
enum status structured_flags_read(struct structured_flags *flags, struct error *err);
void structured_flags_free(struct structured_flags *flags);

#endif
