#include "runtime/prompts/chat_setup.h"

#include <stddef.h>
#include <string.h>

#include "base/json.h"
#include "base/utf8.h"

enum status chat_setup_read_kwargs(const struct chat_setup_options *options, json_t **out, struct error *err)
{
    *out = NULL;
    if (!options->kwargs) return STATUS_OK;
    return json_object_parse(options->kwargs, strlen(options->kwargs), 0, "--chat-template-kwargs", out, err);
}

static enum status open_given(const struct tokenizer *t, const struct chat_setup_options *options,
                              struct chat_template **out, struct error *err)
{
    const struct text *source = &options->source;
    if (utf8_valid_prefix(source->data, source->length) < source->length)
        return error_set(err, STATUS_INVALID, "%s: the chat template is not UTF-8", options->file);
    if (source->length == 0 || strlen(source->data) < source->length)
        return error_set(err, STATUS_INVALID, "%s: %s; expected a chat template (Jinja)", options->file,
                         source->length ? "there is a NUL byte in the file" : "the file is empty");
    const enum status status = chat_template_open(t, source->data, out, err);
    return status == STATUS_OK ? status : error_prefix(err, status, options->file);
}

enum status chat_setup_open(const struct tokenizer *t, const struct chat_setup_options *options, struct chat_setup *out,
                            struct error *err)
{
    *out = (struct chat_setup){.allow_special = options->allow_special};
    enum status status = chat_setup_read_kwargs(options, &out->kwargs, err);
    if (status == STATUS_OK && options->file)
        status = t ? open_given(t, options, &out->template, err)
                   : error_set(err, STATUS_INVALID, "--chat-template needs a tokenizer");
    else if (status == STATUS_OK && t)
        out->status = chat_template_open(t, NULL, &out->template, &out->reason);
    return status;
}

void chat_setup_close(struct chat_setup *setup)
{
    chat_template_close(setup->template);
    json_decref(setup->kwargs);
    *setup = (struct chat_setup){0};
}

json_t *chat_message(const char *role, const char *content, size_t length)
{
    return json_pack("{s:s, s:s%}", "role", role, "content", content, length);
}

enum status chat_setup_check(const struct chat_setup *setup, struct error *err)
{
    if (setup->status != STATUS_OK) *err = setup->reason;
    return setup->status;
}

static const struct {
    const char *name;
    size_t offset; /* of a const json_t * in struct chat_input */
} fields[] = {{"messages", offsetof(struct chat_input, messages)},
              {"tools", offsetof(struct chat_input, tools)},
              {"documents", offsetof(struct chat_input, documents)},
              {"chat_template_kwargs", offsetof(struct chat_input, kwargs)}};

struct chat_input chat_setup_input(const json_t *object)
{
    struct chat_input input = {0};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        const json_t *value = json_object_get(object, fields[i].name);
        if (!json_is_null(value)) *(const json_t **)((char *)&input + fields[i].offset) = value;
    }
    return input;
}

bool chat_setup_has_field(const char *name)
{
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strcmp(name, fields[i].name) == 0) return true;
    return false;
}

/* The setup's kwargs with those of one input over them. */
static json_t *merge_kwargs(const struct chat_setup *setup, const json_t *own)
{
    json_t *merged = setup->kwargs ? json_copy(setup->kwargs) : json_object();
    if (merged && json_is_object(own)) json_object_update(merged, (json_t *)own);
    return merged;
}

enum status chat_setup_render(const struct chat_setup *setup, struct chat_input input, struct marked_text *out,
                              struct error *err)
{
    enum status status = chat_setup_check(setup, err);
    if (status == STATUS_OK) status = chat_input_check(&input, err);
    if (status != STATUS_OK) return status;
    json_t *kwargs = merge_kwargs(setup, input.kwargs);
    if (!kwargs) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for a conversation");
    input.kwargs = kwargs;
    input.allow_special = setup->allow_special;
    input.fit_form = true;
    status = chat_template_render(setup->template, &input, out, err);
    json_decref(kwargs);
    return status;
}

enum status chat_setup_encode(const struct chat_setup *setup, const struct tokenizer *t, struct chat_input input,
                              struct token_list *out, struct error *err)
{
    struct marked_text text = {0};
    enum status status = chat_setup_render(setup, input, &text, err);
    if (status == STATUS_OK) status = tokenizer_encode_marked(t, &text, out, err);
    marked_text_free(&text);
    return status;
}

size_t chat_setup_lasting(const struct chat_setup *setup, const struct tokenizer *t, struct chat_input input,
                          const struct token_list *prompt)
{
    struct token_list ids = {0};
    struct error ignored;
    size_t same = 0;
    input.add_generation_prompt = false;
    if (chat_setup_encode(setup, t, input, &ids, &ignored) == STATUS_OK)
        while (same < ids.count && same < prompt->count && ids.ids[same] == prompt->ids[same]) same++;
    token_list_free(&ids);
    return same;
}
