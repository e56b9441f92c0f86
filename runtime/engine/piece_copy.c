#include "runtime/engine/piece_copy.h"

#include <stdlib.h>
#include <string.h>

/* Where copies are put, one behind the other. */
struct packer {
    char *base; /* NULL: they are only counted */
    size_t used;
};

static void *pack(struct packer *p, const void *data, size_t bytes)
{
    enum { ALIGNMENT = 8 };
    if (!data) return NULL;
    char *at = p->base ? p->base + p->used : NULL;
    if (at) memcpy(at, data, bytes);
    p->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return at;
}

static const struct prompt_logprobs *pack_prompt_logprobs(struct packer *p, const struct prompt_logprobs *from)
{
    struct prompt_logprobs *to = pack(p, from, sizeof *from);
    if (!from) return NULL;
    const size_t count = (size_t)from->num_tokens, num_top = (size_t)from->num_top;
    struct prompt_logprobs copy = *from;
    copy.logprobs = pack(p, from->logprobs, count * sizeof *from->logprobs);
    copy.ranks = pack(p, from->ranks, count * sizeof *from->ranks);
    copy.top_ids = pack(p, from->top_ids, count * num_top * sizeof *from->top_ids);
    copy.top_logprobs = pack(p, from->top_logprobs, count * num_top * sizeof *from->top_logprobs);
    if (to) *to = copy;
    return to;
}

/* A piece whose pointers lead to copies. */
static struct answer_piece pack_piece(struct packer *p, const struct answer_piece *from)
{
    struct answer_piece to = *from;
    const size_t count = (size_t)from->num_tokens, num_top = (size_t)from->num_top;
    to.token_ids = pack(p, from->token_ids, count * sizeof *from->token_ids);
    to.text = pack(p, from->text, from->text_length);
    to.logprob = pack(p, from->logprob, sizeof *from->logprob);
    to.rank = pack(p, from->rank, sizeof *from->rank);
    to.top_ids = pack(p, from->top_ids, num_top * sizeof *from->top_ids);
    to.top_logprobs = pack(p, from->top_logprobs, num_top * sizeof *from->top_logprobs);
    to.prompt_logprobs = pack_prompt_logprobs(p, from->prompt_logprobs);
    to.prompt_ids = pack(p, from->prompt_ids, (size_t)from->prompt_tokens * sizeof *from->prompt_ids);
    to.stop_reason = pack(p, from->stop_reason, from->stop_reason ? strlen(from->stop_reason) + 1 : 0);
    to.error = pack(p, from->error, sizeof *from->error);
    to.score = pack(p, from->score, sizeof *from->score);
    return to;
}

struct piece_copy *piece_copy_create(const struct answer_piece *piece, void *user)
{
    struct packer packer = {0};
    pack_piece(&packer, piece);
    struct piece_copy *copy = malloc(sizeof *copy + packer.used);
    if (!copy) return NULL;
    packer = (struct packer){.base = (char *)(copy + 1)};
    *copy = (struct piece_copy){.user = user, .piece = pack_piece(&packer, piece)};
    return copy;
}
