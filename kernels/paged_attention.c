#include "kernels/backend.h"

bool paged_attention_use_v1(int32_t max_seq_len, int32_t num_seqs, int32_t num_heads)
{
    int64_t num_partitions =
        ((int64_t)max_seq_len + PAGED_ATTENTION_PARTITION_SIZE - 1) / PAGED_ATTENTION_PARTITION_SIZE;
    return max_seq_len <= 8192 && (num_partitions <= 1 || (int64_t)num_seqs * num_heads > 512);
}

void paged_attention(struct backend *b, const struct attention_args *args, int32_t num_decodes, int32_t num_seqs)
{
    struct attention_args part = *args;
    if (num_decodes > 0) {
        part.first_seq = 0;
        part.num_seqs = num_decodes;
        part.max_query_len = 1;
        if (paged_attention_use_v1(args->max_seq_len, num_decodes, args->num_heads)) {
            b->paged_attention_v1(b, &part);
        } else {
            b->paged_attention_v2(b, &part);
        }
    }
    if (num_seqs > num_decodes) {
        part.first_seq = num_decodes;
        part.num_seqs = num_seqs - num_decodes;
        part.max_query_len = args->max_query_len;
        b->paged_attention_prefill(b, &part);
    }
}
