#include "runtime/commands.h"

#include <stdio.h>

int command_fail(const char *command, const struct error *err, int exit_status)
{
    fprintf(stderr, "quire %s: %s\n", command, err->text);
    return exit_status;
}
