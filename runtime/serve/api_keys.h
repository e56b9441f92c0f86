/* The keys that a client may show: those of flags and of a file. */
#ifndef QUIRE_RUNTIME_API_KEYS_H
#define QUIRE_RUNTIME_API_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct api_keys {
    char **list; /* [count]; none: everyone may ask */
    size_t count, capacity;
};

enum status api_keys_add(struct api_keys *keys, const char *key, size_t length, struct error *err);
/* Adds each line of the file but blank ones; without any key it is refused. */
enum status api_keys_read(struct api_keys *keys, const char *path, struct error *err);
void api_keys_free(struct api_keys *keys);

/* Whether the headers of a request ("Bearer KEY", and KEY alone; each may be NULL) show a key. How long it takes does
 * not depend on where a wrong key differs. */
bool api_keys_allow(const struct api_keys *keys, const char *authorization, const char *x_api_key);

#endif
