#include "runtime/prompt_line.h"

#include <string.h>

#include "base/json.h"

enum status prompt_read(const struct prompt_rules *rules, enum line_result kind, bool is_object, const char *line,
                        size_t length, struct prompt *out, struct error *err)
{
    const bool no_object = kind == LINE_READY && is_object && !prompt_line_is_object(line, length);
    if (kind == LINE_READY && !no_object) return prompt_parse(rules, line, length, out, err);
    *out = (struct prompt){.params = sampling_params_default()};
    if (no_object && prompt_check_text(line, length, err) != STATUS_OK) return STATUS_INVALID;
    if (no_object)
        return error_set(err, STATUS_INVALID,
                         "expected a JSON object {...}, as the file's name or a line before says; --format text takes "
                         "every line as a text");
    return error_set(err, STATUS_INVALID, "the line is longer than %u bytes", LINE_READER_MAX_LINE);
}

/* ---- warnings ---- */

/* The model's name is a path or ORG/NAME; its last part is as good. */
static bool is_named(const char *model, const char *name)
{
    const char *slash = strrchr(model, '/');
    return strcmp(model, name) == 0 || (slash && strcmp(slash + 1, name) == 0);
}

bool prompt_warning(struct prompt_warnings *said, const struct prompt_rules *rules, const struct prompt *p,
                    struct error *sentence)
{
    const char *model = json_string_value(p->openai.model);
    if (!said->said_text && p->is_text && rules->warn_of_text && rules->chat.template && !p->openai.kind) {
        said->said_text = true;
        error_set(sentence, STATUS_INVALID,
                  "the model is a chat model, but a prompt is plain text, which it goes on with as it stands; --chat "
                  "makes each text a question, and --no-chat leaves this warning out");
        return true;
    }
    if (!said->said_model && model && rules->model_name && !is_named(rules->model_name, model)) {
        said->said_model = true;
        error_set(sentence, STATUS_INVALID, "a line names the model \"%s\", but all lines are answered by %s",
                  show_string(model).text, rules->model_name);
        return true;
    }
    return false;
}
