#include "runtime/chat/question.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/notice.h"
#include "runtime/input.h"
#include "runtime/line_reader.h"
#include "runtime/prompts/prompt.h"

static enum status out_of_memory(struct error *err)
{
    return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the question");
}

/* Says what is waited for, once, if it does not come and somebody may read that. */
static void wait_for_input(void)
{
    struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
    if (!isatty(STDERR_FILENO) || poll(&input, 1, 2000) != 0) return;
    notice_printf(stderr, "quire chat: waiting for the end of standard input, which goes below the question "
                          "(</dev/null: none)\n");
}

static enum status read_input(struct text *out, struct error *err)
{
    wait_for_input();
    for (;;) {
        if (!text_reserve(out, out->length + (1u << 16))) return out_of_memory(err);
        const ssize_t count = read(STDIN_FILENO, out->data + out->length, 1u << 16);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0 && errno == EBADF) return STATUS_OK; /* closed: there is no material */
        if (count < 0) return error_set(err, STATUS_IO, "standard input: cannot read: %s", strerror(errno));
        if (count == 0) break;
        out->length += (size_t)count;
        if (out->length > LINE_READER_MAX_LINE)
            return error_set(err, STATUS_INVALID, "standard input is longer than %u bytes", LINE_READER_MAX_LINE);
    }
    if (out->data) out->data[out->length] = '\0';
    return input_clean(out, "standard input", err);
}

bool question_add(struct text *question, const char *material, size_t length)
{
    return length == 0 || (text_append_string(question, "\n\n") && text_append(question, material, length));
}

enum status question_add_input(struct text *question, struct error *err)
{
    struct text material = {0};
    enum status status = read_input(&material, err);
    if (status == STATUS_OK && !question_add(question, material.data, material.length)) status = out_of_memory(err);
    text_free(&material);
    return status;
}
