/* What the files of a checkpoint folder say about its tokenizer besides the vocabulary: tokenizer_config.json; where it
 * lacks a key, special_tokens_map.json and added_tokens.json; and chat_template.jinja and additional_chat_templates/,
 * which replace the templates of tokenizer_config.json. The layouts are those of transformers 4 and 5. Any file may be
 * missing. */
#ifndef QUIRE_TOKENIZER_TOKENIZER_CONFIG_H
#define QUIRE_TOKENIZER_TOKENIZER_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "tokenizer/added_tokens.h"

struct json_reader;

/* A token that a file adds to the vocabulary. */
struct config_token {
    int32_t id;     /* >= 0 */
    char *content;  /* never empty */
    unsigned flags; /* enum added_token_flags */
};

/* A token that a file names by its text: bos_token, eos_token. */
struct named_token {
    bool given;    /* some file has the key */
    char *content; /* NULL: the value is null, there is no such token */
};

/* A chat template. The one without a name in the files is "default". */
struct named_template {
    char *name, *source; /* source: Jinja */
};

enum setting { SETTING_NOT_GIVEN, SETTING_FALSE, SETTING_TRUE };

struct tokenizer_config {
    struct config_token *added; /* [num_added] */
    size_t num_added, added_capacity;
    json_t *special_names; /* an object: its keys are the texts that some file lists as special tokens */
    struct named_token bos, eos;
    enum setting add_bos_token;
    json_t *variables;                /* tokenizer_template_variables */
    struct named_template *templates; /* [num_templates] tokenizer_chat_templates */
    size_t num_templates, templates_capacity;
};

/* The id of an added token must be below this. */
enum { TOKENIZER_CONFIG_MAX_ID = 1 << 22 };

/* Reads the folder's files into *config. Errors name the file, and the line where it is not JSON. Free *config with
 * tokenizer_config_free, also after a failure. */
enum status tokenizer_config_read(const char *folder, struct tokenizer_config *config, struct error *err);
void tokenizer_config_free(struct tokenizer_config *config);

void named_templates_free(struct named_template *templates, size_t count); /* [count] */

/* Reads one entry of added_tokens_decoder or of tokenizer.json's added_tokens: {"content": ..., "special": ...}. False:
 * it is not one, and r says why. */
bool config_token_read(struct json_reader *r, json_int_t id, const json_t *entry, const char **content,
                       unsigned *flags);

#endif
