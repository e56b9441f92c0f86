/* Values as Python writes them, and as Gemma does, turned into JSON byte by byte: {'a': True, 'b': [1, 'x']} becomes
 * {"a": true, "b": [1, "x"]}. Python has strings in quotes of both kinds, one or three, with its escapes; lists,
 * tuples, dicts, numbers, True, False and None. Those words are read as JSON has them, too. Gemma has keys without
 * quotes, and a mark around strings. */
#ifndef QUIRE_RUNTIME_LITERAL_H
#define QUIRE_RUNTIME_LITERAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/array.h"

enum { LITERAL_MAX_DEPTH = 64, LITERAL_MAX_WORD = 256 };

enum literal_result { LITERAL_MORE, LITERAL_END, LITERAL_WRONG };

struct literal {
    const char *quote; /* Gemma's mark around strings; NULL: Python */
    struct text *out;  /* gets the JSON */
    enum {
        LITERAL_VALUE, /* what may come next: a value */
        LITERAL_ITEM,  /* a value or a key, or the end of what it lies in */
        LITERAL_COLON, /* ':', or '=' in a call */
        LITERAL_AFTER, /* a comma, or the end of what the value lies in */
        LITERAL_WORD,
        LITERAL_MARK,   /* more of a mark around a string */
        LITERAL_QUOTES, /* one or two quotes have come, which may become three */
        LITERAL_STRING,
        LITERAL_ESCAPE,
        LITERAL_CODE /* of an escape */
    } state;
    int depth;
    char closers[LITERAL_MAX_DEPTH]; /* what ends each list, dict or call; ')' of a call is '(' here */
    bool has_items;                  /* in the innermost */
    bool is_key;
    char delimiter; /* of the string; NUL: the mark */
    int quotes;     /* LITERAL_QUOTES: that have come; in a string of three: at its end */
    bool is_triple;
    int marked;       /* bytes of the mark that have come */
    int digits, base; /* LITERAL_CODE: that are missing */
    uint32_t code;
    uint32_t high; /* the first half of a surrogate pair that has come; 0: none */
    int num_keys;  /* whose value may come */
    char word[LITERAL_MAX_WORD];
    size_t word_length;
    bool failed; /* memory ran out */
};

void literal_init(struct literal *l, const char *quote, struct text *out);
/* Begins inside the parentheses of a call: a=1, b=2) becomes {"a": 1, "b": 2}. */
void literal_init_call(struct literal *l, struct text *out);
/* END: the byte was the last of the value, which is a list, a dict or a call. */
enum literal_result literal_add(struct literal *l, char byte);

/* Appends Python's text[length] as JSON, if it is one list, tuple or dict. */
bool literal_whole(const char *text, size_t length, struct text *out);

#endif
