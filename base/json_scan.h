/* JSON that comes in pieces: whether the bytes so far can be the beginning of a value, and where it ends. It reads what
 * RFC 8259 has, and nothing more. */
#ifndef QUIRE_BASE_JSON_SCAN_H
#define QUIRE_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* White space of JSON. */
static inline bool json_is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

enum { JSON_SCAN_MAX_DEPTH = 256 }; /* of objects and arrays in one another */

enum json_scan_result {
    JSON_SCAN_MORE, /* the value goes on; after a number, and behind the value, blanks may come */
    JSON_SCAN_END,  /* the byte was the last of the value, which is no number */
    JSON_SCAN_WRONG /* no value begins like this */
};

/* What may come next. */
enum json_scan_state {
    JSON_SCAN_VALUE, /* a value */
    JSON_SCAN_FIRST, /* a value, or the array's end */
    JSON_SCAN_FIRST_KEY,
    JSON_SCAN_KEY,
    JSON_SCAN_COLON,
    JSON_SCAN_AFTER, /* a comma, or the end of what the value lies in */
    JSON_SCAN_STRING,
    JSON_SCAN_ESCAPE,
    JSON_SCAN_HEX,
    JSON_SCAN_MINUS,
    JSON_SCAN_ZERO,
    JSON_SCAN_DIGITS,
    JSON_SCAN_POINT,
    JSON_SCAN_FRACTION,
    JSON_SCAN_EXPONENT,
    JSON_SCAN_SIGN,
    JSON_SCAN_POWER,
    JSON_SCAN_WORD
};

/* Begins zeroed. */
struct json_scan {
    enum json_scan_state state;
    int depth;                                    /* how many objects and arrays are open */
    bool is_key;                                  /* the string is a key */
    int hex_digits;                               /* that are missing */
    const char *word;                             /* what is missing of true, false or null */
    uint64_t is_object[JSON_SCAN_MAX_DEPTH / 64]; /* bit i: what was opened at depth i is an object */
};

enum json_scan_result json_scan_add(struct json_scan *s, char byte);

/* Whether text[length] is one value, perhaps with blanks around it. */
bool json_scan_whole(const char *text, size_t length);

#endif
