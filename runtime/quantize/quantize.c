/* quire quantize: a checkpoint of floats in, the same with quantized matrices out, in the form of compressed-tensors.
 */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/notice.h"
#include "base/pool.h"
#include "base/processors.h"
#include "model/quantization.h"
#include "runtime/interrupt.h"
#include "runtime/options/command.h"
#include "runtime/options/engine_flags.h"
#include "runtime/options/model_folder.h"
#include "runtime/quantize/output_folder.h"
#include "runtime/quantize/shard.h"

static const char COMMAND[] = "quantize";
static const double GB = 1e9;

struct quantize_options {
    const char *model, *revision, *output, *quantization;
    double max_shard_size; /* GB */
    int32_t threads;
    bool quiet;
};

static void add_flags(const struct command *c, struct option_table *table, void *options)
{
    (void)c;
    struct quantize_options *o = options;
    *o = (struct quantize_options){.max_shard_size = 5};
    model_flags_add(table, &o->model, &o->revision, "Quantize:");
    const struct option_spec specs[] = {
        {"output", OPTION_STRING, &o->output, "FOLDER",
         .help = "Where the quantized checkpoint goes: a new folder, an empty one, or one that the same command has "
                 "begun. It must be given.",
         .letter = 'o', .common = true, .not_empty = true},
        {"quantization", OPTION_CHOICE, &o->quantization, "fp8|int8|int4",
         .help = "The format of the matrices, as of --quantization while loading. It must be given.", .common = true},
        {"max-shard-size", OPTION_DOUBLE, &o->max_shard_size, "GB",
         .help = "Most of a file of weights, in GB; a matrix is never divided. Default: 5.", .common = true,
         .minimum = 1e-6, .maximum = INFINITY},
        {"threads", OPTION_INT32, &o->threads, "N",
         .help =
             "Threads of the CPU. Default: 0, every processor that may be used, as far as a container's quota goes.",
         .letter = 't', .common = true, .minimum = 0, .maximum = 4096},
        {"quiet", OPTION_SWITCH, &o->quiet, .help = "No progress and no summary on stderr. Default: off.",
         .letter = 'q', .common = true},
    };
    option_table_add(table, specs, (int)(sizeof specs / sizeof specs[0]));
}

/* ---- the work ---- */

struct run {
    const struct quantize_options *options;
    struct model_config config;
    struct quantize_plan plan;
    struct output_folder folder;
    struct shard_writer writer;
};

static enum status read_config(struct run *r, const char *model, struct error *err)
{
    const struct log log = {LOG_WARNING};
    struct model_spec *spec = &r->config.spec;
    enum status status = model_config_load(model, NULL, &log, &r->config, err);
    if (status != STATUS_OK) return status;
    if (spec->num_schemes > 1)
        return error_set(err, STATUS_INVALID,
                         "%s is quantized already (%s); give the checkpoint of floats from which it was made", model,
                         quantization_words(spec).text);
    return quantization_apply(spec, r->options->quantization, err);
}

/* What earlier runs have written counts as done. */
static enum status count_work(struct run *r, struct error *err)
{
    struct shard_writer *w = &r->writer;
    uint64_t to_write = 0;
    shard_remove_part(w);
    w->total = tensor_file_bytes(r->plan.weights.file);
    for (int64_t i = 0; i < r->plan.num_shards; i++) {
        const struct planned_shard *shard = &r->plan.shards[i];
        if (shard_is_whole(w, shard))
            w->done_before += shard->stored_bytes;
        else
            to_write += shard->layout.file_bytes;
    }
    w->done = w->done_before;
    return output_folder_check_room(&r->folder, to_write, err);
}

static enum status write_shards(struct run *r, struct error *err)
{
    struct shard_writer *w = &r->writer;
    const int threads = r->options->threads > 0 ? r->options->threads : processors_allowed();
    enum status status = pool_open(threads, &w->pool, err);
    progress_start(&w->progress, r->options->quiet ? NULL : COMMAND);
    for (int64_t i = 0; i < r->plan.num_shards && status == STATUS_OK; i++)
        if (!shard_is_whole(w, &r->plan.shards[i])) status = shard_write(w, &r->plan.shards[i], err);
    progress_clear(&w->progress);
    pool_close(w->pool);
    return status;
}

static void print_summary(const struct run *r)
{
    const struct quantize_plan *p = &r->plan;
    fprintf(stderr, "quire quantize: %lld matrices to %s; %.3g GB became %.3g GB in %lld file%s: %s\n",
            (long long)p->num_quantized, r->options->quantization, (double)r->writer.total / GB,
            (double)p->file_bytes / GB, (long long)p->num_shards, plural(p->num_shards), r->folder.path);
}

static void note_experts(const struct run *r)
{
    if (r->plan.cuts_experts)
        notice_printf(stderr, "quire quantize: note: the experts of this model are written a tensor for each, as vLLM "
                              "reads them; transformers does not\n");
}

static enum status quantize(struct run *r, const char *model, struct error *err)
{
    const struct quantize_options *o = r->options;
    r->folder = (struct output_folder){
        .path = o->output, .model = model, .quantization = o->quantization, .max_shard_size = o->max_shard_size};
    r->writer = (struct shard_writer){.plan = &r->plan, .folder = o->output};
    enum status status = output_folder_open(&r->folder, err);
    if (status == STATUS_OK && !o->quiet) note_experts(r);
    if (status == STATUS_OK) status = count_work(r, err);
    if (status == STATUS_OK) status = write_shards(r, err);
    if (status == STATUS_OK) status = output_folder_finish(&r->folder, &r->plan, err);
    if (status == STATUS_OK && !o->quiet) print_summary(r);
    output_folder_close(&r->folder);
    return status;
}

static enum status read_and_quantize(const struct quantize_options *o, const char *model, struct error *err)
{
    struct run *r = calloc(1, sizeof *r);
    if (!r) return error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory");
    r->options = o;
    enum status status = read_config(r, model, err);
    if (status == STATUS_OK) status = quantize_plan_make(model, &r->config.spec, o->max_shard_size * GB, &r->plan, err);
    if (status == STATUS_OK) status = quantize(r, model, err);
    quantize_plan_free(&r->plan);
    free(r);
    return status;
}

static int run(void *options)
{
    struct quantize_options *o = options;
    struct error err;
    char model[PATH_MAX];
    if (!o->output || !o->quantization) {
        error_set(&err, STATUS_INVALID,
                  o->output ? "give --quantization fp8, int8 or int4"
                            : "give --output FOLDER, where the quantized checkpoint goes");
        return command_fail(COMMAND, &err, EXIT_STATUS_USAGE);
    }
    interrupt_catch_to_end();
    enum status status = model_folder_resolve(&o->model, o->revision, true, model, sizeof model, &err);
    if (status == STATUS_OK) status = read_and_quantize(o, o->model, &err);
    if (status == STATUS_CANCELLED)
        error_set(&err, status, "ended before the folder was whole; the same command goes on with it");
    return status == STATUS_OK ? EXIT_STATUS_OK : command_fail(COMMAND, &err, EXIT_STATUS_FAILURE);
}

const struct command command_quantize = {
    .name = COMMAND,
    .summary = "write a checkpoint with quantized matrices",
    .usage = "quantize --output FOLDER --quantization fp8|int8|int4 [flags]",
    .help =
        "Writes a folder in the form of compressed-tensors, with all other files of the model, that quire, vLLM and "
        "transformers load. Killed, it goes on when the same command is started again.",
    .options_size = sizeof(struct quantize_options),
    .add = add_flags,
    .run = run,
};
