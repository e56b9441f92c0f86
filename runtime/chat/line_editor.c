#include "runtime/chat/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <unistd.h>
#include <wchar.h>

#include "base/array.h"
#include "runtime/chat/completion.h"
#include "runtime/chat/history.h"
#include "runtime/chat/message.h"

static const char PASTE_ON[] = "\033[?2004h", PASTE_OFF[] = "\033[?2004l";
static const wchar_t PASTE_END[] = L"\033[201~";
static const char RESUME_KEY[] = "\033[9999~"; /* no terminal's */
enum { PASTE_END_LENGTH = 6, CTRL_C = 3 };

/* Why el_gets has returned. */
enum leaving { LEAVING_TYPED, LEAVING_CANCELLED, LEAVING_SUSPENDED };

struct line_editor {
    struct line_editor_options options;
    EditLine *edit;
    FILE *screen;
    char prompt[16], further_prompt[5]; /* libedit wants them writable */
    bool marks_pastes;                  /* it has been asked to */
    bool can_paste;                     /* the terminal marks pastes, as far as TERM tells */
    struct termios before;              /* how the terminal was */
    struct message_history history;
    int position;         /* of the history's message that is edited, from 1; 0: a new one, the draft */
    struct text draft;    /* while position is not 0 */
    size_t search_length; /* bytes that the search by prefix looks for: the beginning of what is edited */
    struct message message;
    bool is_further; /* a further line of the message is read */
    enum leaving leaving;
    struct text resumed; /* what was typed before Ctrl-Z */
    int resumed_cursor;  /* characters from its end */
};

/* libedit's callbacks get the EditLine; the editor is its client data. */
static struct line_editor *owner(EditLine *edit)
{
    void *editor = NULL;
    el_get(edit, EL_CLIENTDATA, &editor);
    return editor;
}

static char *give_prompt(EditLine *edit)
{
    struct line_editor *e = owner(edit);
    return e->is_further ? e->further_prompt : e->prompt;
}

/* ---- what is edited ---- */

static void clear_edited(EditLine *edit)
{
    const LineInfoW *line = el_wline(edit);
    el_cursor(edit, (int)(line->lastchar - line->cursor));
    line = el_wline(edit);
    el_deletestr(edit, (int)(line->lastchar - line->buffer));
}

static bool keep_edited(const struct line_editor *e, struct text *text)
{
    const LineInfo *line = el_line(e->edit);
    text_clear(text);
    return text_append(text, line->buffer, (size_t)(line->lastchar - line->buffer));
}

static void replace_edited(EditLine *edit, const char *text)
{
    clear_edited(edit);
    if (*text) el_insertstr(edit, text);
}

/* Ends el_gets, as Return does: the cursor moves below what was typed. */
static unsigned char leave_line(EditLine *edit, enum leaving why)
{
    owner(edit)->leaving = why;
    el_push(edit, "\r");
    return CC_NORM;
}

/* Ctrl-C: what was typed stays on the screen, and a new message begins below it. */
static unsigned char cancel_message(EditLine *edit, int key)
{
    (void)key;
    return leave_line(edit, LEAVING_CANCELLED);
}

/* Ctrl-Z: what was typed is edited further when the process continues. */
static unsigned char suspend(EditLine *edit, int key)
{
    (void)key;
    struct line_editor *e = owner(edit);
    const LineInfoW *line = el_wline(edit);
    e->resumed_cursor = (int)(line->lastchar - line->cursor);
    return keep_edited(e, &e->resumed) ? leave_line(edit, LEAVING_SUSPENDED) : CC_ERROR;
}

static unsigned char resume(EditLine *edit, int key)
{
    (void)key;
    struct line_editor *e = owner(edit);
    replace_edited(edit, e->resumed.data ? e->resumed.data : "");
    el_cursor(edit, -e->resumed_cursor);
    return CC_REFRESH;
}

static unsigned char insert_newline(EditLine *edit, int key)
{
    (void)key;
    return el_winsertstr(edit, L"\n") == 0 ? CC_REFRESH : CC_ERROR;
}

/* Reads a paste to its end; false if memory ran out. Ctrl-C ends it, too, in case the terminal does not. */
static bool read_paste(EditLine *edit, wchar_t **text, size_t *length)
{
    size_t capacity = 0, n = 0;
    wchar_t key;
    *text = NULL;
    while (el_wgetc(edit, &key) > 0 && key != CTRL_C) {
        if (!array_reserve(text, &capacity, n + 2, sizeof **text)) return false;
        if (key == L'\n' && n > 0 && (*text)[n - 1] == L'\r') continue; /* \r\n is one end of a line */
        if (key) (*text)[n++] = key;
        if (n < PASTE_END_LENGTH || wmemcmp(*text + n - PASTE_END_LENGTH, PASTE_END, PASTE_END_LENGTH) != 0) continue;
        n -= PASTE_END_LENGTH;
        break;
    }
    *length = n;
    return true;
}

/* Pasted text goes into the message as it is, whatever keys it spells, but for the newline at its end. */
static unsigned char insert_paste(EditLine *edit, int key)
{
    (void)key;
    wchar_t *text;
    size_t length;
    bool ok = read_paste(edit, &text, &length);
    if (ok && length > 0) {
        for (size_t i = 0; i < length; i++)
            if (text[i] == L'\r') text[i] = L'\n';
        if (text[length - 1] == L'\n') length--;
        text[length] = L'\0';
        if (length > 0) ok = el_winsertstr(edit, text) == 0;
    }
    free(text);
    return ok ? CC_REFRESH : CC_ERROR;
}

/* ---- history ---- */

static unsigned char show_message(struct line_editor *e, int position)
{
    const char *text = position > 0 ? history_get(&e->history, position) : e->draft.data ? e->draft.data : "";
    if (!text) return CC_ERROR;
    if (e->position == 0 && !keep_edited(e, &e->draft)) return CC_ERROR;
    e->position = position;
    replace_edited(e->edit, text);
    return CC_REFRESH;
}

static unsigned char step_in_history(EditLine *edit, int step)
{
    struct line_editor *e = owner(edit);
    return e->position + step < 0 ? CC_ERROR : show_message(e, e->position + step);
}

/* Moves to the same column of the line above (-1) or below (1); false if there is none. */
static bool move_between_lines(EditLine *edit, int direction)
{
    const LineInfoW *line = el_wline(edit);
    const wchar_t *start = line->cursor, *target, *end;
    while (start > line->buffer && start[-1] != L'\n') start--;
    if (direction < 0) {
        if (start == line->buffer) return false;
        end = target = start - 1;
        while (target > line->buffer && target[-1] != L'\n') target--;
    } else {
        target = wmemchr(line->cursor, L'\n', (size_t)(line->lastchar - line->cursor));
        if (!target) return false;
        target++;
        end = wmemchr(target, L'\n', (size_t)(line->lastchar - target));
        if (!end) end = line->lastchar;
    }
    target = end - target < line->cursor - start ? end : target + (line->cursor - start);
    el_cursor(edit, (int)(target - line->cursor));
    return true;
}

static unsigned char go_up(EditLine *edit, int key)
{
    (void)key;
    return move_between_lines(edit, -1) ? CC_CURSOR : step_in_history(edit, 1);
}

static unsigned char go_down(EditLine *edit, int key)
{
    (void)key;
    return move_between_lines(edit, 1) ? CC_CURSOR : step_in_history(edit, -1);
}

/* Bytes that the messages must begin with: what stands before the cursor, or, if this goes on with a search, what that
 * one looked for. */
static size_t prefix_length(const struct line_editor *e, const LineInfo *line)
{
    const size_t length = (size_t)(line->lastchar - line->buffer);
    const char *shown = e->position > 0 ? history_get(&e->history, e->position) : NULL;
    const bool goes_on = shown && line->cursor == line->lastchar && strlen(shown) == length &&
                         memcmp(shown, line->buffer, length) == 0 && e->search_length <= length;
    return goes_on ? e->search_length : (size_t)(line->cursor - line->buffer);
}

/* PageUp and PageDown: the next message that begins as the one that is edited. */
static unsigned char search_prefix(EditLine *edit, int step)
{
    struct line_editor *e = owner(edit);
    const LineInfo *line = el_line(edit);
    const char *found;
    e->search_length = prefix_length(e, line);
    int position = e->position + step;
    while (position > 0 && (found = history_get(&e->history, position)) != NULL &&
           strncmp(found, line->buffer, e->search_length) != 0)
        position += step;
    return position < 0 ? CC_ERROR : show_message(e, position);
}

static unsigned char search_older(EditLine *edit, int key)
{
    (void)key;
    return search_prefix(edit, 1);
}

static unsigned char search_newer(EditLine *edit, int key)
{
    (void)key;
    return search_prefix(edit, -1);
}

/* ---- completion ---- */

static int characters(const char *text, size_t length)
{
    int count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)text[i] & 0xC0) != 0x80;
    return count;
}

/* Replaces the word before the cursor by what all candidates begin with. */
static bool insert_common(EditLine *edit, const struct line_candidates *c, const char *word, size_t length)
{
    const size_t common = line_candidates_common(c);
    const bool complete = c->count == 1 && common > 0 && c->words[0][common - 1] != '/';
    struct text text = {0};
    if (common < length || (common == length && !complete)) return false;
    if (text_append(&text, c->words[0], common) && (!complete || text_append(&text, " ", 1))) {
        el_deletestr(edit, characters(word, length));
        el_insertstr(edit, text.data);
    }
    text_free(&text);
    return true;
}

static unsigned char complete_word(EditLine *edit, int key)
{
    (void)key;
    struct line_editor *e = owner(edit);
    struct line_candidates c = {0};
    unsigned char result = CC_ERROR;
    if (!e->options.complete) return CC_ERROR;
    const LineInfo *line = el_line(edit);
    const size_t length = (size_t)(line->cursor - line->buffer);
    const size_t start = e->options.complete(e->options.user, line->buffer, length, &c);
    if (c.count > 0 && insert_common(edit, &c, line->buffer + start, length - start)) {
        result = CC_REFRESH;
    } else if (c.count > 1) {
        int width = 80;
        el_get(edit, EL_GETTC, "co", &width, NULL);
        putc('\n', e->screen);
        line_candidates_print(&c, e->screen, width);
        result = CC_REDISPLAY;
    }
    line_candidates_free(&c);
    return result;
}

/* ---- the terminal ---- */

static void mark_pastes(struct line_editor *e, bool on)
{
    if (!e->can_paste || e->marks_pastes == on) return;
    e->marks_pastes = on;
    fputs(on ? PASTE_ON : PASTE_OFF, e->screen);
    fflush(e->screen);
}

/* libedit decodes characters as the locale says; in the C locale it refuses UTF-8. */
static void set_character_set(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

/* While the answer is written: keys wait unseen, but Ctrl-C and Ctrl-Z are signals. */
static void hide_keys(const struct line_editor *e)
{
    struct termios quiet = e->before;
    quiet.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    quiet.c_cc[VMIN] = 1;
    quiet.c_cc[VTIME] = 0;
    tcsetattr(STDIN_FILENO, TCSADRAIN, &quiet);
}

void line_editor_release(struct line_editor *e)
{
    tcsetattr(STDIN_FILENO, TCSADRAIN, &e->before);
    mark_pastes(e, false);
}

/* ---- start and end ---- */

struct command {
    const wchar_t *name, *help; /* wide, because libedit keeps pointers to them; narrow ones it copies, and leaks */
    unsigned char (*function)(EditLine *, int);
};

static const struct command COMMANDS[] = {
    {L"quire-cancel-message", L"Drop what was typed", cancel_message},
    {L"quire-newline", L"Begin a further line of the message", insert_newline},
    {L"quire-paste", L"Insert what the terminal pastes", insert_paste},
    {L"quire-up", L"Line above, or older message", go_up},
    {L"quire-down", L"Line below, or newer message", go_down},
    {L"quire-search-older", L"Older message that begins as this one", search_older},
    {L"quire-search-newer", L"Newer message that begins as this one", search_newer},
    {L"quire-complete", L"Complete the word", complete_word},
    {L"quire-suspend", L"Stop the process", suspend},
    {L"quire-resume", L"Go on with what was typed before it stopped", resume},
};

struct binding {
    const char *key, *command;
};

static const struct binding BINDINGS[] = {
    {"^P", "quire-up"},
    {"\\e[A", "quire-up"},
    {"\\eOA", "quire-up"},
    {"^N", "quire-down"},
    {"\\e[B", "quire-down"},
    {"\\eOB", "quire-down"},
    {"\\e[5~", "quire-search-older"},
    {"\\e[6~", "quire-search-newer"},
    {"\\e[1;5C", "em-next-word"}, /* Ctrl and Alt with the arrows */
    {"\\e[1;5D", "ed-prev-word"},
    {"\\e[1;3C", "em-next-word"},
    {"\\e[1;3D", "ed-prev-word"},
    {"\\e[H", "ed-move-to-beg"},
    {"\\eOH", "ed-move-to-beg"},
    {"\\e[1~", "ed-move-to-beg"},
    {"\\e[F", "ed-move-to-end"},
    {"\\eOF", "ed-move-to-end"},
    {"\\e[4~", "ed-move-to-end"},
    {"\\e[3~", "ed-delete-next-char"},
    {"\\e^J", "quire-newline"},
    {"\\e^M", "quire-newline"},     /* Alt-Return */
    {"\\e[13;2u", "quire-newline"}, /* Shift-Return, where the terminal tells it from Return */
    {"\\e[27;2;13~", "quire-newline"},
    {"^R", "em-inc-search-prev"},
    {"^I", "quire-complete"},
};

/* Bound after ~/.editrc was read: without them the editor does not do what its header says. While editing, Ctrl-C and
 * Ctrl-Z are keys, not signals, and \r comes as it is, so that \r\n in a paste is one end of a line. */
static const struct binding FIXED_BINDINGS[] = {
    {"\\e[200~", "quire-paste"}, {"^C", "quire-cancel-message"}, {"^Z", "quire-suspend"}, {RESUME_KEY, "quire-resume"}};

#define LENGTH(array) (sizeof(array) / sizeof(array)[0])

static void bind_keys(EditLine *edit)
{
    for (size_t i = 0; i < LENGTH(COMMANDS); i++)
        el_wset(edit, EL_ADDFN, COMMANDS[i].name, COMMANDS[i].help, COMMANDS[i].function);
    for (size_t i = 0; i < LENGTH(BINDINGS); i++) el_set(edit, EL_BIND, BINDINGS[i].key, BINDINGS[i].command, NULL);
    el_source(edit, NULL); /* ~/.editrc */
    for (size_t i = 0; i < LENGTH(FIXED_BINDINGS); i++)
        el_set(edit, EL_BIND, FIXED_BINDINGS[i].key, FIXED_BINDINGS[i].command, NULL);
    el_set(edit, EL_SETTY, "-d", "-isig", "-icrnl", "-inlcr", NULL);
}

struct line_editor *line_editor_open(const struct line_editor_options *options)
{
    struct line_editor *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    set_character_set();
    e->options = *options;
    snprintf(e->prompt, sizeof e->prompt, "%s", options->prompt);
    snprintf(e->further_prompt, sizeof e->further_prompt, "... ");
    e->screen = isatty(STDERR_FILENO) ? stderr : stdout;
    const char *term = getenv("TERM");
    e->can_paste = term && *term && strcmp(term, "dumb") != 0;
    if (tcgetattr(STDIN_FILENO, &e->before) == 0) e->edit = el_init("quire", stdin, e->screen, stderr);
    if (!e->edit) {
        free(e);
        return NULL;
    }
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_PROMPT, give_prompt);
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_SIGNAL, 1); /* the window's size, and being stopped */
    history_open(&e->history, options->history);
    if (e->history.entries) el_set(e->edit, EL_HIST, history, e->history.entries);
    bind_keys(e->edit);
    return e;
}

void line_editor_close(struct line_editor *e)
{
    if (!e) return;
    line_editor_release(e);
    el_end(e->edit);
    history_close(&e->history);
    text_free(&e->draft);
    text_free(&e->resumed);
    text_free(&e->message.text);
    free(e);
}

/* ---- reading ---- */

static bool is_blank(const char *line, size_t length)
{
    return strspn(line, " \t\r\n") >= length;
}

/* From hide_keys's mode straight to libedit's: what is typed meanwhile is neither shown nor lost. */
static void take_terminal(struct line_editor *e)
{
    mark_pastes(e, true);
    el_set(e->edit, EL_PREP_TERM, 1); /* before the prompt appears: a key typed then is read in the right mode */
}

/* Reads up to Return. NULL at the end of the input. */
static const char *read_line(struct line_editor *e, size_t *length)
{
    for (;;) {
        int count = 0;
        e->position = 0;
        e->leaving = LEAVING_TYPED;
        take_terminal(e);
        const char *line = el_gets(e->edit, &count);
        if (!line || count <= 0) return NULL;
        *length = (size_t)count - (line[count - 1] == '\n');
        if (e->leaving != LEAVING_SUSPENDED) return line;
        line_editor_release(e);
        raise(SIGTSTP);
        el_push(e->edit, RESUME_KEY);
    }
}

/* Reads the lines of a message. False at the end of the input, or if memory ran out. Ctrl-D on a further line that is
 * empty ends the message. */
static bool read_message(struct line_editor *e)
{
    bool open = true;
    e->is_further = false;
    message_clear(&e->message);
    while (open) {
        size_t length;
        const char *line = read_line(e, &length);
        if (!line) return e->is_further;
        if (e->leaving == LEAVING_CANCELLED) return true;
        if (!message_add(&e->message, line, length, &open)) return false;
        e->is_further = true;
    }
    return true;
}

const char *line_editor_read(struct line_editor *e, size_t *length)
{
    bool ok;
    while ((ok = read_message(e)) && e->leaving == LEAVING_CANCELLED) {
        ok = !e->options.leave || !e->options.leave(e->options.user);
        if (!ok) break;
        fprintf(e->screen, "%s\n", e->options.interrupt_hint);
    }
    hide_keys(e);
    if (!ok) return NULL;
    const struct text *text = &e->message.text;
    *length = text->length;
    if (!text->data) return "";
    if (!is_blank(text->data, text->length)) history_add(&e->history, text->data);
    return text->data;
}
