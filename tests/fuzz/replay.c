/* The main of a fuzzer where libFuzzer's is not linked: gives it each file of the folders that are named, in the order
 * of their names, and aborts as it does. */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/file.h"
#include "tests/fuzz/fuzz.h"

/* The input gets memory of exactly its size, so that a sanitizer sees a read behind its end. */
static void replay(const char *path)
{
    struct text bytes = {0};
    struct error err = {""};
    if (file_read(path, &bytes, &err) != STATUS_OK) fuzz_require(false, err.text);
    uint8_t *exact = malloc(bytes.length ? bytes.length : 1);
    fuzz_require(exact != NULL, "no memory");
    for (size_t i = 0; i < bytes.length; i++) exact[i] = (uint8_t)bytes.data[i];
    fprintf(stderr, "%s\n", path);
    LLVMFuzzerTestOneInput(exact, bytes.length);
    free(exact);
    text_free(&bytes);
}

static int replay_folder(const char *folder)
{
    struct dirent **entries;
    const int count = scandir(folder, &entries, NULL, alphasort);
    int num_files = 0;
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        if (entries[i]->d_name[0] != '.') {
            path_join(path, sizeof path, folder, entries[i]->d_name);
            replay(path);
            num_files++;
        }
        free(entries[i]);
    }
    if (count >= 0) free(entries);
    return num_files;
}

int main(int argc, char **argv)
{
    int num_files = 0;
    for (int i = 1; i < argc; i++) num_files += replay_folder(argv[i]);
    printf("%d inputs\n", num_files);
    return num_files > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
