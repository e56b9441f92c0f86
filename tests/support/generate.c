#include "tests/support/generate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_ARGS = 40 };

void generate_run(struct program *p, const struct temp_folder *model, const char *input, const char *const *more)
{
    const char *const first[] = {
        QUIRE_EXECUTABLE, "generate", "--model",         model->path, "--load-format",    "dummy", "--device", "cpu",
        "--max-num-seqs", "4",        "--max-model-len", "512",       "--kv-cache-space", "0.1"};
    const char *argv[MAX_ARGS + 1];
    int argc = 0;
    for (size_t i = 0; i < sizeof first / sizeof first[0]; i++) argv[argc++] = first[i];
    while (argc < MAX_ARGS && *more) argv[argc++] = *more++;
    argv[argc] = NULL;
    program_run(p, argv, input);
}

int generate_count_lines(const struct text *written)
{
    int count = 0;
    for (size_t i = 0; i < written->length; i++) count += written->data[i] == '\n';
    return count;
}

json_t *generate_line(const struct text *written, int index)
{
    const char *at = written->data;
    json_error_t why;
    for (int i = 0; i < index && at; i++) {
        at = strchr(at, '\n');
        if (at) at++;
    }
    const char *end = at ? strchr(at, '\n') : NULL;
    if (!end) fail_msg("there is no line %d in: %s", index, written->data);
    json_t *line = json_loadb(at, (size_t)(end - at), 0, &why);
    if (!json_is_object(line)) fail_msg("line %d: %s", index, why.text);
    return line;
}
