/* quire inspect: what a checkpoint folder holds, and what of it fits here. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "runtime/options/command.h"
#include "runtime/inspect/inspection.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/model_folder.h"
#include "runtime/report.h"

static enum status print(const struct inspection *i, bool as_json, struct error *err)
{
    json_t *json = as_json ? inspection_json(i) : NULL;
    if (as_json && !json) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for the report");
    const bool ok = as_json ? report_print_json(json, stdout) : inspection_print(i);
    const enum status status =
        ok ? STATUS_OK : error_set(err, STATUS_IO, "cannot write the report to standard output: %s", strerror(errno));
    json_decref(json);
    return status;
}

struct inspect_options {
    struct engine_options engine;
    struct log log;
    bool json;
};

static void add_flags(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct inspect_options *o = options;
    *o = (struct inspect_options){.engine = engine_options_default(), .log = {LOG_WARNING}};
    o->engine.log = &o->log;
    const struct option_spec json = {"json",
                                     OPTION_SWITCH,
                                     &o->json,
                                     .help = "Print one JSON object; sizes are bytes. Default: off.",
                                     .heading = "Inspect:",
                                     .common = true};
    option_table_add(table, &json, 1);
    engine_flags_add(table, &o->engine, &o->log);
}

static int run(void *options)
{
    struct inspect_options *o = options;
    struct inspection i = {.options = &o->engine};
    struct error err;
    char model[PATH_MAX];
    if (engine_flags_check_one(&o->engine, "quire inspect plans for one engine", &err) != STATUS_OK)
        return command_fail("inspect", &err, EXIT_STATUS_USAGE);
    enum status status = model_folder_resolve(&o->engine.model, o->engine.revision, false, model, sizeof model, &err);
    if (status == STATUS_OK) status = inspection_read(&i, &err);
    if (status == STATUS_OK) status = print(&i, o->json, &err);
    inspection_free(&i);
    return status == STATUS_OK ? EXIT_STATUS_OK : command_fail("inspect", &err, EXIT_STATUS_FAILURE);
}

const struct command command_inspect = {
    .name = "inspect",
    .summary = "show what a checkpoint folder holds, and what of it fits here",
    .usage = "inspect [flags]",
    .help = "Shows what a checkpoint folder holds and what of it fits this machine, without loading it.",
    .options_size = sizeof(struct inspect_options),
    .add = add_flags,
    .run = run,
};
