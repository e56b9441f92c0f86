#include "scheduler/scheduler_state.h"

void scheduler_set_unsound(struct scheduler *s, const struct error *err)
{
    if (!s->unsound) s->violation = *err;
    s->unsound = true;
}

void scheduler_advise_more_blocks(const struct scheduler *s, struct error *err)
{
    if (s->config.blocks_setting) error_advise(err, ADVICE_RAISE, s->config.blocks_setting, NULL);
}

/* ---- what a request may compute ---- */

/* Whether each unfinished sequence has too many tokens for namespace 0. */
static bool is_past_first_namespace(const struct scheduler *s, const struct request *request)
{
    if (s->config.first_namespace_len == 0) return false;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        const struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_FINISHED && seq->num_tokens <= s->config.first_namespace_len) return false;
    }
    return true;
}

void scheduler_set_namespace(const struct scheduler *s, struct request *request)
{
    request->cache_namespace = is_past_first_namespace(s, request);
}

bool scheduler_must_change_namespace(const struct scheduler *s, const struct request *request)
{
    return request->cache_namespace == 0 && is_past_first_namespace(s, request);
}

/* Every beam has a token to choose from, and the caller has yet to call scheduler_set_beams. */
static bool awaits_choice(const struct request *request)
{
    if (!request->beams) return false;
    for (int32_t i = 0; i < request->num_sequences; i++)
        if (request->sequences[i].status != SEQUENCE_FINISHED && request->sequences[i].num_pending == 0) return false;
    return true;
}

bool scheduler_can_go_on(const struct scheduler *s, const struct request *request)
{
    if (awaits_choice(request)) return false;
    for (int32_t i = 0; i < request->num_sequences; i++) {
        const struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_FINISHED && scheduler_num_computable(s, seq) > seq->num_computed) return true;
    }
    return false;
}

/* A run begins with the newest token of an answer, which alone has to be computed. Its last draft is not the last token
 * that the sequence can have, because a token is drawn after it. Of a sequence whose run is in flight, drafts are
 * computed, too. */
int32_t scheduler_draft_room_later(const struct scheduler *s, const struct sequence *seq)
{
    const struct request *request = seq->request;
    const int32_t length = s->config.first_namespace_len, known = scheduler_num_known(seq);
    if (seq->status != SEQUENCE_RUNNING || request->beams || known == seq->prompt_len || seq->num_computed != known - 1)
        return 0;
    int32_t room = seq->token_capacity - known - 1;
    if (length > 0 && request->cache_namespace == 0 && length - known < room) room = length - known;
    if (room < 0) return 0;
    return room < MAX_DRAFTS ? room : MAX_DRAFTS;
}

int32_t scheduler_draft_room(const struct scheduler *s, const struct sequence *seq)
{
    return seq->num_pending > 0 ? 0 : scheduler_draft_room_later(s, seq);
}

/* ---- sequences that start ---- */

void scheduler_start(struct scheduler *s, struct sequence *seq)
{
    seq->status = SEQUENCE_RUNNING;
    s->admitted[s->num_admitted++] = seq;
}

void scheduler_fork(struct scheduler *s, struct sequence *leader)
{
    struct request *request = leader->request;
    enum status status = STATUS_OK;
    struct error err;
    request->leader = NULL;
    for (int32_t i = 0; i < request->num_sequences && status == STATUS_OK; i++) {
        struct sequence *seq = &request->sequences[i];
        if (seq->status != SEQUENCE_WAITING) continue;
        status = block_manager_fork(&s->blocks, leader, seq, &err);
        scheduler_start(s, seq);
    }
    if (status != STATUS_OK) scheduler_set_unsound(s, &err);
}
