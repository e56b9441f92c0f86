/* Text from outside (an answer, a prompt, a file name, a key of config.json), made visible: control characters would
 * drive a terminal, write its clipboard (OSC 52) or hide what a sentence says. A character that may do so is replaced:
 *
 *   C0 controls but newline and tab, and DEL   U+2400 to U+241F and U+2421, their symbols: ESC becomes U+241B
 *   C1 controls (U+0080 to U+009F)             U+FFFD
 *   bidirectional embeddings, overrides, isolates and marks, line and paragraph separators   U+FFFD
 *   a byte that is not UTF-8                   U+FFFD
 *
 * All else stays as it is (Unicode Technical Report 36 names the bidirectional ones). Only what goes to a terminal is
 * changed: pipes and files get raw bytes. */
#ifndef QUIRE_BASE_VISIBLE_H
#define QUIRE_BASE_VISIBLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/array.h"

/* The character that stands for this one; itself if it is harmless. */
uint32_t visible_character(uint32_t character);

/* Appends text[length], made visible. False if memory ran out; then *out has a part of it. */
bool visible_append(struct text *out, const char *text, size_t length);

/* Writes text[length] to the stream: made visible if the stream is a terminal, else as it is. False, with errno, if
 * the stream refused a part of it. */
bool visible_write(FILE *stream, const char *text, size_t length);
/* fprintf through visible_write. `format` holds no controls of its own but newline and tab. */
bool visible_printf(FILE *stream, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
