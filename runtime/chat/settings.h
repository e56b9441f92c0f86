/* /set: the sampling fields of a chat, by the names, ranges and sentences of the table in
 * scheduler/sampling_params.h. */
#ifndef QUIRE_RUNTIME_CHAT_SETTINGS_H
#define QUIRE_RUNTIME_CHAT_SETTINGS_H

#include <stdio.h>

#include "runtime/chat/session.h"

/* Sets a field from what a person typed: a number; on or off; a text, or JSON; for lists the same as the flags take.
 * "default" gives the model's. On failure nothing changes. */
enum status settings_set(struct session *s, const char *name, const char *text, struct error *err);

/* Prints "NAME = VALUE", the range and what the field does. INVALID: there is no such field. */
enum status settings_show(const struct session *s, const char *name, FILE *out, struct error *err);
/* Prints the fields that differ from the model's own; returns how many. */
int settings_list(const struct session *s, FILE *out);

#endif
