/* A folder for one test's files, gone afterwards. */
#ifndef QUIRE_TESTS_SUPPORT_TEMP_FOLDER_H
#define QUIRE_TESTS_SUPPORT_TEMP_FOLDER_H

#include <stddef.h>

struct temp_folder {
    char path[256]; /* under $TMPDIR or /tmp */
};

/* All of these abort where the system refuses: a test cannot go on. */
void temp_folder_make(struct temp_folder *folder);
void temp_folder_write(const struct temp_folder *folder, const char *name, const void *bytes, size_t count);
void temp_folder_write_string(const struct temp_folder *folder, const char *name, const char *string);
/* A safetensors file: the entries of its header, which is JSON, without the braces around them; and the data. */
void temp_folder_write_safetensors(const struct temp_folder *folder, const char *name, const char *entries,
                                   const void *data, size_t bytes);
void temp_folder_add_folder(const struct temp_folder *folder, const char *name);             /* "a/b" inside, and "a" */
void temp_folder_copy(const struct temp_folder *folder, const char *from, const char *name); /* from/name */
void temp_folder_delete(const struct temp_folder *folder, const char *name); /* one file; absent is fine */
void temp_folder_remove(struct temp_folder *folder);                         /* with all that is in it */

/* For cmocka_unit_test_setup_teardown: *state is a struct temp_folder. */
int temp_folder_setup(void **state);
int temp_folder_teardown(void **state);

#endif
