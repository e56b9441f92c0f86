#include <string.h>

#include "scheduler/scheduler_state.h"

/* A sequence takes over what another held: tokens, blocks and state. Its place on the device stays its own. */
static void take_over(struct sequence *seq, const struct sequence *from)
{
    seq->tokens = from->tokens;
    seq->num_tokens = from->num_tokens;
    seq->tables = from->tables;
    seq->num_computed = from->num_computed;
    seq->num_hashed = from->num_hashed;
    seq->prefix = from->prefix;
    seq->state = from->state;
}

/* Entries of the table that the sequence's row on the device has already, once it holds the parent's blocks. */
static int32_t num_equal(const struct sequence *seq, const struct sequence *parent, int32_t group)
{
    const struct block_table *a = &seq->tables[group], *b = &parent->tables[group];
    int32_t most = seq->num_uploaded[group] < b->num_blocks ? seq->num_uploaded[group] : b->num_blocks, count = 0;
    while (count < most && a->blocks[count] == b->blocks[count]) count++;
    return count;
}

/* The sequence shares what the parent holds. */
static void copy_parent(struct scheduler *s, struct sequence *seq, struct sequence *parent)
{
    int32_t num_uploaded[KV_MAX_GROUPS];
    struct error err;
    memcpy(num_uploaded, seq->num_uploaded, sizeof num_uploaded);
    enum status status = block_manager_release(&s->blocks, seq, &err);
    if (status == STATUS_OK) status = block_manager_fork(&s->blocks, parent, seq, &err);
    if (status != STATUS_OK) scheduler_set_unsound(s, &err);
    memcpy(seq->num_uploaded, num_uploaded, sizeof num_uploaded);
    memcpy(seq->tokens + seq->prompt_len, parent->tokens + seq->prompt_len,
           (size_t)(parent->num_tokens - seq->prompt_len) * sizeof *seq->tokens);
    seq->num_tokens = parent->num_tokens;
}

/* The first sequence that continues a parent takes over what it held; the heir of parent p is noted in
 * parents[p].index, -1: nobody continues it. */
static void inherit(struct scheduler *s, struct request *request, const struct beam *beams)
{
    for (int32_t i = 0; i < request->num_sequences; i++) s->parents[i].index = -1;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *parent = &s->parents[beams[i].parent], *seq = &request->sequences[i];
        if (seq->status == SEQUENCE_FINISHED || parent->index >= 0) continue;
        parent->index = i;
        take_over(seq, parent);
    }
}

/* The others take over what nobody continues, and exchange it for what their parent's heir holds. */
static void copy_others(struct scheduler *s, struct request *request, const struct beam *beams)
{
    int32_t spare = 0;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        struct sequence *seq = &request->sequences[i];
        const int32_t heir = s->parents[beams[i].parent].index;
        if (seq->status == SEQUENCE_FINISHED || heir == i) continue;
        while (s->parents[spare].index >= 0 || s->parents[spare].status == SEQUENCE_FINISHED) spare++;
        take_over(seq, &s->parents[spare++]);
        copy_parent(s, seq, &request->sequences[heir]);
    }
}

void scheduler_set_beams(struct scheduler *s, struct request *request, const struct beam *beams)
{
    struct sequence *seqs = request->sequences;
    if (s->unsound) return;
    for (int32_t i = 0; i < request->num_sequences; i++)
        for (int32_t g = 0; g < s->config.limits.num_groups && seqs[i].status != SEQUENCE_FINISHED; g++)
            seqs[i].num_uploaded[g] = num_equal(&seqs[i], &seqs[beams[i].parent], g);
    memcpy(s->parents, seqs, (size_t)request->num_sequences * sizeof *seqs);
    inherit(s, request, beams);
    copy_others(s, request, beams);
    for (int32_t i = 0; i < request->num_sequences; i++) {
        if (seqs[i].status == SEQUENCE_FINISHED) continue;
        seqs[i].tokens[seqs[i].num_tokens++] = beams[i].token;
        seqs[i].num_pending = 0;
        seqs[i].num_writable = 0; /* its row of the device's tables may be another beam's */
    }
    for (int32_t i = 0; i < request->num_sequences; i++) /* blocks of the host cannot be found */
        if (seqs[i].status == SEQUENCE_RUNNING) block_manager_hash(&s->blocks, &seqs[i]);
    /* It was preempted before these tokens, which may be too many for its namespace. */
    if (request->queue == &s->waiting) scheduler_set_namespace(s, request);
    scheduler_check_after(s);
}
