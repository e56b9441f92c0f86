#include "runtime/chat/answer_view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "base/visible.h"
#include "runtime/chat/word_wrap.h"

static const char DIM[] = "\033[2m", NORMAL[] = "\033[0m", ERASE_LINE[] = "\r\033[K";
static const double READING_NOTICE_SECONDS = 0.5;
enum { USUAL_COLUMNS = 80, MAX_TAG = 16 };

/* Tags around the reasoning of chat models: of DeepSeek, Qwen and many others, of Seed-OSS, and of Magistral. */
static const struct tags {
    const char *open, *close;
} TAGS[] = {{"<think>", "</think>"}, {"<seed:think>", "</seed:think>"}, {"[THINK]", "[/THINK]"}};

#define NUM_TAGS (sizeof TAGS / sizeof TAGS[0])

enum part { PART_START, PART_REASONING, PART_ANSWER };

struct answer_view {
    FILE *stream;
    struct answer_view_options options;
    struct text out;       /* what one call shows */
    bool has_written;      /* raw bytes */
    double begun;          /* clock_seconds */
    int reading_percent;   /* that the notice shows; -1: there is no notice */
    struct word_wrap wrap; /* not raw */
    /* The reasoning, where it is not shown as other text: */
    enum part part;
    const char *closing; /* the tag that ends it */
    char tag[MAX_TAG];   /* [tag_length] read, and held back: it may be the beginning of a tag */
    size_t tag_length;
    bool skips_blank;     /* blanks and newlines beside a tag are left out */
    bool separates;       /* what follows the reasoning has not begun */
    bool has_reasoning;   /* some of it was shown */
    double reasons_since; /* clock_seconds */
    int32_t reasoning_tokens;
};

/* ---- start ---- */

static int window_columns(FILE *stream)
{
    struct winsize size;
    return ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

struct answer_view_options answer_view_options_for(FILE *stream, enum think_display think)
{
    const char *term = getenv("TERM"), *no_color = getenv("NO_COLOR");
    const bool is_terminal = isatty(fileno(stream)), knows = term && *term && strcmp(term, "dumb") != 0;
    return (struct answer_view_options){
        .columns = is_terminal ? USUAL_COLUMNS : 0,
        .follow_window = is_terminal,
        .colours = knows && !(no_color && *no_color),
        .cursor = knows,
        .think = think,
        .notices = knows && isatty(STDERR_FILENO) ? stderr : NULL,
        .notice_seconds = READING_NOTICE_SECONDS,
    };
}

const char *answer_view_open_reasoning(const char *prompt, size_t length)
{
    while (length > 0 && strchr(" \t\r\n", prompt[length - 1])) length--;
    for (size_t i = 0; i < NUM_TAGS; i++) {
        const size_t tag = strlen(TAGS[i].open);
        if (length >= tag && memcmp(prompt + length - tag, TAGS[i].open, tag) == 0) return TAGS[i].close;
    }
    return NULL;
}

/* The reasoning begins: the closing tag is looked for. */
static void begin_reasoning(struct answer_view *v, const char *closing)
{
    v->part = PART_REASONING;
    v->closing = closing;
    v->skips_blank = true;
    v->reasons_since = clock_seconds();
}

struct answer_view *answer_view_begin(FILE *stream, const struct answer_view_options *options)
{
    struct answer_view *v = calloc(1, sizeof *v);
    if (!v) return NULL;
    v->stream = stream;
    v->options = *options;
    v->begun = clock_seconds();
    v->reading_percent = -1;
    v->wrap.columns = options->columns;
    v->wrap.can_move = options->cursor;
    const bool looks_for_tags = options->think == THINK_FOLD || (options->think == THINK_DIM && options->colours);
    v->part = looks_for_tags ? PART_START : PART_ANSWER;
    if (looks_for_tags && options->reasoning_end) {
        begin_reasoning(v, options->reasoning_end);
        v->reasons_since = 0; /* not before the first piece */
    }
    return v;
}

/* ---- while the prompt is read ---- */

void answer_view_reading(struct answer_view *v, int32_t done, int32_t total)
{
    const int percent = total > 0 ? (int)(100.0 * done / total) : 0;
    if (!v->options.notices || percent == v->reading_percent || clock_seconds() - v->begun < v->options.notice_seconds)
        return;
    v->reading_percent = percent;
    fprintf(v->options.notices, "%sreading %d tokens... %d %%", ERASE_LINE, total, percent);
    fflush(v->options.notices);
}

static void clear_reading(struct answer_view *v)
{
    if (v->reading_percent < 0) return;
    v->reading_percent = -1;
    fputs(ERASE_LINE, v->options.notices);
    fflush(v->options.notices);
}

/* ---- the answer ---- */

/* Before the first character after a tag that is not blank. */
static bool begin_part(struct answer_view *v)
{
    bool ok = true;
    const bool dims = v->options.think == THINK_DIM;
    if (v->part == PART_REASONING && dims) ok = text_append_string(&v->out, DIM);
    /* An empty line between the reasoning and the answer. */
    if (v->separates && dims && v->wrap.column > 0) ok = word_wrap_add(&v->wrap, '\n', &v->out);
    if (v->separates && dims && v->has_reasoning) ok = ok && word_wrap_add(&v->wrap, '\n', &v->out);
    v->has_reasoning = v->part == PART_REASONING;
    v->skips_blank = v->separates = false;
    return ok;
}

static bool show(struct answer_view *v, uint32_t character)
{
    const bool is_blank = character == ' ' || character == '\n' || character == '\t' || character == '\r';
    if (v->skips_blank && is_blank) return true;
    if (v->skips_blank && !begin_part(v)) return false;
    if (v->part == PART_REASONING && v->options.think == THINK_FOLD) return true;
    return word_wrap_add(&v->wrap, visible_character(character), &v->out);
}

/* The line that stands for folded reasoning: while it lasts, and then for good. */
static bool show_fold(struct answer_view *v, bool is_over)
{
    const bool dim = v->options.colours;
    const char *erase = v->options.cursor ? ERASE_LINE : "", *plural = v->reasoning_tokens == 1 ? "" : "s";
    if (!is_over && !v->options.cursor) return true;
    if (!text_append_string(&v->out, erase) || (dim && !text_append_string(&v->out, DIM))) return false;
    const bool ok = is_over ? text_printf(&v->out, "(thought for %.1f s, %d token%s)",
                                          clock_seconds() - v->reasons_since, v->reasoning_tokens, plural)
                            : text_printf(&v->out, "(thinking: %d token%s)", v->reasoning_tokens, plural);
    return ok && (!dim || text_append_string(&v->out, NORMAL)) && (!is_over || text_append(&v->out, "\n", 1));
}

/* The tag that ends the reasoning was read, or the answer has ended. */
static bool end_reasoning(struct answer_view *v)
{
    const bool is_empty = v->skips_blank;
    v->part = PART_ANSWER;
    v->skips_blank = v->separates = true;
    if (v->options.think == THINK_FOLD && !is_empty) return show_fold(v, true);
    if (v->options.think == THINK_FOLD) return !v->options.cursor || text_append_string(&v->out, ERASE_LINE);
    return is_empty || (word_wrap_flush(&v->wrap, &v->out) && text_append_string(&v->out, NORMAL));
}

/* Is what is held back the beginning of this tag, or the whole of it? */
static bool matches(const struct answer_view *v, const char *tag, bool *whole)
{
    *whole = strlen(tag) == v->tag_length;
    return strncmp(tag, v->tag, v->tag_length) == 0;
}

/* Is what is held back the beginning of any tag that this part of the answer may have next? *closing is the one that
 * ends the reasoning. */
static bool matches_any(const struct answer_view *v, bool *whole, const char **closing)
{
    *closing = v->closing;
    if (v->part == PART_REASONING) return matches(v, v->closing, whole);
    for (size_t i = 0; i < NUM_TAGS; i++) {
        *closing = TAGS[i].close;
        if (matches(v, TAGS[i].open, whole)) return true;
    }
    return false;
}

/* What was held back is no tag. */
static bool release_tag(struct answer_view *v)
{
    const size_t length = v->tag_length;
    bool ok = true;
    v->tag_length = 0;
    if (length > 0 && v->part == PART_START) v->part = PART_ANSWER;
    for (size_t i = 0; ok && i < length; i++) ok = show(v, (unsigned char)v->tag[i]);
    return ok;
}

static bool add_character(struct answer_view *v, uint32_t character)
{
    /* The first try goes on with what is held back, the second begins anew. */
    for (int tries = 0; tries < 2 && v->part != PART_ANSWER && character < 0x80; tries++) {
        bool whole;
        const char *closing;
        v->tag[v->tag_length++] = (char)character;
        if (matches_any(v, &whole, &closing)) {
            if (!whole) return true;
            v->tag_length = 0;
            if (v->part == PART_REASONING) return end_reasoning(v);
            begin_reasoning(v, closing);
            return true;
        }
        v->tag_length--;
        if (!release_tag(v)) return false;
    }
    if (!release_tag(v)) return false;
    if (v->part == PART_START && character == '\n') return true; /* before a tag, or before anything */
    if (v->part == PART_START) v->part = PART_ANSWER;
    return show(v, character);
}

/* Writes what the call shows. */
static bool write_out(struct answer_view *v, bool ok)
{
    if (!ok) {
        errno = ENOMEM;
        return false;
    }
    ok = fwrite(v->out.data ? v->out.data : "", 1, v->out.length, v->stream) == v->out.length;
    text_clear(&v->out);
    return fflush(v->stream) == 0 && ok;
}

static void follow_window(struct answer_view *v)
{
    const int columns = v->options.follow_window ? window_columns(v->stream) : 0;
    if (columns <= 0) return;
    v->wrap.columns = columns;
    if (v->wrap.column > columns) v->wrap.column = columns;
}

bool answer_view_add(struct answer_view *v, const char *text, size_t length, int32_t tokens)
{
    clear_reading(v);
    if (v->options.columns == 0) {
        v->has_written = v->has_written || length > 0;
        return fwrite(text, 1, length, v->stream) == length && fflush(v->stream) == 0;
    }
    follow_window(v);
    if (v->part == PART_REASONING && v->reasons_since == 0) v->reasons_since = clock_seconds();
    if (v->part != PART_ANSWER) v->reasoning_tokens += tokens;
    bool ok = true;
    for (size_t i = 0; ok && i < length;) {
        uint32_t character;
        i += utf8_decode(text + i, length - i, &character);
        ok = add_character(v, character);
    }
    if (ok && v->part == PART_REASONING && v->options.think == THINK_FOLD) ok = show_fold(v, false);
    return write_out(v, ok);
}

static bool end_shown(struct answer_view *v)
{
    bool ok = release_tag(v);
    if (ok && v->part == PART_REASONING) ok = end_reasoning(v);
    ok = ok && word_wrap_flush(&v->wrap, &v->out) && (v->wrap.column == 0 || text_append(&v->out, "\n", 1));
    return write_out(v, ok);
}

bool answer_view_end(struct answer_view *v, bool failed)
{
    if (!v) return true;
    bool ok = true;
    clear_reading(v);
    if (v->options.columns > 0)
        ok = end_shown(v);
    else if (!failed || v->has_written)
        ok = putc('\n', v->stream) != EOF && fflush(v->stream) == 0;
    const int error = errno;
    text_free(&v->out);
    text_free(&v->wrap.word);
    free(v);
    errno = error;
    return ok;
}
