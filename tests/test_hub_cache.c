/* --model: names of models in the cache of huggingface_hub, what wins over them, and what is said where there is none.
 */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/file.h"
#include "runtime/commands.h"
#include "runtime/options/hub_cache.h"
#include "runtime/options/model_folder.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER "0123456700000000000000000000000000000000"
#define REPO "home/.cache/huggingface/hub/models--org--name"
#define SNAPSHOT REPO "/snapshots/" COMMIT

static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"};

/* A folder with a home in it, and no variable set but HOME. */
static int setup(void **state)
{
    struct temp_folder *folder = malloc(sizeof *folder);
    char home[512];
    if (!folder) return -1;
    temp_folder_make(folder);
    temp_folder_add_folder(folder, "home");
    path_join(home, sizeof home, folder->path, "home");
    setenv("HOME", home, 1);
    unsetenv("QUIRE_MODEL");
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) unsetenv(variables[i]);
    *state = folder;
    return 0;
}

static int teardown(void **state)
{
    temp_folder_remove(*state);
    free(*state);
    return 0;
}

/* SNAPSHOT/name is a link to a blob, as huggingface_hub makes it. */
static void add_file(const struct temp_folder *folder, const char *name, const char *from)
{
    char blob[128], target[128], link[512];
    snprintf(blob, sizeof blob, REPO "/blobs/%s", name);
    snprintf(target, sizeof target, "../../blobs/%s", name);
    snprintf(link, sizeof link, "%s/" SNAPSHOT "/%s", folder->path, name);
    struct text bytes = {0};
    char path[512];
    if (from) {
        path_join(path, sizeof path, from, name);
        assert_int_equal(file_read(path, &bytes, NULL), STATUS_OK);
    }
    temp_folder_write(folder, blob, bytes.data, bytes.length);
    assert_int_equal(symlink(target, link), 0);
    text_free(&bytes);
}

static void add_snapshot(const struct temp_folder *folder)
{
    temp_folder_add_folder(folder, REPO "/refs/pr");
    temp_folder_add_folder(folder, REPO "/blobs");
    temp_folder_add_folder(folder, SNAPSHOT);
    temp_folder_write_string(folder, REPO "/refs/main", COMMIT);
    temp_folder_write_string(folder, REPO "/refs/pr/1", COMMIT "\n");
}

static void find(const struct temp_folder *folder, const char *name, const char *expected)
{
    char path[4096], whole[512];
    struct error err = {""};
    if (hub_cache_find(name, true, path, sizeof path, &err) != STATUS_OK) fail_msg("%s: %s", name, err.text);
    path_join(whole, sizeof whole, folder->path, expected);
    assert_string_equal(path, whole);
}

static void refuse(const char *name, bool with_weights, enum status status, const char *words,
                   const char *end_of_sentence)
{
    char path[4096];
    struct error err = {""};
    assert_int_equal(hub_cache_find(name, with_weights, path, sizeof path, &err), status);
    if (!strstr(err.text, words)) fail_msg("no '%s' in: %s", words, err.text);
    const size_t length = strlen(err.text), tail = strlen(end_of_sentence);
    if (length < tail || strcmp(err.text + length - tail, end_of_sentence) != 0)
        fail_msg("no '%s' at the end of: %s", end_of_sentence, err.text);
}

/* Checked against huggingface_hub's validate_repo_id on 20,000 random names. */
static void test_names(void **state)
{
    (void)state;
    static const char *const good[] = {"org/name",    "a/b",           "Qwen/Qwen3-0.6B",    "_a/b_",
                                       "a.b/c-d_e.f", "org/name@main", "org/name@refs/pr/1", "a/b@v1.0+x",
                                       "a/gitx.gi",   "01/23",         "org/name@" COMMIT};
    static const char *const bad[] = {"",         "name",       "/name",  "org/",     "a/b/c",     "/a/b",
                                      "./name",   "../name",    "org/..", "a/b..c",   "a--b/c",    "a/b--c",
                                      "-a/b",     "a/b-",       ".a/b",   "a/b.",     "a/b.git",   "a/b@",
                                      "a/b@../c", "a/b@/x",     "a/b@x/", "a/b@x//y", "a/b@x y",   "a/b@$(x)",
                                      "a b/c",    "a/\xc3\xa9", "~/name", "a@b/c",    "org/name/", "a/b@x@y"};
    char longest[PATH_MAX];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!hub_cache_is_name(good[i])) fail_msg("%s is a name", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hub_cache_is_name(bad[i])) fail_msg("%s is no name", bad[i]);
    for (int length = 95; length <= 97; length++) {
        snprintf(longest, sizeof longest, "a/%0*d", length, 0);
        assert_int_equal(hub_cache_is_name(longest), length <= 96);
    }
    snprintf(longest, sizeof longest, "a/b@%0*d", 1000, 0);
    assert_false(hub_cache_is_name(longest));
}

static void test_revisions(void **state)
{
    const struct temp_folder *folder = *state;
    add_snapshot(folder);
    add_file(folder, "config.json", NULL);
    add_file(folder, "model.safetensors", NULL);
    find(folder, "org/name", SNAPSHOT);
    find(folder, "org/name@main", SNAPSHOT);
    find(folder, "org/name@pr/1", SNAPSHOT);
    find(folder, "org/name@" COMMIT, SNAPSHOT);
    refuse("org/name@v1", true, STATUS_IO, "does not have its revision \"v1\"", ": hf download org/name --revision v1");
    find(folder, "org/name@0123", SNAPSHOT);
    find(folder, "org/name@0123456789abcdef", SNAPSHOT);
    refuse("org/name@012", true, STATUS_IO, "revision \"012\"", "hf download org/name --revision 012");
    refuse("org/name@0124", true, STATUS_IO, "revision \"0124\"", "hf download org/name --revision 0124");
    refuse("org/name@0123456789ABCDEF", true, STATUS_IO, "revision \"0123",
           "hf download org/name --revision "
           "0123456789ABCDEF");
    temp_folder_add_folder(folder, REPO "/snapshots/" OTHER);
    refuse("org/name@01234567", true, STATUS_INVALID, "has " OTHER " and " COMMIT, "; give more digits");
    find(folder, "org/name@0123456789", SNAPSHOT);
    temp_folder_write_string(folder, REPO "/refs/01234567", COMMIT); /* a branch goes first */
    find(folder, "org/name@01234567", SNAPSHOT);
    refuse("org/other", true, STATUS_IO, "/hub/models--org--other)", ": hf download org/other");
    /* a ref whose snapshot was deleted, one that is no commit, and one that leads out of the folder */
    temp_folder_write_string(folder, REPO "/refs/main", "f" COMMIT);
    refuse("org/name", true, STATUS_INVALID, "refs/main: expected a commit of 40", "\"f" COMMIT "\"");
    temp_folder_write_string(folder, REPO "/refs/main", "../../../x");
    refuse("org/name", true, STATUS_INVALID, "expected a commit of 40", "\"../../../x\"");
    temp_folder_write_string(folder, REPO "/refs/main", "");
    refuse("org/name", true, STATUS_INVALID, "expected a commit of 40", "found \"\"");
    temp_folder_write_string(folder, REPO "/refs/main", "aaaaaaaaaabbbbbbbbbbccccccccccdddddddddd");
    refuse("org/name", true, STATUS_IO, "revision \"main\"", ": hf download org/name");
}

/* The folders are those of huggingface_hub 1.33 (constants.HF_HUB_CACHE) with the same variables. */
static void test_cache_folder(void **state)
{
    (void)state;
    static const struct {
        const char *values[4]; /* as `variables` */
        const char *folder;    /* "~": below the home */
    } cases[] = {
        {{NULL, NULL, NULL, NULL}, "~/.cache/huggingface/hub"},
        {{"", "", "", ""}, "~/.cache/huggingface/hub"},
        {{"/z", "/y", "/x", "/w"}, "/z"},
        {{NULL, "/y", "/x", "/w"}, "/y"},
        {{NULL, NULL, "/x", "/w"}, "/x/hub"},
        {{NULL, NULL, NULL, "/w"}, "/w/huggingface/hub"},
        {{NULL, NULL, "/x/", NULL}, "/x/hub"},
        {{"relative/z", NULL, NULL, NULL}, "relative/z"},
        {{"~/z", NULL, NULL, NULL}, "~/z"},
        {{NULL, NULL, "~", NULL}, "~/hub"},
        {{NULL, "$HOME/y", NULL, NULL}, "~/y"},
        {{NULL, NULL, "${HOME}x/$QUIRE_TEST_NOT_SET/${HOME$", NULL}, "~x/$QUIRE_TEST_NOT_SET/${HOME$/hub"},
        {{"a~/z", NULL, NULL, NULL}, "a~/z"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[1024];
        for (int k = 0; k < 4; k++)
            if (cases[i].values[k]) {
                setenv(variables[k], cases[i].values[k], 1);
            } else {
                unsetenv(variables[k]);
            }
        const bool home = cases[i].folder[0] == '~';
        snprintf(words, sizeof words, "(%s%s/models--org--name)", home ? getenv("HOME") : "", cases[i].folder + home);
        refuse("org/name", true, STATUS_IO, words, ": hf download org/name");
    }
}

static void test_incomplete(void **state)
{
    const struct temp_folder *folder = *state;
    add_snapshot(folder);
    refuse("org/name", false, STATUS_IO, ": config.json is not in", "continue it with: hf download org/name");
    add_file(folder, "config.json", NULL);
    char path[4096];
    struct error err = {""};
    assert_int_equal(hub_cache_find("org/name", false, path, sizeof path, &err), STATUS_OK);
    refuse("org/name@pr/1", true, STATUS_IO, ": model.safetensors is not in", "hf download org/name --revision pr/1");
    /* Weights in another form count, unless something is still being downloaded. */
    add_file(folder, "pytorch_model.bin", NULL);
    find(folder, "org/name", SNAPSHOT);
    temp_folder_write_string(folder, REPO "/blobs/abc.incomplete", "");
    refuse("org/name", true, STATUS_IO, ": model.safetensors is not in", ": hf download org/name");
    /* An index names all files. */
    temp_folder_write_string(folder, SNAPSHOT "/model.safetensors.index.json",
                             "{\"weight_map\":{\"a\":\"m-1.safetensors\",\"b\":\"m-2.safetensors\"}}");
    refuse("org/name", true, STATUS_IO, ": m-1.safetensors is not in", ": hf download org/name");
    add_file(folder, "m-1.safetensors", NULL);
    refuse("org/name", true, STATUS_IO, ": m-2.safetensors is not in", ": hf download org/name");
    add_file(folder, "m-2.safetensors", NULL);
    find(folder, "org/name", SNAPSHOT);
    temp_folder_delete(folder, REPO "/blobs/m-2.safetensors"); /* a broken link */
    refuse("org/name", true, STATUS_IO, ": m-2.safetensors is not in", ": hf download org/name");
}

static void resolve(const char *given, const char *expected)
{
    const char *model = given;
    char path[4096];
    struct error err = {""};
    if (model_folder_resolve(&model, NULL, true, path, sizeof path, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_string_equal(model, expected);
}

/* --revision, as a user gives it. */
static void test_revision_flag(void **state)
{
    static const struct {
        const char *model, *revision, *sentence; /* NULL: found */
    } cases[] = {
        {"org/name", "pr/1", NULL},
        {"org/name", "0123456", NULL},
        {"org/name@pr/1", "pr/1", NULL},
        {"org/name", "v1", "org/name@v1: no such folder, and the Hugging Face cache"},
        {"org/name@main", "pr/1", "org/name@main has a revision already, and --revision is pr/1"},
        {"org/name", "../x", "--revision ../x is no branch, tag or commit"},
        {QUIRE_GUIDE, "main", "--revision main is for a model ORG/NAME"},
        {NULL, "main", "--revision main is for a model ORG/NAME"},
    };
    const struct temp_folder *folder = *state;
    char path[4096], snapshot[512];
    add_snapshot(folder);
    add_file(folder, "config.json", NULL);
    path_join(snapshot, sizeof snapshot, folder->path, SNAPSHOT);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *model = cases[i].model;
        struct error err = {""};
        const enum status status = model_folder_resolve(&model, cases[i].revision, false, path, sizeof path, &err);
        if (!cases[i].sentence && (status != STATUS_OK || strcmp(model, snapshot) != 0))
            fail_msg("%s %s: %s", cases[i].model, cases[i].revision, err.text);
        if (cases[i].sentence && (status == STATUS_OK || !strstr(err.text, cases[i].sentence)))
            fail_msg("no '%s' in: %s", cases[i].sentence, err.text);
    }
}

/* What is there under the given name wins; what cannot be a name stays as it is. */
static void test_what_wins(void **state)
{
    const struct temp_folder *folder = *state;
    char snapshot[512];
    path_join(snapshot, sizeof snapshot, folder->path, SNAPSHOT);
    add_snapshot(folder);
    add_file(folder, "config.json", NULL);
    add_file(folder, "model.safetensors", NULL);
    const int before = open(".", O_RDONLY | O_DIRECTORY);
    assert_true(before >= 0 && chdir(folder->path) == 0);
    resolve("org/name", snapshot);
    resolve("some/missing/path", "some/missing/path");
    resolve("./missing", "./missing");
    temp_folder_add_folder(folder, "org/name");
    resolve("org/name", "org/name");
    resolve("org/name@main", snapshot);
    temp_folder_write_string(folder, "org/file", "");
    resolve("org/file", "org/file");
    assert_int_equal(fchdir(before), 0);
    close(before);
}

static void run(struct program *p, const char *command, const char *more, const char *model)
{
    program_run(p, (const char *[]){QUIRE_EXECUTABLE, command, more, "--device", "cpu", "--model", model, NULL}, NULL);
}

/* Every command takes a name, and the model is read through the links. */
static void test_commands(void **state)
{
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.model", "tokenizer_config.json"};
    static const char *const commands[][2] = {
        {"generate", "--quiet"}, {"chat", "--max-num-seqs=4"}, {"profile", "--json"}, {"bench", "kernels"}};
    const struct temp_folder *folder = *state;
    struct program p;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        run(&p, commands[i][0], commands[i][1], "org/name");
        assert_int_equal(p.exit_status, EXIT_STATUS_FAILURE);
        assert_non_null(strstr(p.err.data, "models--org--name); download it with: hf download org/name\n"));
        program_free(&p);
    }
    run(&p, "generate", "--quiet", "some/missing/path");
    assert_non_null(strstr(p.err.data, "some/missing/path: no such folder; name one with config.json"));
    program_free(&p);
    setenv("QUIRE_MODEL", "org/name", 1); /* where no --model is given */
    program_run(&p, (const char *[]){QUIRE_EXECUTABLE, "inspect", "--device", "cpu", NULL}, NULL);
    unsetenv("QUIRE_MODEL");
    assert_non_null(strstr(p.err.data, "models--org--name); download it with: hf download org/name\n"));
    program_free(&p);
    run(&p, "inspect", "--json", "missing");
    assert_non_null(
        strstr(p.err.data, "missing: no such folder; a model in the Hugging Face cache is named ORG/NAME\n"));
    program_free(&p);
    add_snapshot(folder);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) add_file(folder, files[i], QUIRE_GUIDE);
    for (size_t i = 0; i < 2; i++) {
        run(&p, commands[i][0], commands[i][1], "org/name@main");
        if (p.exit_status != EXIT_STATUS_OK) fail_msg("%s", p.err.data);
        program_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test_setup_teardown(test_revisions, setup, teardown),
        cmocka_unit_test_setup_teardown(test_cache_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_incomplete, setup, teardown),
        cmocka_unit_test_setup_teardown(test_revision_flag, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_wins, setup, teardown),
        cmocka_unit_test_setup_teardown(test_commands, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
