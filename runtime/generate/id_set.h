/* Counts the ids of an input that occur more than once, in at most 64 MiB: of each id it keeps a hash of 63 bits, and
 * of no more than ID_SET_MOST of them. */
#ifndef QUIRE_RUNTIME_ID_SET_H
#define QUIRE_RUNTIME_ID_SET_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ID_SET_MOST ((size_t)4 << 20)

/* Zero-initialise it. */
struct id_set {
    uint64_t *slots; /* [size], a hash table; 0: free. The lowest bit of a slot: the id was there again */
    size_t size, count;
    int64_t num_repeated; /* ids that were added more than once */
    bool full;            /* an id was left out: there may be more of them */
};

/* Adds an id of a line, a string or an integer; NULL: it has none. Memory that runs out makes the set full. */
void id_set_add(struct id_set *set, const json_t *id);
void id_set_free(struct id_set *set);

/* "2 ids occur more than once", or "" */
struct id_sentence {
    char text[80];
};
struct id_sentence id_set_sentence(const struct id_set *set);

#endif
