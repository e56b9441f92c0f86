/* What a tokenizer is made of: for tokenizer_open.c, which makes it, and tokenizer.c, which uses it. */
#ifndef QUIRE_TOKENIZER_TOKENIZER_PARTS_H
#define QUIRE_TOKENIZER_TOKENIZER_PARTS_H

#include "tokenizer/added_tokens.h"
#include "tokenizer/pipeline.h"
#include "tokenizer/post_processor.h"
#include "tokenizer/sentencepiece.h"
#include "tokenizer/token_table.h"
#include "tokenizer/tokenizer_config.h"

struct tokenizer {
    struct sentencepiece_model *sp; /* of tokenizer.model, or ... */
    struct pipeline *pipeline;      /* ... of tokenizer.json or tiktoken.model; the other is NULL */
    char file[32];                  /* the name of that file */
    struct token_table table;
    struct added_tokens added;  /* those that are found in a text as it is given */
    struct added_tokens names;  /* all, by their own spelling */
    struct post_processor post; /* what TOKENIZER_ADD_SPECIAL adds */
    int32_t bos_id, eos_id;
    struct named_template *templates; /* [num_templates] */
    size_t num_templates;
    json_t *variables;
};

#endif
