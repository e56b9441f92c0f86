#include "base/batch.h"

#include <stdlib.h>

#include "base/plural.h"

enum status batch_init(struct batch *batch, const struct batch_limits *limits, struct error *err)
{
    const size_t tokens = (size_t)limits->max_num_tokens;
    const size_t seqs = (size_t)limits->max_num_seqs;
    const size_t groups = (size_t)limits->num_groups;
    *batch = (struct batch){.limits = *limits};
    /* The most that a step can change: every entry of every block table, if all sequences start at once with their
     * prefixes cached. A swap moves no more blocks than that. */
    batch->max_deltas = (int32_t)(groups * seqs * (size_t)batch_max_blocks(limits));
    batch->token_ids = calloc(tokens, sizeof *batch->token_ids);
    batch->positions = calloc(tokens, sizeof *batch->positions);
    batch->query_start = calloc(seqs + 1, sizeof *batch->query_start);
    batch->seq_lens = calloc(seqs, sizeof *batch->seq_lens);
    batch->state_indices = calloc(seqs, sizeof *batch->state_indices);
    batch->slot_mapping = calloc(groups * tokens, sizeof *batch->slot_mapping);
    batch->deltas = calloc((size_t)batch->max_deltas, sizeof *batch->deltas);
    batch->logits_indices = calloc(seqs, sizeof *batch->logits_indices);
    batch->sample_state_indices = calloc(seqs, sizeof *batch->sample_state_indices);
    batch->output_positions = calloc(seqs, sizeof *batch->output_positions);
    batch->target_indices = calloc(tokens, sizeof *batch->target_indices);
    batch->target_ids = calloc(tokens, sizeof *batch->target_ids);
    batch->swap_out = calloc((size_t)batch->max_deltas, sizeof *batch->swap_out);
    batch->swap_in = calloc((size_t)batch->max_deltas, sizeof *batch->swap_in);
    batch->copies = calloc(groups * seqs, sizeof *batch->copies);
    if (batch->token_ids && batch->positions && batch->query_start && batch->seq_lens && batch->state_indices &&
        batch->slot_mapping && batch->deltas && batch->logits_indices && batch->sample_state_indices &&
        batch->output_positions && batch->target_indices && batch->target_ids && batch->swap_out && batch->swap_in &&
        batch->copies)
        return STATUS_OK;
    batch_free(batch);
    error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for a batch of %d token%s and %d sequence%s",
              limits->max_num_tokens, plural(limits->max_num_tokens), limits->max_num_seqs,
              plural(limits->max_num_seqs));
    error_advise(err, ADVICE_LOWER, "max_num_batched_tokens", NULL);
    error_advise(err, ADVICE_LOWER, "max_num_seqs", NULL);
    return STATUS_OUT_OF_MEMORY;
}

void batch_free(struct batch *batch)
{
    free(batch->token_ids);
    free(batch->positions);
    free(batch->query_start);
    free(batch->seq_lens);
    free(batch->state_indices);
    free(batch->slot_mapping);
    free(batch->deltas);
    free(batch->logits_indices);
    free(batch->sample_state_indices);
    free(batch->output_positions);
    free(batch->target_indices);
    free(batch->target_ids);
    free(batch->swap_out);
    free(batch->swap_in);
    free(batch->copies);
    *batch = (struct batch){0};
}

void batch_clear(struct batch *batch)
{
    batch->num_tokens = batch->num_seqs = batch->num_decodes = 0;
    batch->max_query_len = batch->max_seq_len = 0;
    batch->num_deltas = batch->num_samples = batch->num_targets = batch->num_target_tops = 0;
    batch->num_swap_out = batch->num_swap_in = batch->num_copies = 0;
}
