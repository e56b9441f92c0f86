/* Unicode's normal forms (UAX #15), as tokenizers 0.23 has them: with the data of Unicode 9, so that characters which
 * are newer stay as they are. */
#ifndef QUIRE_TOKENIZER_NORMAL_FORM_H
#define QUIRE_TOKENIZER_NORMAL_FORM_H

#include "tokenizer/marked_text.h"

enum normal_form { NORMAL_FORM_C = 1, NORMAL_FORM_D = 2, NORMAL_FORM_KC = 4, NORMAL_FORM_KD = 8 };

/* Appends text[length], valid UTF-8, in the normal form. marks: [length], or NULL. A character that is made of marked
 * and unmarked ones is marked, and so are the combining characters beside it. False if memory ran out. Takes time
 * linear in the length. */
bool normal_form_append(enum normal_form form, const char *text, const char *marks, size_t length,
                        struct marked_text *out);

#endif
