#include "runtime/input.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

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

enum status input_read_all(const char *name, bool is_text, struct text *out, struct error *err)
{
    if (!text_append(out, "", 0)) return error_set(err, STATUS_OUT_OF_MEMORY, "out of memory for the input");
    if (strcmp(name, "-") == 0) return read_stdin(out, err);
    if (!is_text) return file_read_or_pipe(name, out, err);
    return text_append_string(out, name) ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of memory");
}
