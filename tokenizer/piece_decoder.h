/* The "decoder" of a tokenizer.json (tokenizers 0.23): how pieces become text. ByteLevel, Metaspace, Replace (of a
 * string), ByteFallback, Fuse, Strip (of spaces), Sequence; another is refused by name. It is applied once to each
 * piece, when the table of tokens is built; what depends on the place of a piece in a text is in the table's rules. */
#ifndef QUIRE_TOKENIZER_PIECE_DECODER_H
#define QUIRE_TOKENIZER_PIECE_DECODER_H

#include <jansson.h>

#include "tokenizer/token_table.h"

struct piece_decoder;

/* `value` is the JSON of "decoder", NULL or null for none; `path` names the file in messages. *rules gets what the
 * table of tokens must know. */
enum status piece_decoder_open(const json_t *value, const char *path, struct piece_decoder **out,
                               struct decoding_rules *rules, struct error *err);
void piece_decoder_close(struct piece_decoder *d); /* NULL is allowed */

/* Overwrites *bytes with the text of a piece; *is_byte: it is one byte of a character. False if memory ran out. */
bool piece_decoder_apply(struct piece_decoder *d, const char *piece, size_t length, struct text *bytes, bool *is_byte);

#endif
