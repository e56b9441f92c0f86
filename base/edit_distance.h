/* How far a word is from a known one, for "did you mean". */
#ifndef QUIRE_BASE_EDIT_DISTANCE_H
#define QUIRE_BASE_EDIT_DISTANCE_H

#include <stdbool.h>

#define EDIT_DISTANCE_MAX_LENGTH 64 /* bytes; a longer word is taken to be far from every other */

/* Levenshtein distance: the fewest bytes to insert, remove or replace. */
int edit_distance(const char *a, const char *b);

/* The greatest distance at which a known word is near enough to be suggested for `typed`: one edit for each three bytes
 * of it, and at least two. */
int edit_distance_near(const char *typed);

/* The search for the known word that `typed` most likely meant. */
struct nearest {
    const char *typed;
    const char *word; /* the best so far; NULL: none was near */
    int distance;     /* a better word must be below it */
};
struct nearest nearest_begin(const char *typed);
/* Returns whether `word` is now the best. A word that begins as what was typed is nearer than any other. */
bool nearest_consider(struct nearest *n, const char *word);

#endif
