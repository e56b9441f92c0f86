/* Lists of words as one string, with a space between two. */
#ifndef QUIRE_BASE_WORDS_H
#define QUIRE_BASE_WORDS_H

#include <stdbool.h>
#include <string.h>

/* Whether text[length] is one of the words; NULL: there are none. */
static inline bool words_have_text(const char *words, const char *text, size_t length)
{
    while (words && *words) {
        const size_t n = strcspn(words, " ");
        if (n == length && memcmp(words, text, length) == 0) return true;
        words += n + (words[n] == ' ');
    }
    return false;
}
static inline bool words_have(const char *words, const char *word) /* NULL never is */
{
    return word && words_have_text(words, word, strlen(word));
}

#endif
