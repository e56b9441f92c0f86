/* The inputs of a command, read line by line one after the other: what the flag --input names, given several times. */
#ifndef QUIRE_RUNTIME_INPUTS_H
#define QUIRE_RUNTIME_INPUTS_H

#include <sys/stat.h>

#include "runtime/input_form.h"
#include "runtime/line_reader.h"

/* Zero-initialise it; free it with input_list_free. */
struct input_list {
    const char **names; /* [count] files, or "-" for standard input; the strings are referred to */
    size_t count, capacity;
    bool are_texts;     /* each line is a text, whatever it looks like */
    int text;           /* the file with the text of input_list_add_word; 0: there is none */
    char text_name[32]; /* its name */
};
/* The parse function of the flag: appends a name to the struct input_list `list`. */
enum status input_list_add(void *list, const char *name, struct error *err);
/* Adds the word beside the flags, as runtime/input.h has it: each line of a TEXT is a prompt. INVALID: the list has
 * names already, or the text looks like a file's name. */
enum status input_list_add_word(struct input_list *list, const char *word, struct error *err);
void input_list_free(struct input_list *list);

/* The names, of which an empty list has one: "-". */
size_t input_list_count(const struct input_list *list);
const char *input_list_name(const struct input_list *list, size_t i);
bool input_is_standard(const char *name);
/* Whether the input is a regular file, and what the system says of it. */
bool input_file_info(const char *name, struct stat *info);

struct inputs {
    const struct input_list *list;
    size_t next; /* of the list: the file to open when `reader` is at its end */
    struct line_reader reader;
    struct input_form form;  /* of the present file; unused if the lines are texts */
    uint64_t size;           /* bytes of all files as they lie on the disk; 0: not known */
    uint64_t bytes_before;   /* of the files before the present one */
    uint64_t furthest;       /* what inputs_position gave */
    const char *description; /* of the present file, in sentences */
};

/* Checks that every file can be opened, and opens the first. An empty list is standard input. INVALID: standard input
 * is named twice, or a file is JSON but not JSON Lines. IO: a file cannot be read, or is a folder. `list` is referred
 * to. On failure *in is zeroed. */
enum status inputs_open(struct inputs *in, const struct input_list *list, struct error *err);
void inputs_close(struct inputs *in); /* safe on a zeroed struct */

/* Whether one of them is standard input. */
bool inputs_have_standard(const struct inputs *in);

/* Reads lines as line_reader_next does, through all files. LINE_FAILED: the sentence names the file, which cannot be
 * read any further or is JSON but not JSON Lines; the lines before the place were given out, and nothing after it is
 * read, nor the files behind it. */
enum line_result inputs_next(struct inputs *in, bool wait, const char **line, size_t *length, struct error *err);

/* Where the last line stands: its number in its file, from 1, and the file's name; NULL if there is only one file. */
int64_t inputs_line(const struct inputs *in);
const char *inputs_file(const struct inputs *in);
/* Whether the last line must be a JSON object, as the name of its file or a line before it says. */
bool inputs_is_object(const struct inputs *in);
/* Bytes of all files up to the end of the last line; never less than before. */
uint64_t inputs_position(struct inputs *in);

/* The input that is the regular file open as `fd`; NULL: none is. */
const char *inputs_find(const struct inputs *in, int fd);

#endif
