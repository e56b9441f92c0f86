#include "base/edit_distance.h"

#include <string.h>

int edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    if (n > EDIT_DISTANCE_MAX_LENGTH || m > EDIT_DISTANCE_MAX_LENGTH) return EDIT_DISTANCE_MAX_LENGTH;
    int row[EDIT_DISTANCE_MAX_LENGTH + 1];
    for (size_t j = 0; j <= m; j++) row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

int edit_distance_near(const char *typed)
{
    const int limit = (int)(strlen(typed) / 3);
    return limit < 2 ? 2 : limit;
}

struct nearest nearest_begin(const char *typed)
{
    return (struct nearest){typed, NULL, edit_distance_near(typed) + 1};
}

bool nearest_consider(struct nearest *n, const char *word)
{
    const size_t length = strlen(n->typed);
    const bool begins = length > 0 && strncmp(word, n->typed, length) == 0;
    const int distance = begins ? 0 : edit_distance(n->typed, word);
    if (distance >= n->distance) return false;
    n->distance = distance;
    n->word = word;
    return true;
}
