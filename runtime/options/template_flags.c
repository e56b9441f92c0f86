#include "runtime/options/template_flags.h"

#include <string.h>

#include "base/json.h"

void template_flags_add(struct option_table *table, struct template_flags *flags, const char *heading)
{
    const struct option_spec specs[] = {
        {.heading = heading,
         .name = "chat-template",
         .kind = OPTION_STRING,
         .target = &flags->file,
         .not_empty = true,
         .argument = "FILE",
         .help = "A chat template (Jinja) in place of the checkpoint's own."},
        {.name = "chat-template-kwargs",
         .kind = OPTION_STRING,
         .target = &flags->kwargs,
         .not_empty = true,
         .argument = "JSON",
         .help = "Further variables for the chat template, such as '{\"enable_thinking\": false}'."},
        {.name = "allow-special-in-messages",
         .kind = OPTION_SWITCH,
         .target = &flags->allow_special,
         .help = "Let the text of messages name special tokens, such as <|im_end|>; only for text that you trust. "
                 "Default: off, such text stays text."},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

enum status template_flags_kwargs(const struct template_flags *flags, json_t **out, struct error *err)
{
    *out = NULL;
    if (!flags->kwargs) return STATUS_OK;
    return json_object_parse(flags->kwargs, strlen(flags->kwargs), 0, "--chat-template-kwargs", out, err);
}

enum status template_flags_check(const struct template_flags *flags, struct error *err)
{
    json_t *kwargs;
    enum status status = template_flags_kwargs(flags, &kwargs, err);
    json_decref(kwargs);
    return status;
}
