/* The flags that say how conversations are rendered: --chat-template, --chat-template-kwargs and
 * --allow-special-in-messages. */
#ifndef QUIRE_RUNTIME_TEMPLATE_FLAGS_H
#define QUIRE_RUNTIME_TEMPLATE_FLAGS_H

#include "runtime/options/options.h"
#include "runtime/prompts/chat_setup.h"

/* `out` must outlive the table. `heading`: of the group that begins with them, or NULL. */
void template_flags_add(struct option_table *table, struct chat_setup_options *out, const char *heading);

/* What options_parse cannot see: that the kwargs are a JSON object. */
enum status template_flags_check(const struct chat_setup_options *given, struct error *err);
/* Reads the file, if one is given, once, as it may be a pipe. Free with template_flags_free, also after a failure. */
enum status template_flags_read(struct chat_setup_options *given, struct error *err);
void template_flags_free(struct chat_setup_options *given);

#endif
