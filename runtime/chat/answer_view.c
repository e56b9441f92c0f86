#include "runtime/chat/answer_view.h"

#include <stdlib.h>

#include "base/visible.h"

struct answer_view {
    FILE *stream;
};

struct answer_view_options answer_view_options_for(FILE *stream, enum think_display think)
{
    (void)stream;
    return (struct answer_view_options){.think = think};
}

bool answer_view_opens_reasoning(const char *prompt, size_t length)
{
    (void)prompt, (void)length;
    return false;
}

struct answer_view *answer_view_begin(FILE *stream, const struct answer_view_options *options)
{
    (void)options;
    struct answer_view *v = calloc(1, sizeof *v);
    if (v) v->stream = stream;
    return v;
}

void answer_view_reading(struct answer_view *v, int32_t done, int32_t total)
{
    (void)v, (void)done, (void)total;
}

bool answer_view_add(struct answer_view *v, const char *text, size_t length, int32_t tokens)
{
    (void)tokens;
    return visible_write(v->stream, text, length) && fflush(v->stream) == 0;
}

bool answer_view_end(struct answer_view *v, bool failed)
{
    if (!v) return true;
    const bool ok = failed || (putc('\n', v->stream) != EOF && fflush(v->stream) == 0);
    free(v);
    return ok;
}
