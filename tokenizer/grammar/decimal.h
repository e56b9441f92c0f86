/* Decimal numbers, exact, and the regular languages of the numbers in a range. */
#ifndef QUIRE_TOKENIZER_GRAMMAR_DECIMAL_H
#define QUIRE_TOKENIZER_GRAMMAR_DECIMAL_H

#include <jansson.h>

#include "base/array.h"
#include "tokenizer/grammar/regular.h"

enum { DECIMAL_MAX_DIGITS = 400 };

struct decimal {
    bool negative; /* false for 0 */
    int32_t num_whole, num_fraction;
    char digits[DECIMAL_MAX_DIGITS]; /* [num_whole + num_fraction] digits; no needless zeros, "0" before the point */
};

/* Reads a number as JSON writes it. False: it has too many digits, or is none. */
bool decimal_parse(struct decimal *d, const char *text);
/* The number as it was written: of a double, the shortest decimal that is read as it. */
bool decimal_of_json(struct decimal *d, const json_t *number);
int decimal_compare(const struct decimal *a, const struct decimal *b); /* below 0: a is smaller */
bool decimal_is_whole(const struct decimal *d);
/* The next integer above d if `up`, below d if not; *d itself is not taken. False: too many digits. */
bool decimal_next_integer(struct decimal *d, bool up);
/* The decimal of the next double above or below. */
bool decimal_next_double(struct decimal *d, bool up);

/* Appends the number as Python's json module writes it. False: no memory. */
bool json_append_number(struct text *out, const json_t *number);
/* Appends it without an exponent. */
bool decimal_append(struct text *out, const struct decimal *d);

/* Numbers as JSON writes them, without an exponent. */
struct regular *decimal_numbers(bool integers);
/* Those of any texts of these forms that are at least d, or at most d; other texts may be in it, too. */
struct regular *decimal_bound(const struct decimal *d, bool at_least);
/* ... that are multiples of d, which is above 0. NULL also if d has too many digits. */
struct regular *decimal_multiples(const struct decimal *d);

#endif
