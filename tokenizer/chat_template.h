/* A conversation to text and token ids, through the checkpoint's own chat template (Jinja), as transformers'
 * apply_chat_template renders it.
 *
 * Text of a message never becomes a special token, whatever it spells: the interpreter marks every byte of the rendered
 * text that came from a message, a tool or a document, and encoding looks for special tokens in the other bytes only.
 * The role of a message is marked too, unless it is one of the usual ones: "system", "user", "assistant", "tool",
 * "developer", "ipython" and so on, which some templates make a special token of. */
#ifndef QUIRE_TOKENIZER_CHAT_TEMPLATE_H
#define QUIRE_TOKENIZER_CHAT_TEMPLATE_H

#include <jansson.h>

#include "tokenizer/tokenizer.h"

struct chat_template;

/* Parses the templates of the tokenizer's folder, or `source` in place of all of them if it is not NULL. STATUS_INVALID
 * with line and column for a template with an error in it; STATUS_UNSUPPORTED if there is none: the sentence says where
 * quire looked. */
enum status chat_template_open(const struct tokenizer *t, const char *source, struct chat_template **out,
                               struct error *err);
void chat_template_close(struct chat_template *c); /* NULL is allowed */

/* What is rendered: the arguments of apply_chat_template. */
struct chat_input {
    const json_t *messages; /* a list of objects with "role", and most often "content" */
    const json_t *tools;    /* a list of JSON schemas of functions, or NULL; with them the template "tool_use" is taken,
                               if there is one */
    const json_t *documents;    /* a list of objects, or NULL */
    const json_t *kwargs;       /* an object with further variables such as enable_thinking, or NULL */
    bool add_generation_prompt; /* the text ends where the answer begins */
    bool fit_form; /* as in vLLM: a list of parts in place of a content becomes their texts, joined by newlines, unless
                      the template loops over parts; and a string becomes a list of one part if the template shows
                      no text but that of parts */
    bool allow_special; /* do not mark: special tokens are found in messages too */
    int64_t now;        /* what templates that print the date see: seconds since 1970; 0: the present */
};

/* Checks what every template expects: messages is a list of objects with a string "role", and content that is text, a
 * list of parts, null or absent. Errors name the message. */
enum status chat_input_check(const struct chat_input *input, struct error *err);

/* Renders the input. Overwrites *out. */
enum status chat_template_render(const struct chat_template *c, const struct chat_input *input, struct marked_text *out,
                                 struct error *err);
/* Renders the input and appends the ids of the text to *out. */
enum status chat_template_encode(const struct chat_template *c, const struct chat_input *input, struct token_list *out,
                                 struct error *err);

#endif
