#include "runtime/options/template_flags.h"

#include "base/file.h"

void template_flags_add(struct option_table *table, struct chat_setup_options *out, const char *heading)
{
    const struct option_spec specs[] = {
        {"chat-template", OPTION_STRING, &out->file, "FILE",
         .help = "A chat template (Jinja) in place of the checkpoint's own.", .heading = heading, .not_empty = true},
        {"chat-template-kwargs", OPTION_STRING, &out->kwargs, "JSON",
         .help = "Further variables for the chat template, such as '{\"enable_thinking\": false}'.", .not_empty = true},
        {"allow-special-in-messages", OPTION_SWITCH, &out->allow_special,
         .help = "Let the text of messages name special tokens, such as <|im_end|>; only for text that you trust. "
                 "Default: off, such text stays text."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

enum status template_flags_read(struct chat_setup_options *given, struct error *err)
{
    return given->file ? file_read_or_pipe(given->file, &given->source, err) : STATUS_OK;
}

void template_flags_free(struct chat_setup_options *given)
{
    text_free(&given->source);
}

enum status template_flags_check(const struct chat_setup_options *given, struct error *err)
{
    json_t *kwargs;
    enum status status = chat_setup_read_kwargs(given, &kwargs, err);
    json_decref(kwargs);
    return status;
}
