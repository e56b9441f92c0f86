#include "tests/support/temp_folder.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"

static void give_up(const char *what, const char *path)
{
    fprintf(stderr, "%s: ", what);
    perror(path);
    abort();
}

void temp_folder_make(struct temp_folder *folder)
{
    const char *root = getenv("TMPDIR");
    snprintf(folder->path, sizeof folder->path, "%s/quire-test-XXXXXX", root && *root ? root : "/tmp");
    if (!mkdtemp(folder->path)) give_up("cannot make a folder", folder->path);
}

void temp_folder_write(const struct temp_folder *folder, const char *name, const void *bytes, size_t count)
{
    char path[PATH_MAX];
    path_join(path, sizeof path, folder->path, name);
    FILE *file = fopen(path, "wb");
    if (!file) give_up("cannot write", path);
    if (count && fwrite(bytes, 1, count, file) != count) give_up("cannot write", path);
    if (fclose(file) != 0) give_up("cannot write", path);
}

void temp_folder_write_string(const struct temp_folder *folder, const char *name, const char *string)
{
    temp_folder_write(folder, name, string, strlen(string));
}

void temp_folder_write_safetensors(const struct temp_folder *folder, const char *name, const char *entries,
                                   const void *data, size_t bytes)
{
    struct text file = {0};
    const uint64_t length = strlen(entries) + 2;
    if (!text_append(&file, (const char *)&length, sizeof length) || !text_printf(&file, "{%s}", entries) ||
        !text_append(&file, data, bytes))
        give_up("cannot allocate", name);
    temp_folder_write(folder, name, file.data, file.length);
    text_free(&file);
}

void temp_folder_add_folder(const struct temp_folder *folder, const char *name)
{
    char path[PATH_MAX];
    path_join(path, sizeof path, folder->path, name);
    for (char *slash = path + strlen(folder->path) + 1; slash; slash++) {
        slash = strchr(slash, '/');
        if (slash) *slash = '\0';
        if (mkdir(path, 0700) != 0 && errno != EEXIST) give_up("cannot make a folder", path);
        if (!slash) return;
        *slash = '/';
    }
}

void temp_folder_copy(const struct temp_folder *folder, const char *from, const char *name)
{
    char path[PATH_MAX];
    struct text bytes = {0};
    path_join(path, sizeof path, from, name);
    if (file_read(path, &bytes, NULL) != STATUS_OK) give_up("cannot read", path);
    temp_folder_write(folder, name, bytes.data, bytes.length);
    text_free(&bytes);
}

void temp_folder_delete(const struct temp_folder *folder, const char *name)
{
    char path[PATH_MAX];
    path_join(path, sizeof path, folder->path, name);
    unlink(path);
}

static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *place)
{
    (void)info, (void)type, (void)place;
    if (remove(path) != 0) give_up("cannot remove", path);
    return 0;
}

void temp_folder_remove(struct temp_folder *folder)
{
    if (nftw(folder->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0) give_up("cannot open", folder->path);
}

int temp_folder_setup(void **state)
{
    struct temp_folder *folder = malloc(sizeof *folder);
    if (!folder) give_up("cannot allocate", "a folder");
    temp_folder_make(folder);
    *state = folder;
    return 0;
}

int temp_folder_teardown(void **state)
{
    temp_folder_remove(*state);
    free(*state);
    return 0;
}
