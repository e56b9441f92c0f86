#include "tests/support/temp_folder.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

void temp_folder_remove(struct temp_folder *folder)
{
    DIR *dir = opendir(folder->path);
    if (!dir) give_up("cannot open", folder->path);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            temp_folder_delete(folder, entry->d_name);
    closedir(dir);
    if (rmdir(folder->path) != 0) give_up("cannot remove", folder->path);
}
