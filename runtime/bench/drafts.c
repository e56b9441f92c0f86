#include <stdlib.h>
#include <string.h>

#include "runtime/bench/bench.h"
#include "runtime/drafts_report.h"

static void propose(struct drafter *drafter, struct draft_query *queries, int32_t count)
{
    struct synthetic_drafter *d = (struct synthetic_drafter *)drafter;
    for (int32_t i = 0; i < count; i++) {
        struct draft_query *q = &queries[i];
        for (q->num_drafts = 0; q->num_drafts < q->most; q->num_drafts++)
            q->drafts[q->num_drafts] = random_uniform(&d->random) < d->acceptance ? SYNTHETIC_TOKEN : 0;
    }
}

static struct synthetic_drafter synthetic_drafter(double acceptance, uint64_t seed)
{
    return (struct synthetic_drafter){
        .drafter = {.name = "synthetic", .propose = propose}, .acceptance = acceptance, .random = {seed}};
}

/* A probability, or "none". */
static enum status parse_acceptance(void *target, const char *text, struct error *err)
{
    struct bench_options *o = target;
    char *end = NULL;
    const bool none = strcmp(text, "none") == 0;
    const double acceptance = none ? -1 : strtod(text, &end);
    if (!none && (end == text || *end || !(acceptance >= 0 && acceptance <= 1)))
        return error_set(err, STATUS_INVALID, "expected a number from 0 to 1, or none, got '%s'", text);
    o->synthetic = true;
    o->synthetic_acceptance = acceptance;
    return STATUS_OK;
}

struct option_spec bench_drafts_flag(struct bench_options *o)
{
    return (struct option_spec){
        "synthetic-acceptance-rate",
        OPTION_CUSTOM,
        o,
        "P|none",
        .help =
            "Measure speculation: --num-speculative-tokens drafts in every run, each accepted with probability P if "
            "those before it are. none: the same requests without drafts, to compare with. Default: other requests, "
            "with drafts if --speculative-model says so.",
        .not_empty = true,
        .parse = parse_acceptance};
}

enum status bench_drafts_add(struct bench_options *o, struct error *err)
{
    if (!o->synthetic) return STATUS_OK;
    if (o->engine.speculative.method != DRAFT_NONE)
        return error_set(err, STATUS_INVALID,
                         "--synthetic-acceptance-rate drafts by itself: leave out the drafter %s of "
                         "--speculative-model or --speculative-config",
                         draft_method_name(o->engine.speculative.method));
    if (o->synthetic_acceptance < 0) return STATUS_OK;
    o->drafter = synthetic_drafter(o->synthetic_acceptance, o->engine.seed);
    o->engine.drafter = &o->drafter.drafter;
    o->engine.fixed_drafts = true;
    return STATUS_OK;
}

void bench_drafts_setting(struct bench *b)
{
    const struct bench_options *o = b->options;
    const struct speculative_config *c = &o->engine.speculative;
    const size_t length = strlen(b->report.title);
    char *end = b->report.title + length;
    const size_t size = sizeof b->report.title - length;
    if (!o->synthetic && c->method == DRAFT_NONE) return;
    report_string(&b->report, "speculative_method", o->synthetic ? "synthetic" : draft_method_name(c->method));
    report_integer(&b->report, "num_speculative_tokens", NULL,
                   o->synthetic_acceptance < 0 ? 0 : c->num_speculative_tokens);
    if (!o->synthetic)
        snprintf(end, size, "\ndrafts   up to %d of %s", c->num_speculative_tokens, draft_method_name(c->method));
    else if (o->synthetic_acceptance < 0)
        snprintf(end, size, "\ndrafts   none, of requests made for synthetic ones");
    else
        snprintf(end, size, "\ndrafts   %d, synthetic, each accepted with probability %g", c->num_speculative_tokens,
                 o->synthetic_acceptance);
    if (o->synthetic && o->synthetic_acceptance >= 0)
        report_number(&b->report, "synthetic_acceptance_rate", NULL, o->synthetic_acceptance, "");
}

void bench_drafts_report(struct bench *b)
{
    struct scheduler_stats stats;
    if (engine_pool_info(b->pool)->limits->max_num_drafts == 0) return;
    engine_pool_stats(b->pool, &stats);
    stats.runs -= b->before.runs;
    stats.drafts -= b->before.drafts;
    stats.drafts_accepted -= b->before.drafts_accepted;
    drafts_report(&b->report, &stats);
}
