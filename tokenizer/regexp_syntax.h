/* Translates a regular expression from Oniguruma's Ruby syntax (kkos/oniguruma, doc/RE), which the library tokenizers
 * uses, into PCRE2's: a pattern with the same matches, for PCRE2_UTF and newlines that are "\n".
 *
 * Where the two differ in meaning, Oniguruma's holds: {1,3}+ repeats a repeat, (?m) lets the dot match newlines, ^ and
 * $ match at every line, \h is a hexadecimal digit, [a&&[b]] is an intersection, \w has letters, marks, decimal digits
 * and connectors, and classes are those of Unicode 16, whatever the version of PCRE2. (One character alone differs:
 * U+1171E is in \p{Mn} and not in \p{Mc} before Unicode 16.) A (...) captures nothing.
 *
 * Back-references, (?x), \K, \X, \G, conditions, calls, absent groups, letters that are not ASCII under (?i), and
 * classes that are not in unicode_classes.h are refused. */
#ifndef QUIRE_TOKENIZER_REGEXP_SYNTAX_H
#define QUIRE_TOKENIZER_REGEXP_SYNTAX_H

#include "base/array.h"
#include "base/status.h"

/* Overwrites *out with the translation of pattern[length], valid UTF-8. STATUS_UNSUPPORTED for what is refused, and
 * STATUS_INVALID for what Oniguruma does not take either: a sentence about the place, without the pattern. */
enum status regexp_translate(const char *pattern, size_t length, struct text *out, struct error *err);

#endif
