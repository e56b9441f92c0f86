#include "runtime/engine/prefix_routes.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FIRST_BLOCKS = 4, NUM_PLACES = 1 << 16 };

struct prefix_routes {
    int32_t first_len; /* tokens of the shortest beginning */
    struct place {
        uint64_t hash;
        uint64_t engines; /* bit i: engine i has seen it; 0: the place is empty */
    } places[NUM_PLACES];
};

struct prefix_routes *prefix_routes_create(int32_t block_size)
{
    struct prefix_routes *r = calloc(1, sizeof *r);
    if (r) r->first_len = FIRST_BLOCKS * block_size;
    return r;
}

void prefix_routes_free(struct prefix_routes *r)
{
    free(r);
}

void prefix_routes_clear(struct prefix_routes *r)
{
    memset(r->places, 0, sizeof r->places);
}

/* A beginning of a prompt: each is hashed from the one before it. */
struct beginning {
    int32_t length; /* tokens; 0: before the first one */
    uint64_t hash;
};

static struct beginning before_first(const char *salt)
{
    return (struct beginning){0, salt ? XXH3_64bits(salt, strlen(salt)) : 0};
}

/* Goes on to the next beginning that the prompt has. One token of a prompt is computed whatever the cache has. */
static int next_beginning(const struct prefix_routes *r, const int32_t *prompt, int32_t prompt_len, struct beginning *b)
{
    const int64_t length = b->length == 0 ? r->first_len : 2 * (int64_t)b->length;
    if (length > prompt_len - 1) return 0;
    b->hash = XXH3_64bits_withSeed(prompt + b->length, (size_t)(length - b->length) * sizeof *prompt, b->hash);
    b->length = (int32_t)length;
    return 1;
}

void prefix_routes_find(const struct prefix_routes *r, const int32_t *prompt, int32_t prompt_len, const char *salt,
                        int num_engines, int32_t *matched)
{
    struct beginning b = before_first(salt);
    memset(matched, 0, (size_t)num_engines * sizeof *matched);
    while (next_beginning(r, prompt, prompt_len, &b)) {
        const struct place *place = &r->places[b.hash % NUM_PLACES];
        for (int i = 0; place->hash == b.hash && i < num_engines; i++)
            if (place->engines >> i & 1) matched[i] = b.length;
    }
}

void prefix_routes_note(struct prefix_routes *r, const int32_t *prompt, int32_t prompt_len, const char *salt,
                        int engine)
{
    struct beginning b = before_first(salt);
    while (next_beginning(r, prompt, prompt_len, &b)) {
        struct place *place = &r->places[b.hash % NUM_PLACES];
        if (place->hash != b.hash) *place = (struct place){.hash = b.hash};
        place->engines |= (uint64_t)1 << engine;
    }
}
