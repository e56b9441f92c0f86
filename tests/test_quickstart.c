/* ./quickstart architectures, with an nvidia-smi that says what a test wants: what the CUDA kernels are compiled for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

static const char QUICKSTART[] = QUIRE_GUIDE "/../../quickstart";
static const char EVERY_ARCHITECTURE[] = "80;86;89;90a;100;120\n";

/* Runs quickstart with this shell script as nvidia-smi. */
static void check(const char *nvidia_smi, const char *expected)
{
    struct temp_folder tools;
    struct program p;
    char script[512], path[512], file[512];
    const char *old_path = getenv("PATH");
    temp_folder_make(&tools);
    snprintf(script, sizeof script, "#!/bin/sh\n%s\n", nvidia_smi);
    temp_folder_write_string(&tools, "nvidia-smi", script);
    assert_true(path_join(file, sizeof file, tools.path, "nvidia-smi"));
    assert_int_equal(chmod(file, 0700), 0);
    snprintf(path, sizeof path, "PATH=%s:%s", tools.path, old_path ? old_path : "/usr/bin:/bin");
    program_run(&p, (const char *[]){"/usr/bin/env", path, QUICKSTART, "architectures", NULL}, NULL);
    if (p.exit_status != 0) fail_msg("exit status %d: %s", p.exit_status, p.err.data);
    assert_int_equal(p.err.length, 0);
    assert_string_equal(p.out.data, expected);
    program_free(&p);
    temp_folder_remove(&tools);
}

static int set_up(void **state)
{
    (void)state;
    return unsetenv("CUDAARCHS");
}

/* Where only the test programs and what they read were copied to, there is nothing to build with. */
static void need_sources(void)
{
    if (file_exists(QUICKSTART) && system("cmake --version >/dev/null 2>&1") == 0) return;
    print_message("skipped: no source tree, or no cmake\n");
    skip();
}

static void test_gpus(void **state)
{
    (void)state;
    need_sources();
    check("echo 9.0", "90a\n");
    check("echo 8.0", "80\n");
    check("echo 8.6", "86\n");
    check("echo 8.9", "89\n"); /* an RTX 4090 */
    check("echo 8.9; echo 8.9", "89\n");
    check("echo 10.0", "100\n");
    check("echo 10.3", "100\n");
    check("echo 12.0", "120\n");
    check("echo 12.0; echo 9.0; echo 8.0", "80;90a;120\n");
    check("[ \"$*\" = '--query-gpu=compute_cap --format=csv,noheader' ] && echo 9.0", "90a\n");
}

static void test_no_gpu(void **state)
{
    (void)state;
    need_sources();
    check("echo 'NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.'; exit 9",
          EVERY_ARCHITECTURE);
    check("echo 'No devices were found'; exit 6", EVERY_ARCHITECTURE);
    check("echo 'Field \"compute_cap\" is not a valid field to query.'; exit 2", EVERY_ARCHITECTURE);
    check("exit 127", EVERY_ARCHITECTURE);
}

static void test_old_gpu(void **state)
{
    (void)state;
    need_sources();
    check("echo 7.5", "\n");
    check("echo 7.5; echo 8.6", "86\n");
}

static void test_chosen_by_hand(void **state)
{
    (void)state;
    need_sources();
    setenv("CUDAARCHS", "90a", 1);
    check("echo 8.0", "90a\n");
    check("exit 9", "90a\n");
    unsetenv("CUDAARCHS");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpus),
        cmocka_unit_test(test_no_gpu),
        cmocka_unit_test(test_old_gpu),
        cmocka_unit_test(test_chosen_by_hand),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
