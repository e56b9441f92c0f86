/* What `cmake --install` makes: all that should be there, documents whose links lead somewhere, a licence for each
 * library, and an executable that runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

static struct temp_folder prefix;

/* Skips where the build folder did not travel with the tests. */
static void install(struct program *p)
{
    char build[512], script[600];
    snprintf(build, sizeof build, "%s", QUIRE_EXECUTABLE);
    *strrchr(build, '/') = '\0';
    if (!path_join(script, sizeof script, build, "cmake_install.cmake") || !file_exists(script) ||
        system("cmake --version >/dev/null 2>&1") != 0) {
        print_message("skipped: no build folder, or no cmake\n");
        skip();
    }
    program_run(p, (const char *[]){"/usr/bin/env", "cmake", "--install", build, "--prefix", prefix.path, NULL}, NULL);
    if (p->exit_status != 0) fail_msg("%s%s", p->out.data, p->err.data);
}

static void require(const char *name)
{
    char path[512];
    assert_true(path_join(path, sizeof path, prefix.path, name));
    if (!file_exists(path)) fail_msg("%s is missing", path);
}

/* Each link of the document without a scheme, and not to a place in it, names a file beside it. */
static void check_links(const char *folder, const char *name)
{
    char directory[512], path[600], target[1200];
    struct text document = {0};
    struct error err;
    assert_true(path_join(directory, sizeof directory, prefix.path, folder));
    assert_true(path_join(path, sizeof path, directory, name));
    if (file_read(path, &document, &err) != STATUS_OK) fail_msg("%s", err.text);
    for (const char *at = document.data; (at = strstr(at, "](")) != NULL;) {
        char link[256];
        at += 2;
        snprintf(link, sizeof link, "%.*s", (int)strcspn(at, ")#\n"), at);
        if (!*link || strchr(link, ':')) continue;
        assert_true(path_join(target, sizeof target, directory, link));
        if (access(target, F_OK) != 0) fail_msg("%s links to %s, which is not installed", path, link);
    }
    text_free(&document);
}

static int count_files(const char *folder, const char *part)
{
    char path[512];
    int count = 0;
    struct dirent *entry;
    assert_true(path_join(path, sizeof path, prefix.path, folder));
    DIR *directory = opendir(path);
    while (directory && (entry = readdir(directory)) != NULL) count += strstr(entry->d_name, part) != NULL;
    if (directory) closedir(directory);
    return count;
}

static void test_install(void **state)
{
    (void)state;
    static const char *const files[] = {"share/man/man1/quire.1",
                                        "share/bash-completion/completions/quire",
                                        "share/zsh/vendor-completions/_quire",
                                        "share/fish/vendor_completions.d/quire.fish",
                                        "share/doc/quire/LICENSE",
                                        "share/quire/models/guide/config.json",
                                        "share/quire/models/guide/model.safetensors",
                                        "share/quire/models/guide/draft/config.json",
                                        "share/quire/models/guide/draft/model.safetensors"};
    struct program p;
    install(&p);
    if (strstr(p.err.data, "licence was not found")) fail_msg("%s", p.err.data);
    program_free(&p);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) require(files[i]);
    check_links("share/doc/quire", "README.md");
    check_links("share/quire/models/guide", "README.md");
    assert_true(count_files("lib", ".so") > 0);
    assert_true(count_files("share/doc/quire/libraries", ".txt") > 0);
}

/* Far from the build folder, with the guide that lies beside it. */
static void test_installed_quire_runs(void **state)
{
    (void)state;
    struct program p;
    char path[512];
    assert_true(path_join(path, sizeof path, prefix.path, "bin/quire"));
    if (!file_exists(path)) skip();
    program_run(&p, (const char *[]){path, "inspect", NULL}, NULL);
    if (p.exit_status != 0) fail_msg("%s", p.err.data);
    if (!strstr(p.out.data, prefix.path)) fail_msg("not the installed guide: %s", p.out.data);
    program_free(&p);
}

static int set_up(void **state)
{
    (void)state;
    temp_folder_make(&prefix);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    temp_folder_remove(&prefix);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_install), cmocka_unit_test(test_installed_quire_runs)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
