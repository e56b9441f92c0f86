/* Files: only regular ones are opened, and what cannot be one is named, never waited for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/file.h"
#include "tests/support/temp_folder.h"

/* `what` must be refused by every way to open a file, with a sentence that holds the path and the words. */
static void check_refused(const char *path, const char *words)
{
    struct mapped_file file;
    struct text text = {0};
    struct error errors[3] = {{""}, {""}, {""}};
    bool found = true;
    alarm(20); /* opening a named pipe must not wait for a writer */
    assert_int_equal(mapped_file_open(path, &file, &errors[0]), STATUS_IO);
    assert_null(file.data);
    assert_int_equal(file_read(path, &text, &errors[1]), STATUS_IO);
    assert_int_equal(file_find(path, &found, &errors[2]), STATUS_IO);
    alarm(0);
    assert_false(found);
    for (int i = 0; i < 3; i++)
        if (!strstr(errors[i].text, words) || !strstr(errors[i].text, path))
            fail_msg("expected \"%s\" about %s, found: %s", words, path, errors[i].text);
    text_free(&text);
}

static void test_not_regular(void **state)
{
    (void)state;
    struct temp_folder folder;
    char path[512];
    temp_folder_make(&folder);
    check_refused(folder.path, "not a regular file but a folder");
    snprintf(path, sizeof path, "%s/pipe", folder.path);
    assert_int_equal(mkfifo(path, 0600), 0);
    check_refused(path, "not a regular file but a named pipe");
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/link", folder.path);
    assert_int_equal(symlink("no-such-file", path), 0);
    check_refused(path, "a symbolic link to a file that does not exist");
    assert_int_equal(unlink(path), 0);
    check_refused("/dev/null", "not a regular file but a device");
    temp_folder_remove(&folder);
}

static void test_regular(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct mapped_file file;
    struct text text = {0};
    struct error err = {""};
    char path[512], link[512];
    bool found = true;
    temp_folder_make(&folder);
    snprintf(path, sizeof path, "%s/file", folder.path);
    snprintf(link, sizeof link, "%s/link", folder.path);
    assert_int_equal(file_find(path, &found, &err), STATUS_OK);
    assert_false(found);
    assert_int_equal(mapped_file_open(path, &file, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "cannot open: No such file"));
    temp_folder_write_string(&folder, "file", "bytes");
    assert_int_equal(symlink(path, link), 0);
    assert_int_equal(file_find(link, &found, &err), STATUS_OK);
    assert_true(found);
    assert_int_equal(file_read(link, &text, &err), STATUS_OK);
    assert_string_equal(text.data, "bytes");
    assert_int_equal(mapped_file_open(link, &file, &err), STATUS_OK);
    assert_int_equal(file.size, 5);
    assert_memory_equal(file.data, "bytes", 5);
    mapped_file_close(&file);
    temp_folder_write_string(&folder, "file", "");
    assert_int_equal(mapped_file_open(path, &file, &err), STATUS_OK);
    assert_null(file.data);
    snprintf(link, sizeof link, "%s/file/below", folder.path);
    assert_int_equal(file_find(link, &found, &err), STATUS_OK); /* a file is no folder: nothing is there */
    assert_false(found);
    text_free(&text);
    temp_folder_remove(&folder);
}

/* What bash's <(COMMAND) stands for: the end of a pipe, read to its end. */
static void test_pipe(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct text text = {0};
    struct error err = {""};
    char path[64];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "bytes", 5), 5);
    close(ends[1]);
    snprintf(path, sizeof path, "/dev/fd/%d", ends[0]);
    assert_int_equal(file_read(path, &text, &err), STATUS_IO);
    assert_int_equal(file_read_or_pipe(path, &text, &err), STATUS_OK);
    assert_string_equal(text.data, "bytes");
    close(ends[0]);
    temp_folder_make(&folder);
    assert_int_equal(file_read_or_pipe(folder.path, &text, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "not a regular file but a folder"));
    assert_int_equal(file_read_or_pipe("/dev/null", &text, &err), STATUS_IO);
    temp_folder_write_string(&folder, "file", " more");
    char file[512];
    snprintf(file, sizeof file, "%s/file", folder.path);
    assert_int_equal(file_read_or_pipe(file, &text, &err), STATUS_OK);
    assert_string_equal(text.data, "bytes more");
    text_free(&text);
    temp_folder_remove(&folder);
}

static void test_changed(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct mapped_file file;
    struct error err;
    char path[512];
    const struct timespec old[2] = {{1000, 5}, {1000, 5}}, other[2] = {{1000, 6}, {1000, 6}};
    temp_folder_make(&folder);
    temp_folder_write_string(&folder, "file", "bytes");
    snprintf(path, sizeof path, "%s/file", folder.path);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_int_equal(mapped_file_open(path, &file, &err), STATUS_OK);
    assert_false(mapped_file_changed(&file));
    assert_int_equal(utimensat(AT_FDCWD, path, other, 0), 0);
    assert_true(mapped_file_changed(&file)); /* the same size, written later */
    assert_int_equal(truncate(path, 6), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_true(mapped_file_changed(&file)); /* the same time, another size */
    mapped_file_close(&file);
    temp_folder_remove(&folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_regular),
        cmocka_unit_test(test_not_regular),
        cmocka_unit_test(test_pipe),
        cmocka_unit_test(test_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
