/* The "post_processor" of a tokenizer.json (tokenizers 0.23): the tokens that are put around an encoded text, such as
 * bos. TemplateProcessing, ByteLevel (which adds none), Sequence; another type is refused by name. */
#ifndef QUIRE_TOKENIZER_POST_PROCESSOR_H
#define QUIRE_TOKENIZER_POST_PROCESSOR_H

#include <jansson.h>

#include "base/status.h"
#include "tokenizer/token_list.h"

struct post_processor {
    struct token_list before, after; /* the ids before and after a text */
};

/* `value` is the JSON of "post_processor", NULL or null for none; `path` names the file in messages. Free with
 * post_processor_free, also after a failure. */
enum status post_processor_read(const json_t *value, const char *path, struct post_processor *out, struct error *err);
void post_processor_free(struct post_processor *p);

#endif
