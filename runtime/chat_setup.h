/* How a command renders conversations: the chat template, and what the template flags say. */
#ifndef QUIRE_RUNTIME_CHAT_SETUP_H
#define QUIRE_RUNTIME_CHAT_SETUP_H

#include "runtime/options/template_flags.h"
#include "tokenizer/chat_template.h"

struct chat_setup {
    struct chat_template *template; /* NULL: there is none that can be used, and `reason` says why */
    json_t *kwargs;                 /* an object, or NULL */
    bool allow_special;
    enum status status; /* of opening the template */
    struct error reason;
};

/* Opens the checkpoint's templates, or that of --chat-template, which has been read. Fails for flags that are wrong; a
 * checkpoint without a template is no failure until a conversation is rendered. Free with chat_setup_close, also after
 * a failure. */
enum status chat_setup_open(const struct tokenizer *t, const struct template_flags *flags, struct chat_setup *out,
                            struct error *err);
void chat_setup_close(struct chat_setup *setup); /* safe on a zeroed struct */

/* STATUS_OK if there is a template; otherwise its reason. */
enum status chat_setup_check(const struct chat_setup *setup, struct error *err);

/* Renders `input`, in which allow_special and those kwargs that it does not have itself come from the setup, and parts
 * are joined. */
enum status chat_setup_render(const struct chat_setup *setup, struct chat_input input, struct marked_text *out,
                              struct error *err);

#endif
