#include "runtime/inputs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/plural.h"
#include "runtime/input.h"
#include "runtime/prompts/prompt.h"

enum status input_list_add(void *target, const char *name, struct error *err)
{
    struct input_list *list = target;
    if (!array_reserve(&list->names, &list->capacity, list->count + 1, sizeof *list->names))
        return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for %zu name%s", list->count + 1,
                         plural((int64_t)list->count + 1));
    list->names[list->count++] = name;
    return STATUS_OK;
}

/* Puts the text into a file without a name on any disk. */
static enum status add_text(struct input_list *list, const char *text, struct error *err)
{
    const size_t length = strlen(text);
    list->text = memfd_create("prompts", MFD_CLOEXEC);
    if (list->text < 0) list->text = 0;
    if (list->text == 0 || write(list->text, text, length) != (ssize_t)length)
        return error_set(err, STATUS_IO, "the text cannot be kept: %s", strerror(errno));
    snprintf(list->text_name, sizeof list->text_name, "/proc/self/fd/%d", list->text);
    return input_list_add(list, list->text_name, err);
}

static bool ends_as_file(const char *text)
{
    static const char *const endings[] = {".txt", ".json", ".jsonl", ".gz", ".zst", ".csv"};
    const char *dot = strpbrk(text, " \n") ? NULL : strrchr(text, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(dot, endings[i]) == 0) return true;
    return false;
}

enum status input_list_add_word(struct input_list *list, const char *word, struct error *err)
{
    struct stat info;
    const char *rest;
    const enum input_place place = input_place(word, &rest);
    if (list->count > 0)
        return error_set(err, STATUS_INVALID, "the prompts are given twice: '%s', and --input %s", word,
                         list->names[0]);
    if (place != INPUT_TEXT) return input_list_add(list, rest, err);
    if (!word[strspn(word, " \t\r\n")]) return error_set(err, STATUS_INVALID, "the prompt beside the flags is empty");
    const bool there = stat(word, &info) == 0;
    if (there && S_ISDIR(info.st_mode))
        return error_set(err, STATUS_INVALID, "'%s' is a folder, and no prompt; a model is --model %s", word, word);
    if (there || ends_as_file(word))
        return error_set(err, STATUS_INVALID, "'%s' is a file's name, and no prompt; @%s runs its lines", word, word);
    return add_text(list, rest, err);
}

void input_list_free(struct input_list *list)
{
    if (list->text) close(list->text);
    free(list->names);
    *list = (struct input_list){0};
}

size_t input_list_count(const struct input_list *list)
{
    return list->count ? list->count : 1;
}

const char *input_list_name(const struct input_list *list, size_t i)
{
    return list->count ? list->names[i] : "-";
}

bool input_is_standard(const char *name)
{
    return strcmp(name, "-") == 0;
}

bool input_file_info(const char *name, struct stat *info)
{
    const int result = input_is_standard(name) ? fstat(STDIN_FILENO, info) : stat(name, info);
    return result == 0 && S_ISREG(info->st_mode);
}

/* ---- the files ---- */

static const char *describe(const struct inputs *in, const char *name)
{
    return input_is_standard(name) ? "standard input" : name == in->list->text_name ? "the prompt" : name;
}

/* Tells the form of the file from a line, which is then the last. */
static enum status take_form(struct input_form *form, const char *line, size_t length, const char *description,
                             struct error *err)
{
    if (prompt_line_is_blank(line, length)) return STATUS_OK;
    const enum status status = input_form_take(form, line, length, err);
    return status == STATUS_OK ? status : error_prefix(err, status, description);
}

/* Reads the form of a file that was opened to be tried from its first line. What is wrong with its bytes is found
 * later. */
static enum status try_first_line(struct line_reader *tried, const char *name, const char *description,
                                  struct error *err)
{
    struct input_form form = input_form_of(name);
    enum status status = STATUS_OK;
    const char *line;
    size_t length;
    while (status == STATUS_OK && !form.begun && line_reader_next(tried, true, &line, &length, NULL) == LINE_READY)
        status = take_form(&form, line, length, description, err);
    return status;
}

/* Tries to open the file. A named pipe is left alone: its writer would take a reader that goes away for the end. */
static enum status try_file(const struct inputs *in, const char *name, struct error *err)
{
    struct stat info;
    struct line_reader tried;
    const bool found = !input_is_standard(name) && stat(name, &info) == 0;
    if (input_is_standard(name) || (found && S_ISFIFO(info.st_mode))) return STATUS_OK;
    enum status status = line_reader_open(&tried, name, err);
    if (status == STATUS_OK && found && S_ISREG(info.st_mode) && !in->list->are_texts)
        status = try_first_line(&tried, name, describe(in, name), err);
    line_reader_free(&tried);
    return status;
}

/* Tries all files, and adds up their sizes. */
static enum status check_files(struct inputs *in, struct error *err)
{
    int num_standard = 0;
    bool known = true;
    for (size_t i = 0; i < input_list_count(in->list); i++) {
        const char *name = input_list_name(in->list, i);
        struct stat info;
        const enum status status = try_file(in, name, err);
        if (status != STATUS_OK) return status;
        if (input_is_standard(name)) num_standard++;
        known = known && input_file_info(name, &info);
        if (known) in->size += (uint64_t)info.st_size;
    }
    if (!known) in->size = 0;
    if (num_standard <= 1) return STATUS_OK;
    return error_set(err, STATUS_INVALID, "standard input (-) is named twice as an input");
}

static enum status open_next(struct inputs *in, struct error *err)
{
    const char *name = input_list_name(in->list, in->next);
    in->description = describe(in, name);
    in->form = input_form_of(name);
    const enum status status = line_reader_open(&in->reader, name, err);
    if (status == STATUS_OK) in->next++;
    return status;
}

enum status inputs_open(struct inputs *in, const struct input_list *list, struct error *err)
{
    *in = (struct inputs){.list = list};
    enum status status = check_files(in, err);
    if (status == STATUS_OK) status = open_next(in, err);
    if (status != STATUS_OK) inputs_close(in);
    return status;
}

void inputs_close(struct inputs *in)
{
    line_reader_free(&in->reader);
    *in = (struct inputs){0};
}

bool inputs_have_standard(const struct inputs *in)
{
    for (size_t i = 0; i < input_list_count(in->list); i++)
        if (input_is_standard(input_list_name(in->list, i))) return true;
    return false;
}

/* ---- lines ---- */

static void note_file_end(struct inputs *in)
{
    in->bytes_before += in->reader.source.bytes_read;
    line_reader_free(&in->reader);
}

enum line_result inputs_next(struct inputs *in, bool wait, const char **line, size_t *length, struct error *err)
{
    for (;;) {
        const enum line_result result = line_reader_next(&in->reader, wait, line, length, err);
        if (result == LINE_FAILED) error_prefix(err, STATUS_IO, in->description);
        if (result == LINE_READY && !in->list->are_texts &&
            take_form(&in->form, *line, *length, in->description, err) != STATUS_OK)
            return LINE_FAILED;
        if (result != LINE_END || in->next == input_list_count(in->list)) return result;
        note_file_end(in);
        if (open_next(in, err) != STATUS_OK) return LINE_FAILED;
    }
}

int64_t inputs_line(const struct inputs *in)
{
    return in->reader.line;
}

const char *inputs_file(const struct inputs *in)
{
    return input_list_count(in->list) > 1 ? in->description : NULL;
}

bool inputs_is_object(const struct inputs *in)
{
    return in->form.objects && !in->list->are_texts;
}

uint64_t inputs_position(struct inputs *in)
{
    const uint64_t now = in->bytes_before + line_reader_position(&in->reader);
    if (now > in->furthest) in->furthest = now;
    return in->furthest;
}

const char *inputs_find(const struct inputs *in, int fd)
{
    struct stat wanted, info;
    if (fstat(fd, &wanted) != 0 || !S_ISREG(wanted.st_mode)) return NULL;
    for (size_t i = 0; i < input_list_count(in->list); i++) {
        const char *name = input_list_name(in->list, i);
        if (input_file_info(name, &info) && info.st_dev == wanted.st_dev && info.st_ino == wanted.st_ino) return name;
    }
    return NULL;
}
