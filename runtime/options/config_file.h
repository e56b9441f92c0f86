/* The file of --config: names of flags and their values.
 *
 * Either a JSON object, {"model": "org/name", "max-model-len": 4096, "enforce-eager": true, "stop": ["a", "b"]}, where
 * an object is the text of its JSON; or lines, the part of YAML that vLLM's --config uses, and of INI:
 *
 *     # a comment
 *     model: org/name            # or model = org/name
 *     max-model-len: 4096        # '_' may stand for '-'
 *     enforce-eager: true
 *     system: "Be brief.\nSay \"no\" if need be."
 *     chat-template-kwargs: '{"enable_thinking": false}'
 *     stop: [a, "b"]
 *     stop-token-ids:
 *       - 2
 *       - 13
 *
 * A value in double quotes has JSON's escapes, one in single quotes has '' for a quote; any other ends at " #". null
 * and ~ leave the flag as it is. A list gives a flag several times, if it may be. There is no other nesting: objects,
 * lists in lists, anchors and texts of several lines are refused. */
#ifndef QUIRE_RUNTIME_CONFIG_FILE_H
#define QUIRE_RUNTIME_CONFIG_FILE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* `label` says where the value stands, "FILE:LINE: NAME". `name` has '-' for '_'. `again`: a further element of a list.
 * `value` lives in the memory that config_file_read got, name and label only during the call. */
struct config_entry {
    const char *name, *label, *value;
    bool again;
};
typedef enum status config_entry_function(void *user, const struct config_entry *entry, struct error *err);

/* Calls `take` for each value of the file, in its order, until one fails. values[size] gets the texts. STATUS_IO: the
 * file cannot be read. STATUS_INVALID: it is neither of the two, or has more text than there is room for. */
enum status config_file_read(const char *path, char *values, size_t size, config_entry_function *take, void *user,
                             struct error *err);

#endif
