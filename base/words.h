/* Lists of words as one string, with a space between two. */
#ifndef QUIRE_BASE_WORDS_H
#define QUIRE_BASE_WORDS_H

#include <stdbool.h>
#include <string.h>

/* Whether `word` is one of the words. The empty word, and one with a space in it, never is. */
static inline bool words_have(const char *words, const char *word)
{
    const size_t length = strlen(word);
    if (length == 0 || strchr(word, ' ')) return false;
    for (const char *at = words; (at = strstr(at, word)); at += length)
        if ((at == words || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
    return false;
}

#endif
