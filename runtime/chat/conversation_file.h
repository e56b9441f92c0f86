/* Conversations in files: JSON, a list of messages such as {"role": "user", "content": "text"}, as the APIs of other
 * programs take it. Reading also accepts an object that has the list as "messages". */
#ifndef QUIRE_RUNTIME_CONVERSATION_FILE_H
#define QUIRE_RUNTIME_CONVERSATION_FILE_H

#include <jansson.h>
#include <stdbool.h>

#include "base/status.h"

/* Writes the messages. A file that exists is replaced if `replace`, and refused otherwise: *exists is then set. The new
 * file takes the name when it is complete, so a failure leaves the old one as it was. */
enum status conversation_file_write(const char *path, const json_t *messages, bool replace, bool *exists,
                                    struct error *err);
/* *messages is a new reference. That it is a list is checked; what it holds is left to chat_input_check. */
enum status conversation_file_read(const char *path, json_t **messages, struct error *err);

#endif
