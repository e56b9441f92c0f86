/* How a command renders conversations: the chat template, and what its options say. */
#ifndef QUIRE_RUNTIME_CHAT_SETUP_H
#define QUIRE_RUNTIME_CHAT_SETUP_H

#include <jansson.h>
#include <stdbool.h>

#include "base/array.h"
#include "base/status.h"
#include "tokenizer/chat_template.h"

/* Zero: the checkpoint's own templates. Sentences name the flags of these (runtime/options/template_flags.h). */
struct chat_setup_options {
    const char *file;   /* that the template comes from; NULL: the checkpoint's own templates */
    const char *kwargs; /* an object as JSON, or NULL */
    bool allow_special;
    struct text source; /* of the file: the template */
};

struct chat_setup {
    struct chat_template *template; /* NULL: there is none that can be used, and `reason` says why */
    json_t *kwargs;                 /* an object, or NULL */
    bool allow_special;
    enum status status; /* of opening the template */
    struct error reason;
};

/* Opens the checkpoint's templates, or that of the options. Fails for options that are wrong; a checkpoint without a
 * template is no failure until a conversation is rendered. Free with chat_setup_close, also after a failure. */
enum status chat_setup_open(const struct tokenizer *t, const struct chat_setup_options *options, struct chat_setup *out,
                            struct error *err);
void chat_setup_close(struct chat_setup *setup); /* safe on a zeroed struct */

/* The kwargs as an object, which the caller owns; NULL: none were given. */
enum status chat_setup_read_kwargs(const struct chat_setup_options *options, json_t **out, struct error *err);

/* {"role": role, "content": content[length]}; NULL if memory ran out. */
json_t *chat_message(const char *role, const char *content, size_t length);

/* STATUS_OK if there is a template; otherwise its reason. */
enum status chat_setup_check(const struct chat_setup *setup, struct error *err);

/* The source of the template that conversations with tools (or without) are rendered by; NULL: there is none. Owned by
 * the tokenizer or by the options. */
const char *chat_setup_source(const struct tokenizer *t, const struct chat_setup_options *options, bool with_tools);

/* The conversation in a JSON object: messages, tools, documents and chat_template_kwargs; null counts as not given. The
 * values stay the object's. */
struct chat_input chat_setup_input(const json_t *object);
bool chat_setup_has_field(const char *name); /* it is one of these */

/* Renders `input`, in which allow_special and those kwargs that it does not have itself come from the setup, and parts
 * are joined. */
enum status chat_setup_render(const struct chat_setup *setup, struct chat_input input, struct marked_text *out,
                              struct error *err);
/* Renders it so that the answer goes on with the text of the last message: nothing follows that text. INVALID: there is
 * no such text, or the template does not show it. */
enum status chat_setup_render_unfinished(const struct chat_setup *setup, struct chat_input input,
                                         struct marked_text *out, struct error *err);
/* Where in a rendered text the beginning of an answer begins that goes on: text of the last message; else its end. */
size_t chat_setup_answer_start(const struct marked_text *text);
/* Appends the ids of the rendered text to *out. */
enum status chat_setup_encode(const struct chat_setup *setup, const struct tokenizer *t, struct chat_input input,
                              struct token_list *out, struct error *err);
/* How many of the first ids of `prompt`, which is the input with its generation prompt, it has without one as well. The
 * next prompt of the conversation begins with them, if the template leaves earlier turns as they are; what follows,
 * such as the beginning of a thought, it may rewrite. 0: the template renders nothing without a generation prompt. */
size_t chat_setup_lasting(const struct chat_setup *setup, const struct tokenizer *t, struct chat_input input,
                          const struct token_list *prompt);

#endif
