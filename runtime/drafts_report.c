#include "runtime/drafts_report.h"

#include <stdio.h>

#include "base/plural.h"

/* Tokens that a run yields: the drafts accepted, and the one that was drawn behind them. */
static double tokens_a_run(const struct scheduler_stats *s)
{
    return 1 + (double)s->drafts_accepted / (double)s->runs;
}

void drafts_report(struct report *r, const struct scheduler_stats *s)
{
    report_integer(r, "spec_decode_num_drafts", "runs with drafts", s->runs);
    report_integer(r, "spec_decode_draft_tokens", "drafted", s->drafts);
    report_integer(r, "spec_decode_accepted_tokens", "accepted", s->drafts_accepted);
    report_number(r, "spec_decode_acceptance_rate", "of those drafted",
                  100 * (double)s->drafts_accepted / (double)s->drafts, "%");
    report_number(r, "spec_decode_acceptance_length", "mean accepted length, with the token after the drafts",
                  tokens_a_run(s), "tokens");
}

struct drafts_words drafts_words(const char *drafter, const struct scheduler_stats *s)
{
    struct drafts_words words = {""};
    if (!drafter) return words;
    if (s->runs == 0)
        snprintf(words.text, sizeof words.text, "no drafts (%s)", drafter);
    else
        snprintf(words.text, sizeof words.text, "%s draft%s (%s), %s of them accepted, %.1f tokens a run",
                 grouped(s->drafts).text, plural(s->drafts), drafter, grouped(s->drafts_accepted).text,
                 tokens_a_run(s));
    return words;
}
