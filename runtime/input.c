#include "runtime/input.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/notice.h"
#include "runtime/prompts/prompt.h"

static enum status read_stdin(struct text *out, struct error *err)
{
    enum { PIECE = 1 << 16 };
    for (size_t n = 1; n > 0;) {
        if (!text_reserve(out, out->length + PIECE))
            return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for standard input");
        n = fread(out->data + out->length, 1, PIECE, stdin);
        out->length += n;
    }
    out->data[out->length] = '\0';
    return ferror(stdin) ? error_set(err, STATUS_IO, "standard input: %s", strerror(errno)) : STATUS_OK;
}

enum input_place input_place(const char *argument, const char **rest)
{
    *rest = argument;
    if (strcmp(argument, "-") == 0) return INPUT_STANDARD;
    if (argument[0] == '@') (*rest)++;
    return argument[0] == '@' && argument[1] != '@' ? INPUT_FILE : INPUT_TEXT;
}

enum status input_read_file(const char *name, struct text *out, struct error *err)
{
    if (!text_append(out, "", 0)) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the input");
    return strcmp(name, "-") == 0 ? read_stdin(out, err) : file_read_or_pipe(name, out, err);
}

enum status input_read_text(const char *argument, struct text *out, struct error *err)
{
    const char *rest;
    struct error reason;
    const enum input_place place = input_place(argument, &rest);
    if (place == INPUT_STANDARD) return input_read_file(rest, out, err);
    if (place == INPUT_TEXT && !text_append_string(out, rest))
        return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the input");
    const enum status status = place == INPUT_FILE ? input_read_file(rest, out, &reason) : STATUS_OK;
    if (status == STATUS_OK) return STATUS_OK;
    return error_set(err, status, "%s (@ begins a file's name; @@ begins a text that begins with @)", reason.text);
}

enum status input_clean(struct text *text, const char *source, struct error *err)
{
    static const char mark[] = "\xEF\xBB\xBF";
    if (text->length == 0) return STATUS_OK;
    const enum status status = prompt_check_text(text->data, text->length, err);
    if (status != STATUS_OK) return error_prefix(err, status, source);
    if (strncmp(text->data, mark, strlen(mark)) == 0) {
        text->length -= strlen(mark);
        memmove(text->data, text->data + strlen(mark), text->length + 1);
    }
    while (text->length > 0 && strchr("\r\n", text->data[text->length - 1])) text->data[--text->length] = '\0';
    return STATUS_OK;
}

enum status input_read_message(const char *argument, struct text *out, struct error *err)
{
    const char *name;
    const enum input_place place = input_place(argument, &name);
    *out = (struct text){0};
    const enum status status = input_read_text(argument, out, err);
    if (status != STATUS_OK) return status;
    if (place != INPUT_TEXT) return input_clean(out, place == INPUT_FILE ? name : "standard input", err);
    return prompt_check_text(out->data ? out->data : "", out->length, err);
}

void input_note_terminal(const char *command, const char *what)
{
    if (!isatty(STDIN_FILENO)) return;
    notice_printf(stderr, "quire %s: reading %s from the terminal until Ctrl-D\n", command, what);
}
