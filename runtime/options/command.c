#include "runtime/options/command.h"

#include "base/notice.h"

/* "max_model_len" is --max-model-len. */
void command_spell_flag(const char *setting, char *out, size_t size)
{
    snprintf(out, size, "--%s", setting);
    for (char *at = out; *at; at++)
        if (*at == '_') *at = '-';
}

struct sentence command_sentence(const struct error *err)
{
    return error_sentence(err, command_spell_flag);
}

int command_fail(const char *command, const struct error *err, int exit_status)
{
    notice_printf(stderr, "quire %s: %s\n", command, command_sentence(err).text);
    return exit_status;
}
