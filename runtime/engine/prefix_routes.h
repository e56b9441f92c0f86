/* Which engines of a pool have seen the beginning of a prompt, and so may have it in their prefix caches. Beginnings of
 * 4, 8, 16, ... blocks are remembered by their hash, in a table of a fixed size where a new one takes the place of an
 * old one. */
#ifndef QUIRE_RUNTIME_PREFIX_ROUTES_H
#define QUIRE_RUNTIME_PREFIX_ROUTES_H

#include <stdint.h>

struct prefix_routes;

struct prefix_routes *prefix_routes_create(int32_t block_size); /* NULL: no memory */
void prefix_routes_free(struct prefix_routes *r);
void prefix_routes_clear(struct prefix_routes *r);

/* matched[num_engines] gets how many tokens at the beginning of prompt[prompt_len] each engine, of at most 64, has seen
 * with this salt, which may be NULL. */
void prefix_routes_find(const struct prefix_routes *r, const int32_t *prompt, int32_t prompt_len, const char *salt,
                        int num_engines, int32_t *matched);
void prefix_routes_note(struct prefix_routes *r, const int32_t *prompt, int32_t prompt_len, const char *salt,
                        int engine);

#endif
