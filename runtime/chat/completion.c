#include "runtime/chat/completion.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/utf8.h"
#include "base/visible.h"
#include "base/columns.h"

enum { MAX_SHOWN = 200 };

void line_candidates_free(struct line_candidates *c)
{
    for (size_t i = 0; i < c->count; i++) free(c->words[i]);
    free(c->words);
    *c = (struct line_candidates){0};
}

/* Want of memory leaves a candidate out. */
void line_candidates_add(struct line_candidates *c, const char *word)
{
    if (!array_reserve(&c->words, &c->capacity, c->count + 1, sizeof *c->words)) return;
    char *copy = strdup(word);
    if (copy) c->words[c->count++] = copy;
}

static bool is_harmless(const char *name)
{
    const size_t length = strlen(name);
    for (size_t i = 0; i < length;) {
        uint32_t character;
        i += utf8_decode(name + i, length - i, &character);
        if (visible_character(character) != character || character == '\n' || character == '\t' || character == 0xFFFD)
            return false;
    }
    return true;
}

/* The folder of a path, which may begin with "~/"; "." if it names none. */
static bool find_folder(struct text *folder, const char *prefix, size_t length)
{
    const char *home = getenv("HOME");
    if (length == 0) return text_append_string(folder, ".");
    if (prefix[0] == '~' && home) return text_printf(folder, "%s%.*s", home, (int)length - 1, prefix + 1);
    return text_append(folder, prefix, length);
}

static void add_file(struct line_candidates *c, const char *before, const char *folder, const struct text *path)
{
    struct text word = {0}, real = {0};
    struct stat info;
    const char *name = strrchr(path->data, '/');
    name = name ? name + 1 : path->data;
    const bool is_folder =
        text_printf(&real, "%s/%s", folder, name) && stat(real.data, &info) == 0 && S_ISDIR(info.st_mode);
    if (text_printf(&word, "%s%s%s", before, path->data, is_folder ? "/" : "")) line_candidates_add(c, word.data);
    text_free(&real);
    text_free(&word);
}

void line_candidates_add_files(struct line_candidates *c, const char *before, const char *prefix, size_t length)
{
    const char *slash = memrchr(prefix, '/', length);
    const size_t folder_length = slash ? (size_t)(slash + 1 - prefix) : 0, rest = length - folder_length;
    struct text folder = {0}, path = {0};
    DIR *open = find_folder(&folder, prefix, folder_length) ? opendir(folder.data) : NULL;
    const struct dirent *entry;
    while (open && (entry = readdir(open)) != NULL) {
        const char *name = entry->d_name;
        if (strncmp(name, prefix + folder_length, rest) != 0 || !is_harmless(name)) continue;
        if (name[0] == '.' && (rest == 0 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)) continue;
        text_clear(&path);
        if (text_append(&path, prefix, folder_length) && text_append_string(&path, name))
            add_file(c, before, folder.data, &path);
    }
    if (open) closedir(open);
    text_free(&path);
    text_free(&folder);
}

size_t line_candidates_common(const struct line_candidates *c)
{
    if (c->count == 0) return 0;
    size_t common = strlen(c->words[0]);
    for (size_t i = 1; i < c->count; i++) {
        size_t same = 0;
        while (same < common && c->words[i][same] == c->words[0][same]) same++;
        common = same;
    }
    while (common > 0 && ((unsigned char)c->words[0][common] & 0xC0) == 0x80) common--; /* not within a character */
    return common;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What is shown of a word: of a path the last part. */
static const char *last_part(const char *word)
{
    const char *part = word;
    for (const char *c = word; *c; c++)
        if (*c == '/' && c[1] && c != word) part = c + 1;
    return part;
}

void line_candidates_print(struct line_candidates *c, FILE *screen, int width)
{
    int widest = 1;
    qsort(c->words, c->count, sizeof *c->words, compare);
    const size_t shown = c->count < MAX_SHOWN ? c->count : MAX_SHOWN;
    for (size_t i = 0; i < shown; i++) {
        const char *part = last_part(c->words[i]);
        const int columns = columns_of(part, strlen(part));
        if (columns > widest) widest = columns;
    }
    const size_t across = width > widest + 2 ? (size_t)(width / (widest + 2)) : 1, down = (shown + across - 1) / across;
    for (size_t row = 0; row < down; row++)
        for (size_t i = row; i < shown; i += down) {
            const char *part = last_part(c->words[i]);
            const bool last = i + down >= shown;
            fprintf(screen, "%s%*s", part, last ? 0 : widest + 2 - columns_of(part, strlen(part)), "");
            if (last) putc('\n', screen);
        }
    if (shown < c->count) fprintf(screen, "and %zu more\n", c->count - shown);
}
