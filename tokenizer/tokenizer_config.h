/* What the files of a checkpoint folder say about its tokenizer: tokenizer_config.json; where it lacks a key,
 * special_tokens_map.json, added_tokens.json and the added_tokens of tokenizer.json; and chat_template.jinja, which
 * replaces the template of tokenizer_config.json. The layouts are those of transformers 4 and 5. Any file may be
 * missing. */
#ifndef QUIRE_TOKENIZER_TOKENIZER_CONFIG_H
#define QUIRE_TOKENIZER_TOKENIZER_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct added_token {
    int32_t id;    /* >= 0 */
    char *content; /* never empty */
    bool special;
};

/* A token that a file names by its text: bos_token, eos_token. */
struct named_token {
    bool given;    /* some file has the key */
    char *content; /* NULL: the value is null, there is no such token */
};

struct tokenizer_config {
    struct added_token *added; /* [num_added] */
    size_t num_added, added_capacity;
    char **special_names; /* [num_special_names] texts that some file lists as special tokens */
    size_t num_special_names, special_names_capacity;
    struct named_token bos, eos;
    bool add_bos_token;  /* true if the files do not say */
    char *chat_template; /* Jinja source, or NULL */
};

/* The id of an added token must be below this. */
enum { TOKENIZER_CONFIG_MAX_ID = 1 << 22 };

/* Reads the folder's files into *config. Errors name the file, and the line where it is not JSON. Free *config with
 * tokenizer_config_free, also after a failure. */
enum status tokenizer_config_read(const char *folder, struct tokenizer_config *config, struct error *err);
void tokenizer_config_free(struct tokenizer_config *config);

#endif
