#include "runtime/chat/chat_commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"
#include "base/notice.h"
#include "base/visible.h"
#include "runtime/chat/conversation_file.h"
#include "runtime/chat/external_editor.h"
#include "runtime/chat/settings.h"
#include "runtime/options/command.h"
#include "runtime/input.h"

/* ---- the conversation ---- */

static void fail(struct session *s, enum status status, struct error *err)
{
    if (status != STATUS_OK) session_fail(s, status == STATUS_OUT_OF_MEMORY ? status : STATUS_INVALID, err);
}

/* "2 turns, 153 of 2048 tokens" */
static void print_length(const struct session *s)
{
    const struct conversation *c = session_conversation(s);
    const int32_t turns = conversation_turns(c);
    fprintf(stderr, "%d turn%s, %zu of %d tokens", turns, plural(turns), conversation_tokens(c),
            engine_info(s->engine)->limits->max_model_len);
}

/* The beginning of a text, on one line. */
static void print_beginning(const char *text, size_t length)
{
    enum { MOST = 60 };
    struct text line = {0};
    size_t end = 0;
    while (end < length && text[end] != '\n' && (end < MOST || ((unsigned char)text[end] & 0xC0) == 0x80)) end++;
    if (text_append(&line, text, end) && (end == length || text_append_string(&line, "...")))
        visible_printf(stderr, "%s", line.data ? line.data : "");
    text_free(&line);
}

static bool has_question(const struct session *s)
{
    size_t length;
    if (conversation_last_question(session_conversation(s), &length)) return true;
    session_say(s, "there is no question yet");
    return false;
}

static void run_system(struct session *s, char *argument)
{
    struct conversation *c = session_conversation(s);
    struct text text = {0};
    struct error err;
    size_t length;
    if (!*argument) {
        const char *system = conversation_system(c, &length);
        if (system)
            visible_printf(stderr, "%s\n", system);
        else
            session_say(s, "there is no system message; /system TEXT sets one");
        return;
    }
    enum status status = STATUS_OK;
    if (strcmp(argument, "-") == 0) { /* what is typed are questions */
        session_say(s, "/system takes a text, or @FILE");
        return;
    }
    if (strcmp(argument, "\"\"") != 0) status = input_read_message(argument, &text, &err);
    if (status == STATUS_OK) status = conversation_set_system(c, text.data, text.length, &err);
    fail(s, status, &err);
    if (status == STATUS_OK && conversation_turns(c))
        session_say(s, "the system message is %s; with the next question the conversation is computed again",
                    text.length ? "set" : "removed");
    else if (status == STATUS_OK)
        session_say(s, "the system message is %s", text.length ? "set" : "removed");
    text_free(&text);
}

static void run_clear(struct session *s, char *argument)
{
    (void)argument;
    size_t length;
    conversation_clear(session_conversation(s));
    branches_current(&s->branches)->warned = false;
    session_say(s, conversation_system(session_conversation(s), &length)
                       ? "a new conversation with the same system message"
                       : "a new conversation");
}

static void run_retry(struct session *s, char *argument)
{
    (void)argument;
    if (!has_question(s)) return;
    if (s->params.temperature == 0) session_say(s, "temperature is 0: the answer will be the same");
    session_retry(s);
}

static void run_undo(struct session *s, char *argument)
{
    (void)argument;
    size_t length;
    const char *question = conversation_last_question(session_conversation(s), &length);
    if (!has_question(s)) return;
    fputs("(taken back: ", stderr);
    print_beginning(question, length);
    conversation_undo(session_conversation(s));
    branches_current(&s->branches)->warned = false;
    fputs("; ", stderr);
    print_length(s);
    fputs(")\n", stderr);
}

/* Asks the text in place of the last question if `replace`; if that fails, the last turn stays. */
static void ask_edited(struct session *s, const struct text *text, bool replace)
{
    struct conversation *c = session_conversation(s);
    visible_printf(stderr, "> %s\n", text->data);
    json_t *before = json_copy(c->messages);
    if (!before) return;
    if (replace) conversation_undo(c);
    if (session_ask(s, text->data, text->length))
        json_decref(before);
    else
        conversation_restore(c, before);
}

static void run_edit(struct session *s, char *argument)
{
    struct text text = {0};
    struct error err;
    size_t length;
    const char *last = conversation_last_question(session_conversation(s), &length);
    if (*argument && strcmp(argument, "new") != 0) {
        session_say(s, "/edit is for the last question, and /edit new for another one");
        return;
    }
    const bool replace = last && !*argument;
    char *old = replace ? strndup(last, length) : NULL;
    if (old && !text_append_string(&text, old)) return free(old);
    line_editor_release(s->editor);
    const enum status status = external_editor_run(&text, &err);
    fail(s, status, &err);
    if (status == STATUS_OK && text.length == 0)
        session_say(s, "empty: nothing is asked");
    else if (status == STATUS_OK && old && strcmp(text.data, old) == 0)
        session_say(s, "unchanged: nothing is asked; /retry answers the question again");
    else if (status == STATUS_OK)
        ask_edited(s, &text, replace);
    free(old);
    text_free(&text);
}

/* ---- branches ---- */

static void list_branches(struct session *s)
{
    struct branch *current = branches_current(&s->branches);
    for (size_t i = 0; i < s->branches.count; i++) {
        struct branch *branch = &s->branches.list[i];
        size_t length;
        const char *question = conversation_last_question(&branch->conversation, &length);
        const int32_t turns = conversation_turns(&branch->conversation);
        visible_printf(stderr, "%s %s: %d turn%s", branch == current ? "*" : " ", branch->name, turns, plural(turns));
        if (question) fputs(", the last: ", stderr);
        if (question) print_beginning(question, length);
        fputc('\n', stderr);
    }
}

static void run_branch(struct session *s, char *argument)
{
    struct error err;
    if (!*argument) {
        list_branches(s);
    } else if (strpbrk(argument, " \t\n")) {
        session_say(s, "the name of a branch is one word");
    } else if (branches_find(&s->branches, argument)) {
        session_say(s, "there is a branch %s already; /switch %s goes to it", argument, argument);
    } else {
        const char *from = branches_current(&s->branches)->name;
        if (branches_add(&s->branches, argument))
            session_say(s, "branch %s; /switch %s goes back", argument, from);
        else
            fail(s, error_set(&err, STATUS_OUT_OF_MEMORY, "out of memory for a branch"), &err);
    }
}

static void run_switch(struct session *s, char *argument)
{
    const struct branch *to = branches_find(&s->branches, argument);
    if (!to) {
        if (*argument) session_say(s, "there is no branch %s", argument);
        list_branches(s);
        return;
    }
    branches_switch(&s->branches, to);
    visible_printf(stderr, "(branch %s: ", to->name);
    print_length(s);
    fputs(")\n", stderr);
}

/* ---- settings and facts ---- */

static void list_settings(struct session *s)
{
    const int count = settings_list(s, stderr);
    session_say(s, "%s the model's; /set NAME shows one, /set NAME VALUE sets it, and Tab after /set lists the names",
                count ? "all others are" : "all settings are");
}

static void run_set(struct session *s, char *argument)
{
    struct error err;
    enum status status = STATUS_OK;
    char *value = argument + strcspn(argument, " \t=");
    if (!*argument) {
        list_settings(s);
        return;
    }
    if (*value) *value++ = '\0';
    value += strspn(value, " \t=");
    if (*value) status = settings_set(s, argument, value, &err);
    if (status == STATUS_OK) status = settings_show(s, argument, stderr, &err);
    fail(s, status, &err);
}

static void run_show(struct session *s, char *argument)
{
    (void)argument;
    size_t length;
    const char *system = conversation_system(session_conversation(s), &length);
    visible_printf(stderr, "model:    %s on %s, %d tokens of context\n", s->model_name, engine_info(s->engine)->device,
                   engine_info(s->engine)->limits->max_model_len);
    visible_printf(stderr, "branch:   %s (one of %zu), ", branches_current(&s->branches)->name, s->branches.count);
    print_length(s);
    visible_printf(stderr, "\nfile:     %s\nsystem:   %s\nsettings:\n", s->file ? s->file : "none",
                   system ? system : "none");
    list_settings(s);
}

static void run_stats(struct session *s, char *argument)
{
    const bool on = strcmp(argument, "on") == 0;
    if (*argument && !on && strcmp(argument, "off") != 0) {
        session_say(s, "/stats on, /stats off, or /stats alone");
    } else if (*argument) {
        s->show_stats = on;
        session_say(s, on ? "a line of statistics follows each answer" : "no statistics follow the answers");
    } else {
        session_print_stats(s);
    }
}

/* ---- files ---- */

/* The path that was typed, with the home folder in place of a ~ before it. NULL: memory ran out. */
static char *expand_path(const char *typed)
{
    const char *home = getenv("HOME");
    struct text path = {0};
    const bool at_home = home && typed[0] == '~' && (typed[1] == '/' || !typed[1]);
    if (!at_home) return strdup(typed);
    if (text_printf(&path, "%s%s", home, typed + 1)) return path.data;
    text_free(&path);
    return NULL;
}

/* Takes over the path. */
static void remember_file(struct session *s, char *path)
{
    free(s->file);
    s->file = path;
}

static void save(struct session *s, const char *argument, bool replace)
{
    struct error err = {""};
    bool exists;
    if (!*argument && !s->file) {
        session_say(s, "name the file: /save FILE");
        return;
    }
    char *path = expand_path(*argument ? argument : s->file);
    if (!path) return;
    const bool own = s->file && strcmp(path, s->file) == 0;
    const json_t *messages = session_conversation(s)->messages;
    const enum status status = conversation_file_write(path, messages, replace || own, &exists, &err);
    if (status == STATUS_OK) {
        session_say(s, "saved %zu message%s in %s", json_array_size(messages),
                    plural((int64_t)json_array_size(messages)), path);
        remember_file(s, path);
        return;
    }
    if (exists)
        session_say(s, "%s exists; /save! %s overwrites it", path, argument);
    else
        fail(s, status, &err);
    free(path);
}

static void run_save(struct session *s, char *argument)
{
    save(s, argument, false);
}

static void run_save_over(struct session *s, char *argument)
{
    save(s, argument, true);
}

static void run_load(struct session *s, char *argument)
{
    struct conversation *c = session_conversation(s);
    struct error err = {""};
    json_t *messages = NULL;
    if (!*argument) {
        session_say(s, "name the file: /load FILE");
        return;
    }
    char *path = expand_path(argument);
    if (!path) return;
    enum status status = conversation_file_read(path, &messages, &err);
    if (status == STATUS_OK) {
        status = conversation_replace(c, messages, &err);
        if (status != STATUS_OK) error_prefix(&err, status, path);
    }
    fail(s, status, &err);
    if (status != STATUS_OK) return free(path);
    branches_current(&s->branches)->warned = false;
    visible_printf(stderr, "(loaded %s: ", path);
    print_length(s);
    fputs(conversation_asks(c) ? "; it ends with a question, which /retry answers)\n" : ")\n", stderr);
    free(path);
}

/* ---- the table ---- */

static void run_exit(struct session *s, char *argument)
{
    (void)argument;
    s->ended = true;
}

static void run_help(struct session *s, char *argument);

const struct chat_command chat_commands[] = {
    {"/help", "", ARGUMENT_NONE, "this list", run_help},
    {"/?", "", ARGUMENT_NONE, NULL, run_help},
    {"/system", "[TEXT]", ARGUMENT_TEXT, "show or set the system message; @FILE: from a file; \"\": none", run_system},
    {"/clear", "", ARGUMENT_NONE, "begin a new conversation with the same system message", run_clear},
    {"/retry", "", ARGUMENT_NONE, "answer the last question again, differently", run_retry},
    {"/undo", "", ARGUMENT_NONE, "take back the last question and its answer", run_undo},
    {"/edit", "[new]", ARGUMENT_NEW, "change the last question, or write a new one, in $VISUAL or $EDITOR", run_edit},
    {"/branch", "[NAME]", ARGUMENT_NONE, "go on in a copy of the conversation; alone: list the branches", run_branch},
    {"/switch", "NAME", ARGUMENT_BRANCH, "go to another branch", run_switch},
    {"/set", "[NAME [VALUE]]", ARGUMENT_SETTING, "show or set how answers are sampled: temperature, max_tokens, ...",
     run_set},
    {"/show", "", ARGUMENT_NONE, "model, branch, system message and settings", run_show},
    {"/stats", "[on|off]", ARGUMENT_ON_OFF, "tokens, speed and blocks; on: a line after each answer", run_stats},
    {"/save", "[FILE]", ARGUMENT_FILE, "save the messages as JSON; /save! overwrites a file", run_save},
    {"/save!", "[FILE]", ARGUMENT_FILE, NULL, run_save_over},
    {"/load", "FILE", ARGUMENT_FILE, "go on with the messages of a file", run_load},
    {"/exit", "", ARGUMENT_NONE, "leave (as does Ctrl-D)", run_exit},
    {"/quit", "", ARGUMENT_NONE, NULL, run_exit},
    {"/bye", "", ARGUMENT_NONE, NULL, run_exit},
};
const size_t num_chat_commands = sizeof chat_commands / sizeof chat_commands[0];

static void run_help(struct session *s, char *argument)
{
    (void)s, (void)argument;
    enum { HELP_COLUMN = 22 };
    char usage[64];
    for (size_t i = 0; i < num_chat_commands; i++) {
        const struct chat_command *c = &chat_commands[i];
        if (!c->help) continue;
        snprintf(usage, sizeof usage, "%s %s", c->name, c->argument);
        fprintf(stderr, "%-*s ", HELP_COLUMN - 1, usage);
        notice_print_line(stderr, c->help, HELP_COLUMN, notice_columns(stderr));
    }
    notice_printf(stderr, "A question that begins with / is asked with //. Ctrl-C stops an answer.\n");
}

/* ---- lines ---- */

static const struct chat_command *find_command(const char *name)
{
    for (size_t i = 0; i < num_chat_commands; i++)
        if (strcmp(chat_commands[i].name, name) == 0) return &chat_commands[i];
    return NULL;
}

static void say_unknown(const struct session *s, const char *name)
{
    struct nearest nearest = nearest_begin(name);
    for (size_t i = 0; i < num_chat_commands; i++)
        if (chat_commands[i].help) nearest_consider(&nearest, chat_commands[i].name);
    session_say(s, "there is no command %s%s%s%s /help lists them, and // begins a question that begins with /", name,
                nearest.word ? "; did you mean " : "", nearest.word ? nearest.word : "", nearest.word ? "?" : ";");
}

static bool is_blank(char c)
{
    return strchr(" \t\r\n", c) != NULL;
}

void chat_commands_run(struct session *s, const char *line, size_t length)
{
    while (length > 0 && is_blank(line[length - 1])) length--;
    char *copy = strndup(line, length);
    if (!copy) return;
    char *argument = copy + strcspn(copy, " \t\r\n");
    if (*argument) *argument++ = '\0';
    while (*argument && is_blank(*argument)) argument++;
    const struct chat_command *command = find_command(copy);
    if (command)
        command->run(s, argument);
    else
        say_unknown(s, copy);
    free(copy);
}

/* ---- completion ---- */

/* Where the word begins that is being typed, and where candidates go. */
struct completion {
    const char *word;
    size_t length;
    struct line_candidates *candidates;
};

static void offer(const struct completion *c, const char *word)
{
    if (strncmp(word, c->word, c->length) == 0) line_candidates_add(c->candidates, word);
}

static void offer_commands(const struct completion *c)
{
    for (size_t i = 0; i < num_chat_commands; i++)
        if (chat_commands[i].help) offer(c, chat_commands[i].name);
}

static void offer_arguments(const struct session *s, enum command_argument kind, const struct completion *c)
{
    for (size_t i = 0; kind == ARGUMENT_BRANCH && i < s->branches.count; i++) offer(c, s->branches.list[i].name);
    for (int i = 0; kind == ARGUMENT_SETTING && i < NUM_SAMPLING_FIELDS; i++) offer(c, sampling_fields[i].name);
    if (kind == ARGUMENT_ON_OFF) offer(c, "on"), offer(c, "off");
    if (kind == ARGUMENT_NEW) offer(c, "new");
    if (kind == ARGUMENT_FILE) line_candidates_add_files(c->candidates, "", c->word, c->length);
    if (kind == ARGUMENT_TEXT && c->length > 0 && *c->word == '@')
        line_candidates_add_files(c->candidates, "@", c->word + 1, c->length - 1);
}

size_t chat_commands_complete(void *user, const char *text, size_t length, struct line_candidates *candidates)
{
    char name[16];
    size_t end = 0;
    while (end < length && !is_blank(text[end])) end++;
    struct completion c = {.word = text, .length = length, .candidates = candidates};
    if (length == 0 || text[0] != '/') return length;
    if (end == length) {
        offer_commands(&c);
        return 0;
    }
    snprintf(name, sizeof name, "%.*s", (int)end, text);
    const struct chat_command *command = find_command(name);
    while (end < length && is_blank(text[end])) end++;
    c.word = text + end, c.length = length - end;
    if (command) offer_arguments(user, command->kind, &c);
    return end;
}
