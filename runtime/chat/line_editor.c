#include "runtime/chat/line_editor.h"

#include <errno.h>
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <wchar.h>

#include "base/array.h"

enum { HISTORY_LINES = 1000 };

struct line_editor {
    EditLine *edit;
    History *history;
    FILE *screen;
    char prompt[16]; /* libedit wants it writable */
    const char *interrupt_hint;
    struct text history_path; /* empty: kept for the run only */
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
    return owner(edit)->prompt;
}

/* Ctrl-C clears the line and shows the hint; editing continues. */
static unsigned char clear_line(EditLine *edit, int key)
{
    (void)key;
    const LineInfoW *line = el_wline(edit);
    el_cursor(edit, (int)(line->lastchar - line->cursor));
    line = el_wline(edit);
    el_deletestr(edit, (int)(line->lastchar - line->buffer));
    fprintf(owner(edit)->screen, "\n%s\n", owner(edit)->interrupt_hint);
    el_set(edit, EL_REFRESH);
    return CC_NORM;
}

/* Ctrl-Z: libedit's handler of the signal restores the terminal, and sets it up again when the process continues. */
static unsigned char suspend(EditLine *edit, int key)
{
    (void)edit, (void)key;
    raise(SIGTSTP);
    return CC_NORM;
}

/* Creates the folders above the file that do not exist. */
static bool make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        bool ok = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!ok) return false;
    }
    return true;
}

static void find_history_file(struct text *path)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool ok = false;
    if (state && *state == '/')
        ok = text_printf(path, "%s/quire/history", state);
    else if (home && *home == '/')
        ok = text_printf(path, "%s/.local/state/quire/history", home);
    if (!ok || !make_folders(path->data)) text_clear(path);
}

static void open_history(struct line_editor *e)
{
    HistEvent event;
    e->history = history_init();
    if (!e->history) return;
    history(e->history, &event, H_SETSIZE, HISTORY_LINES);
    history(e->history, &event, H_SETUNIQUE, 1);
    find_history_file(&e->history_path);
    if (e->history_path.length) history(e->history, &event, H_LOAD, e->history_path.data);
    el_set(e->edit, EL_HIST, history, e->history);
}

/* libedit decodes characters as the locale says; in the C locale it refuses UTF-8. */
static void set_character_set(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
}

void line_candidates_add(struct line_candidates *c, const char *word)
{
    (void)c, (void)word;
}

void line_candidates_add_files(struct line_candidates *c, const char *before, const char *prefix, size_t length)
{
    (void)c, (void)before, (void)prefix, (void)length;
}

void line_editor_release(struct line_editor *e)
{
    (void)e;
}

struct line_editor *line_editor_open(const struct line_editor_options *options)
{
    struct line_editor *e = calloc(1, sizeof *e);
    if (!e) return NULL;
    set_character_set();
    snprintf(e->prompt, sizeof e->prompt, "%s", options->prompt);
    e->interrupt_hint = options->interrupt_hint;
    e->screen = isatty(STDERR_FILENO) ? stderr : stdout;
    e->edit = el_init("quire", stdin, e->screen, stderr);
    if (!e->edit) {
        line_editor_close(e);
        return NULL;
    }
    el_set(e->edit, EL_CLIENTDATA, e);
    el_set(e->edit, EL_PROMPT, give_prompt);
    el_set(e->edit, EL_EDITOR, "emacs");
    el_set(e->edit, EL_SIGNAL, 1); /* the window's size, and being stopped */
    open_history(e);
    /* Wide strings, because libedit keeps pointers to them; narrow ones it copies, and leaks the copies. */
    el_wset(e->edit, EL_ADDFN, L"quire-clear-line", L"Clear the line", clear_line);
    el_wset(e->edit, EL_ADDFN, L"quire-suspend", L"Stop the process", suspend);
    el_source(e->edit, NULL); /* ~/.editrc */
    /* While editing, Ctrl-C and Ctrl-Z are keys, not signals. */
    el_set(e->edit, EL_SETTY, "-d", "-isig", NULL);
    el_set(e->edit, EL_BIND, "^C", "quire-clear-line", NULL);
    el_set(e->edit, EL_BIND, "^Z", "quire-suspend", NULL);
    el_set(e->edit, EL_BIND, "^R", "em-inc-search-prev", NULL);
    return e;
}

void line_editor_close(struct line_editor *e)
{
    if (!e) return;
    if (e->edit) el_end(e->edit);
    if (e->history) history_end(e->history);
    text_free(&e->history_path);
    free(e);
}

static bool is_blank(const char *line, size_t length)
{
    return strspn(line, " \t\r\n") >= length;
}

const char *line_editor_read(struct line_editor *e, size_t *length)
{
    int count = 0;
    el_set(e->edit, EL_PREP_TERM, 1); /* before the prompt appears: a key typed then is read in the right mode */
    const char *line = el_gets(e->edit, &count);
    if (!line || count <= 0) return NULL;
    size_t n = (size_t)count;
    HistEvent event;
    if (e->history && !is_blank(line, n)) {
        history(e->history, &event, H_ENTER, line);
        /* Saved now, because a closed terminal kills the process. */
        if (e->history_path.length) history(e->history, &event, H_SAVE, e->history_path.data);
    }
    while (n > 0 && (line[n - 1] == '\n' || line[n - 1] == '\r')) n--;
    *length = n;
    return line;
}
