/* quire inspect: what a checkpoint folder holds, and what of it fits here. */
#include <limits.h>

#include "base/json.h"
#include "runtime/commands.h"
#include "runtime/inspect/inspect_json.h"
#include "runtime/inspect/inspect_text.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/model_folder.h"

static enum status print_json(const struct inspection *i, struct error *err)
{
    json_t *json = inspection_json(i);
    if (!json) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the report");
    const size_t style = JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(9);
    const bool ok = json_print(json, style, stdout);
    json_decref(json);
    return ok ? STATUS_OK : error_set(err, STATUS_IO, "cannot write the report to standard output");
}

static enum status print_text(const struct inspection *i, struct error *err)
{
    if (inspection_print(i)) return STATUS_OK;
    return error_set(err, STATUS_IO, "cannot write the report to standard output");
}

static enum status run_inspect(const struct engine_options *o, bool json, struct error *err)
{
    struct inspection i = {.options = o};
    enum status status = inspection_read(&i, err);
    if (status == STATUS_OK) status = json ? print_json(&i, err) : print_text(&i, err);
    inspection_free(&i);
    return status;
}

int command_inspect(int argc, char **argv)
{
    struct error err;
    struct log log = {LOG_WARNING};
    struct engine_options o = engine_options_default();
    struct option_table table = {0};
    char model[PATH_MAX];
    bool help = false, json = false;
    const struct option_spec flag = {.heading = "Inspect:",
                                     .name = "json",
                                     .common = true,
                                     .kind = OPTION_SWITCH,
                                     .target = &json,
                                     .help = "Print one JSON object; sizes are bytes. Default: off."};
    o.log = &log;
    option_table_add(&table, &flag, 1);
    engine_flags_add(&table, &o, &log);
    if (options_parse(&table, argc, argv, &help, &err) != STATUS_OK)
        return command_fail("inspect", &err, EXIT_STATUS_USAGE);
    if (help) {
        options_print_help(&table, "inspect [flags]",
                           "Shows what a checkpoint folder holds and what of it fits this machine, without loading it.",
                           stdout);
        return EXIT_STATUS_OK;
    }
    if (model_folder_resolve(&o.model, o.revision, false, model, sizeof model, &err) != STATUS_OK ||
        run_inspect(&o, json, &err) != STATUS_OK)
        return command_fail("inspect", &err, EXIT_STATUS_FAILURE);
    return EXIT_STATUS_OK;
}
