#!/usr/bin/env python3
"""Breaks the scheduler on purpose, and asks its tests to notice.

    tests/scripts/mutate.py [--only REGEX] [--operations N] [--depth D] [--units] [--table FILE]

Each mutation below replaces one piece of scheduler/*.c, which must stand there exactly once, in a copy of the tree. Only
that file is compiled again, and linked with the model checker (test_scheduler_model) and the scheduler's unit tests, which
then run with a time limit: the unit tests only where the checker has noticed nothing, or with --units. The table says after
how many operations of the random run the checker noticed, and with which sentence; after how many of the exhaustive run;
and which unit tests noticed (-: they did not run). Exit status 1: a
mutation was noticed by none, or the code has changed and a mutation no longer applies.

It needs a C compiler, cmocka, jansson, utf8proc and xxhash, as the build does, and takes a few minutes."""

import argparse
import concurrent.futures
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

MANAGER, POOL, CACHE = "block_manager.c", "block_pool.c", "prefix_cache.c"
CHOOSE, ADMIT, RELEASE = "scheduler_choose.c", "scheduler_admit.c", "scheduler_release.c"
REQUEST = "scheduler_request.c"
SEQUENCE, STATES, SWAP = "sequence.c", "state_pool.c", "state_swap.c"
LAYOUT, BEAMS, SCHEDULER, QUEUE = "scheduler_layout.c", "scheduler_beams.c", "scheduler.c", "request_queue.c"

# What is wrong, in which file, the code, and what takes its place.
MUTATIONS = [
    # Blocks of several sizes
    ("a hit may end inside a larger block", MANAGER, "if (last < 0 || run[g] <", "if (run[g] <"),
    ("a larger block can be found by the prefixes inside it", MANAGER, "    return count << m->limits.block_shifts[group] == length ? count - 1 : -1;", "    return count - 1;"),
    ("a larger block that is found is filled as a smaller one", MANAGER, "        status = block_pool_share(&m->pool, table->blocks[i], block_size_of(m, group), err);", "        status = block_pool_share(&m->pool, table->blocks[i], m->limits.block_size, err);"),
    ("a larger block that returns is filled as a smaller one", MANAGER, "            enum status status = block_pool_share(&m->pool, found, block_size_of(m, g), err);", "            enum status status = block_pool_share(&m->pool, found, m->limits.block_size, err);"),
    ("what is writable ends with the largest block", MANAGER, "        if (all < count) count = all;\n", "        if (g == 0 || all > count) count = all;\n"),
    ("a sequence that goes on has blocks of the first group's size", CHOOSE, "const int32_t size = batch_block_size(limits, g), index = unit >> limits->block_shifts[g];", "const int32_t size = batch_block_size(limits, 0), index = unit >> limits->block_shifts[0];"),
    ("slots are those of the first group's blocks", LAYOUT, "batch_block_size(&s->config.limits, group)", "batch_block_size(&s->config.limits, 0)"),
    # Blocks and counts
    ("a block of count 1 is already released", POOL, "if (--b->ref_count == 0) list_return", "if (--b->ref_count <= 1) list_return"),
    ("a shared block keeps its place in the free list", POOL, "    if (b->ref_count == 0) {\n        list_remove(pool, block);\n", "    if (b->ref_count == 0) {\n"),
    ("a second holder is not counted", POOL, "    b->ref_count++;\n", "    if (b->ref_count == 0) b->ref_count++;\n"),
    ("a taken block stays in the prefix cache", POOL, "    b->prefix = PREFIX_NONE;\n    b->filled = b->note = 0;", "    b->filled = b->note = 0;"),
    ("a taken block seems to be filled still", POOL, "    b->filled = b->note = 0;", "    b->note = 0;"),
    ("a block that is found keeps its place in the list as a note", POOL, "        b->filled = block_size;\n        b->note = 0;\n", "        b->filled = block_size;\n"),
    ("the oldest cached block stays the oldest when it is taken", POOL, "    if (pool->oldest == block) pool->oldest = b->next;\n", ""),
    ("cached blocks are evicted before untaken ones", POOL, "bool untaken = pool->untaken < pool->end && (pool->head == BLOCK_NONE || has_prefix(&pool->blocks[pool->head]));", "bool untaken = pool->untaken < pool->end && pool->head == BLOCK_NONE;"),
    ("the first block of a sequence is released first", MANAGER, "    for (int32_t i = last - 1; i >= 0; i--)\n", "    for (int32_t i = 0; i < last; i++)\n"),
    ("the first block of a swapped sequence is released first", MANAGER, "for (int32_t i = t->num_blocks - 1; i >= t->first && status == STATUS_OK; i--) {", "for (int32_t i = t->first; i < t->num_blocks && status == STATUS_OK; i++) {"),
    ("a cached block goes to the head of the free list", POOL, "list_insert(pool, block, pool->tail, BLOCK_NONE);", "list_insert(pool, block, BLOCK_NONE, pool->head);"),
    ("an evicted block is not forgotten by the prefix cache", MANAGER, "    detach(m, evicted, *block);\n    m->evictions++;", "    m->evictions++;"),
    ("a released block is not counted as a gain", MANAGER, "pool->blocks[block].ref_count == 0) m->gains++;", "pool->blocks[block].ref_count == 0) m->gains += 0;"),
    # Copy-on-write
    ("copy-on-write makes no copy", MANAGER, "    copies[(*num_copies)++] = (struct block_pair){old, new};\n", "    (void)copies, (void)num_copies;\n"),
    ("copy-on-write copies the wrong way", MANAGER, "(struct block_pair){old, new};", "(struct block_pair){new, old};"),
    ("copy-on-write does not lower the old count", MANAGER, "    m->pool.blocks[old].ref_count--;", "    m->pool.blocks[old].ref_count -= 0;"),
    ("copy-on-write does not lower what is uploaded", MANAGER, "    seq->num_uploaded[group] = least(seq->num_uploaded[group], index);\n", ""),
    ("a block with two holders is written in place", MANAGER, "if (m->pool.blocks[t->blocks[i]].ref_count > 1)", "if (m->pool.blocks[t->blocks[i]].ref_count > 2)"),
    ("the cost of a growth leaves out copies", MANAGER, "        b->note++;\n        cost++;", "        b->note++;"),
    ("the cost of a growth takes the last holder for one who shares", MANAGER, "if (b->ref_count - b->note == 1) continue;", "if (b->ref_count == 1) continue;"),
    ("after a fork the parent still writes to its blocks in place", MANAGER, "    parent->num_writable = child->num_writable = 0;", "    child->num_writable = 0;"),
    # Windows
    ("a window is one token short", MANAGER, "return batch_first_block(&m->limits, group, num_computed);", "return batch_first_block(&m->limits, group, num_computed + 1);"),
    ("a block too much is given back", MANAGER, "    const int32_t first = first_read(m, group, seq->num_computed);\n    enum status status = STATUS_OK;\n    for (int32_t i = first - 1;", "    const int32_t first = least(first_read(m, group, seq->num_computed) + (t->first > 0), t->num_blocks);\n    enum status status = STATUS_OK;\n    for (int32_t i = first - 1;"),
    ("blocks that left the window are kept", MANAGER, "    const int32_t first = first_read(m, group, seq->num_computed);\n    enum status status = STATUS_OK;\n    for (int32_t i = first - 1;", "    const int32_t first = t->first;\n    (void)m, (void)group, (void)seq;\n    enum status status = STATUS_OK;\n    for (int32_t i = first - 1;"),
    ("a window's blocks become free one step before they do", MANAGER, "gain += ++b->note == b->ref_count;", "gain += (++b->note, 1);"),
    ("a hit needs a block less than the window reads", MANAGER, "run[g] < last + 1 - first_read", "run[g] < last - first_read"),
    ("a fork forgets where the window begins", MANAGER, "        to->first = from->first;\n", "        to->first = 0;\n"),
    ("what leaves the window does not end what is writable", MANAGER, "if (kept < count)", "if (kept < 0)"),
    # The prefix cache
    ("a hit may be the whole prompt", MANAGER, "m->caching ? least(first_tokens(seq) - 1, request_most_cached(seq->request)) / size : 0", "m->caching ? least(first_tokens(seq), request_most_cached(seq->request)) / size : 0"),
    ("a hit is a block shorter than it could be", MANAGER, "m->caching ? least(first_tokens(seq) - 1, request_most_cached(seq->request)) / size : 0", "m->caching ? least(first_tokens(seq) - 1, request_most_cached(seq->request)) / size - 1 : 0"),
    ("hits without a holder count as free", MANAGER, "    missing -= hits.shared - hits.idle;", "    missing -= hits.shared;"),
    ("a block can be found before it is written", MANAGER, "known = least(seq->num_computed, seq->num_tokens);\n", "known = seq->num_tokens;\n"),
    ("salts are ignored", CACHE, "    if (!salt) return FIRST_ROOT", "    if (!salt || salt->length > 0) return FIRST_ROOT"),
    ("salts with the same hash are not compared", CACHE, "if (other->hash == salt->hash && other->length == salt->length &&\n            memcmp(other->text, salt->text, salt->length) == 0)", "if (other->hash == salt->hash)"),
    ("the last byte of a salt is not compared", CACHE, "memcmp(other->text, salt->text, salt->length) == 0", "memcmp(other->text, salt->text, salt->length - 1) == 0"),
    ("a salt is forgotten with its last request", CACHE, "else if (cache->places[salt->place].refs == 0 || salt->length > MOST_IDLE_BYTES - cache->idle_bytes)", "else if (true)"),
    ("a salt has one root for both namespaces", CACHE, "salt->place + cache_namespace : PREFIX_NONE", "salt->place : PREFIX_NONE"),
    ("a salt that has no prefix any more is kept", CACHE, "} else if (p->salt->num_requests == 0) {", "} else if (p->salt->num_requests < 0) {"),
    ("the place of a salt is free while something lies below its roots", CACHE, "    if (p->refs == 0) free_place(cache, place);", "    free_place(cache, place);"),
    ("both namespaces share prefixes", CACHE, "return FIRST_ROOT + cache_namespace;", "return FIRST_ROOT;"),
    ("colliding tokens are not compared", CACHE, "if (cache->prefixes[i].parent == parent && !memcmp(tokens_of(cache, i), tokens, bytes)) return i;", "if (cache->prefixes[i].parent == parent && bytes && tokens) return i;"),
    ("colliding parents are not compared", CACHE, "if (cache->prefixes[i].parent == parent && !memcmp", "if (parent && !memcmp"),
    ("a prefix is taken to have no children when it has", CACHE, "    if (parent < cache->capacity) cache->prefixes[parent].had_child = true;\n", ""),
    ("a prefix that a sequence keeps is not pinned", MANAGER, "        prefix_cache_pin(&m->cache, prefix);\n", ""),
    ("a reset leaves the blocks in the pool's cache", MANAGER, "    block_pool_set_prefix(&m->pool, block, PREFIX_NONE);\n", ""),
    ("a prefix cache without a free number stays full", MANAGER, "    forget(m, oldest);\n    return true;", "    return false;"),
    ("a block is forgotten though its number stays in use", MANAGER, "if (oldest == BLOCK_NONE || !prefix_cache_has_one_reference(&m->cache, m->pool.blocks[oldest].prefix)) return false;", "if (oldest == BLOCK_NONE) return false;"),
    # Swapping
    ("can_swap_in ignores the watermark", MANAGER, "return m->pool.num_free - required >= m->watermark ?", "return m->pool.num_free - required >= 0 ?"),
    ("can_swap_in counts no spare block", MANAGER, "required += spare_blocks(m, &request->sequences[i], g);", "required += 0 * spare_blocks(m, &request->sequences[i], g);"),
    ("a shared block is swapped once for each holder", MANAGER, "        block_of(m, block)->note = place;\n", "        block_of(m, block)->note = 0;\n"),
    ("a block that others hold keeps the note of its move", MANAGER, "        if (b->ref_count > 0) b->note = 0;\n", "        (void)b;\n"),
    ("a swapped block forgets how far it is filled", MANAGER, "        move->to->blocks[place].filled = move->from->blocks[block].filled;\n", ""),
    ("a partly filled block is looked up in the prefix cache", MANAGER, "full = least(seq->num_computed, seq->num_tokens) / size;", "full = (least(seq->num_computed, seq->num_tokens) + size - 1) / size;"),
    ("the table on the device is taken to survive a swap", MANAGER, "        memset(seqs[i].num_uploaded, 0, sizeof seqs[i].num_uploaded);\n", ""),
    ("a swap is read too late: in a step that swaps out and in", SCHEDULER, "const bool admits = fits || !s->running.head;", "const bool admits = fits || true;"),
    ("a step that computes nothing swaps out", SCHEDULER, "    if (batch->num_seqs == 0) scheduler_undo_swaps(s, batch);\n", ""),
    ("more swap space is asked for after a failure", RELEASE, "    s->host_failed = true;\n", ""),
    ("the preemption mode is ignored", RELEASE, "if (s->config.preemption_mode != PREEMPTION_AUTO) return s->config.preemption_mode == PREEMPTION_SWAP;", "if (s->config.preemption_mode != PREEMPTION_AUTO) return true;"),
    ("a request whose prompt others wait for is swapped", RELEASE, "if (scheduler_has_states(s) || request->leader || !oldest_runs", "if (scheduler_has_states(s) || !oldest_runs"),
    # Admission and order
    ("admission ignores the watermark", MANAGER, "    int32_t watermark = m->watermark;\n", "    int32_t watermark = 0;\n"),
    ("a request starts while another is swapped", ADMIT, "return s->config.policy == SCHEDULING_PRIORITY && request_precedes", "return request_precedes"),
    ("a swapped request returns before a more urgent one starts", ADMIT, "return s->config.policy == SCHEDULING_PRIORITY && request_precedes(waiting, swapped) ? waiting : swapped;", "return swapped;"),
    ("a preempted request that grew into the watermark is refused", MANAGER, "if (request->num_preemptions > 0 && spare < watermark) watermark", "if (request->num_preemptions < 0 && spare < watermark) watermark"),
    ("the oldest is preempted", CHOOSE, "        if (!r->stalled) return r;\n    return s->running.tail;", "        if (!r->stalled) return r;\n    return s->running.head;"),
    ("any running request is preempted before the youngest", CHOOSE, "for (struct request *r = s->running.tail; r != s->running.head; r = r->previous)", "for (struct request *r = s->running.head; r; r = r->next)"),
    ("a request is preempted again before it gets a token", CHOOSE, "        if (!r->stalled) return r;", "        if (r) return r;"),
    ("a known end keeps its place", CHOOSE, "        if (s->in_flight > 0) release_ends(s, r);\n", "        if (s->in_flight < 0) release_ends(s, r);\n"),
    ("the need of a request is kept after a sibling has ended", RELEASE, "    seq->finish_reason = reason;\n    request->retry_gains = 0;\n", "    seq->finish_reason = reason;\n"),
    ("priorities are ignored", QUEUE, "return a->priority != b->priority ? a->priority < b->priority : a->arrival < b->arrival;", "return a->arrival < b->arrival;"),
    ("a waiting request that is removed takes its neighbours along", QUEUE, "    queue->head = heap_meld(queue->head, below);\n", "    (void)below;\n"),
    ("beams that are not chosen are admitted", REQUEST, "    if (awaits_choice(request)) return false;\n", "    if (awaits_choice(request) && !s) return false;\n"),
    # Steps and ends
    ("a step's budget counts a request's first sequence only", CHOOSE, "        budget -= count;\n    }\n    return budget;", "        budget -= i == 0 ? count : 0;\n    }\n    return budget;"),
    ("a request that starts in the step is laid out as a decode", LAYOUT, "if (choice->count == 1 && !choice->starts)", "if (choice->count == 1)"),
    ("a pending token is named by another sample", LAYOUT, "batch->token_ids[row] = t < seq->num_tokens ? seq->tokens[t] : -(seq->pending_sample + 1);", "batch->token_ids[row] = t < seq->num_tokens ? seq->tokens[t] : -(seq->pending_sample > 0 ? seq->pending_sample : 1);"),
    ("a pending token that goes to a new block is named by another sample", LAYOUT, "? seq->tokens[t] : -(seq->pending_sample + 1);\n        *positions++", "? seq->tokens[t] : -(seq->pending_sample > 0 ? seq->pending_sample : 1);\n        *positions++"),
    ("a token of a chunk is taken for one that goes on", CHOOSE, "           growth->num_tokens == scheduler_num_known(seq) && seq->num_drafts == 0 && seq != seq->request->leader;", "           seq->num_drafts == 0 && seq != seq->request->leader;"),
    ("a prompt's last token is taken for one that goes on", CHOOSE, " && seq != seq->request->leader;", ";"),
    ("a sequence goes on in a block that it shares or lacks", CHOOSE, "growth->num_tokens == seq->num_computed + 1 && growth->num_tokens <= seq->num_writable &&", "growth->num_tokens == seq->num_computed + 1 &&"),
    ("the position of a sequence that goes on is not shifted", LAYOUT, "batch->positions[row] = t + position_shift(s, seq);", "batch->positions[row] = t;"),
    ("a sequence that goes on writes to its first group alone", CHOOSE, "        *slot = (int64_t)block * size + offset;\n", "        if (g == 0) *slot = (int64_t)block * size + offset;\n"),
    ("the last entry of a table is not uploaded", LAYOUT, "for (int32_t i = first; i < t->num_blocks; i++)", "for (int32_t i = first; i < t->num_blocks - (first > 0); i++)"),
    ("min_tokens is one more", SCHEDULER, "if (seq->num_tokens - seq->prompt_len < p->min_tokens) return false;", "if (seq->num_tokens - seq->prompt_len <= p->min_tokens) return false;"),
    ("an answer gets one token too many", SCHEDULER, "} else if (seq->num_tokens >= seq->token_capacity) {", "} else if (seq->num_tokens > seq->token_capacity) {"),
    ("a state index is not given back", RELEASE, "    release_state_index(s, seq);\n}\n\nvoid scheduler_requeue", "}\n\nvoid scheduler_requeue"),
    ("those who wait for a leader that ended wait for ever", RELEASE, "    else if (request->leader == seq)\n        scheduler_requeue(s, request);", "    else if (request->leader == seq && !s)\n        scheduler_requeue(s, request);"),
    # Log-probabilities of prompts
    ("prompt_logprobs takes blocks from the prefix cache", MANAGER, "least(first_tokens(seq) - 1, request_most_cached(seq->request))", "(first_tokens(seq) - 1)"),
    ("prompt_logprobs takes a token too many from the prefix cache", SEQUENCE, "? p->num_submitted - 1 : INT32_MAX", "? p->num_submitted : INT32_MAX"),
    ("rows of a prompt are asked for again after a preemption", LAYOUT, "const int32_t first = p->num_submitted, most", "const int32_t first = c->start + 1, most"),
    ("a target is the token itself, not the next", LAYOUT, "batch->num_tokens - c->count + (t - 1 - c->start)", "batch->num_tokens - c->count + (t - c->start)"),
    ("rows of the second prompt of a step are those of the first", SCHEDULER, "from += step->target_runs[i++].count", "i++"),
    ("a damaged row of a prompt is no error", SCHEDULER, "if (targets->token_ids[source] < 0) return false;", "if (targets->token_ids[source] < -1) return false;"),
    # Cancelled steps
    ("a cancelled step is not forgotten", SCHEDULER, "        block_manager_forget(&s->blocks, seq, first_of_step(s, seq));\n", ""),
    ("the first block of a cancelled step alone is forgotten", MANAGER, "i < table->num_blocks; i++)\n            if (i >= table->first && m->pool", "i <= token / m->limits.block_size; i++)\n            if (i >= table->first && m->pool"),
    ("the first group of a cancelled step alone is forgotten", MANAGER, "for (int32_t g = 0; m->caching && g < m->limits.num_groups; g++) {", "for (int32_t g = 0; m->caching && g < 1; g++) {"),
    ("a cancelled step is forgotten from the block after the first", MANAGER, "for (int32_t i = token / block_size_of(m, g); i < table->num_blocks; i++)", "for (int32_t i = token / block_size_of(m, g) + 1; i < table->num_blocks; i++)"),
    ("a cancelled decode's block is kept", SCHEDULER, "        if (s->choices[i].seq == seq) return s->choices[i].start;\n    return seq->num_computed - 1 - seq->num_drafts;", "        if (s->choices[i].seq == seq) return s->choices[i].start;\n    return seq->num_computed - seq->num_drafts;"),
    ("a cancelled chunk is forgotten from its last token", SCHEDULER, "        if (s->choices[i].seq == seq) return s->choices[i].start;\n", ""),
    ("a cancelled step stays in flight", SCHEDULER, "    s->in_flight--;\n    struct step *step = &s->steps", "    struct step *step = &s->steps"),
    ("a cancelled step's targets stay", SCHEDULER, "% SCHEDULER_MAX_STEPS];\n    step->num_runs = step->num_target_runs = 0;\n", "% SCHEDULER_MAX_STEPS];\n    step->num_runs = 0;\n"),
    ("a cancelled step's runs stay", SCHEDULER, "% SCHEDULER_MAX_STEPS];\n    step->num_runs = step->num_target_runs = 0;\n", "% SCHEDULER_MAX_STEPS];\n    step->num_target_runs = 0;\n"),
    ("a request of a cancelled step goes on", SCHEDULER, "if (forget_step(s, r)) scheduler_end_request", "if (forget_step(s, r) && r != s->running.head) scheduler_end_request"),
    ("a request that is not in a cancelled step ends, too", SCHEDULER, "if (forget_step(s, r)) scheduler_end_request", "if (forget_step(s, r) || s->in_flight == 2) scheduler_end_request"),
    ("the step before a cancelled one is taken for collected", SCHEDULER, "% SCHEDULER_MAX_STEPS];\n    step->num_runs = step->num_target_runs = 0;\n", "% SCHEDULER_MAX_STEPS];\n    step->num_runs = step->num_target_runs = 0;\n    s->steps[s->oldest].number += s->in_flight;\n"),
    # Runs
    ("a draft is accepted after one that is wrong", SCHEDULER, "drawn[accepted] == drafts[accepted]) accepted++;", "drawn[accepted] == drafts[accepted]) accepted++;\n    for (int32_t i = accepted + 1; i < count; i++) accepted += drawn[i] == drafts[i];"),
    ("the last draft of a run is never accepted", SCHEDULER, "while (accepted < count && drawn", "while (accepted < count - 1 && drawn"),
    ("a run yields the accepted drafts alone", SCHEDULER, "    seq->num_pending += accepted;\n", "    seq->num_pending += accepted - (accepted > 0);\n"),
    ("a run goes on behind a token that stops", SCHEDULER, "if (seq->status == SEQUENCE_FINISHED || seq->num_pending == 0) continue;", "if (seq->num_pending == 0) continue;"),
    ("a run yields tokens that were drawn behind a wrong draft", SCHEDULER, "if (seq->status == SEQUENCE_FINISHED || seq->num_pending == 0) continue;", "if (seq->status == SEQUENCE_FINISHED) continue;"),
    ("rejected drafts are not rolled back", SCHEDULER, "    if (accepted < count &&\n", "    if (accepted < 0 &&\n"),
    ("a rollback keeps a token too many", SCHEDULER, "seq->num_computed - (count - accepted), &err)", "seq->num_computed - (count - accepted) + 1, &err)"),
    ("the samples of a run begin with its first draft's", LAYOUT, "(struct drafted_run){c->seq, sample - 1, batch->num_drafts}", "(struct drafted_run){c->seq, sample, batch->num_drafts}"),
    ("the drafts of a step are not bounded", SCHEDULER, "    if (count > s->drafts_left) count = s->drafts_left;\n", ""),
    ("what the drafts of one step took is missing in the next", SCHEDULER, "    s->drafts_left = s->config.limits.max_num_drafts;\n    return status;", "    return status;"),
    ("a cancelled run is forgotten from its last draft", SCHEDULER, "return seq->num_computed - 1 - seq->num_drafts;", "return seq->num_computed - 1;"),
    ("drafts of a step that was not computed stay", SCHEDULER, "    const enum status status = schedule(s, batch, out, err);\n    scheduler_drop_drafts(s);\n", "    const enum status status = schedule(s, batch, out, err);\n"),
    ("a rollback keeps an empty block", MANAGER, "for (; t->num_blocks > kept && t", "for (; t->num_blocks > kept + 1 && t"),
    ("slots of rejected drafts count as written", MANAGER, "if (filled < size && kept > t->first", "if (filled < 0 && kept > t->first"),
    ("the first group alone is rolled back", MANAGER, "    for (int32_t g = 0; g < m->limits.num_groups && status == STATUS_OK; g++)\n        status = rollback_table", "    for (int32_t g = 0; g < 1 && status == STATUS_OK; g++)\n        status = rollback_table"),
    ("a rollback counts in blocks of the first group's size", MANAGER, "    const int32_t size = block_size_of(m, group), kept = blocks_for(m, group, num_computed);", "    const int32_t size = block_size_of(m, 0), kept = blocks_for(m, 0, num_computed);"),
    ("entries that were rolled back are taken to be uploaded", MANAGER, "    seq->num_uploaded[group] = least(seq->num_uploaded[group], t->num_blocks);\n    seq->num_writable", "    seq->num_writable"),
    ("blocks that were rolled back are taken to be writable", MANAGER, "    seq->num_writable = least(seq->num_writable, t->num_blocks * size);\n", ""),
    ("a block of drafts can be found", MANAGER, "known = least(seq->num_computed, seq->num_tokens);\n", "known = least(seq->num_computed, seq->num_tokens + seq->num_drafts);\n"),
    ("the filled slots of a block are not lowered", POOL, "    pool->blocks[block].filled = filled;\n", ""),
    ("drafts are kept where blocks are too few", CHOOSE, "while ((needed = plan_running(s)) > s->blocks.pool.num_free && s->num_drafted > 0) scheduler_drop_drafts(s);", "needed = plan_running(s);"),
    ("drafts are dropped where blocks suffice", CHOOSE, "while ((needed = plan_running(s)) > s->blocks.pool.num_free && s->num_drafted > 0) scheduler_drop_drafts(s);", "while ((needed = plan_running(s)) > 0 && s->num_drafted > 0) scheduler_drop_drafts(s);"),
    ("drafts exceed the budget", CHOOSE, "    if (wanted <= budget) return wanted;\n", "    if (remaining <= budget) return wanted;\n"),
    ("drafts are no part of the budget", CHOOSE, "        budget -= count;\n    }\n    return budget;", "        budget -= count > 1 ? count - seq->num_drafts : count;\n    }\n    return budget;"),
    ("drafts that the budget has no room for stay with the sequence", CHOOSE, " && seq->num_drafts == 0 && seq != seq->request->leader;", " && seq != seq->request->leader;"),
    ("a run goes on while it is in flight", CHOOSE, "    if (remaining <= 0) return 0;", "    if (remaining < 0) return 0;"),
    ("the last draft takes the place of the last token", REQUEST, "seq->token_capacity - known - 1;", "seq->token_capacity - known;"),
    ("drafts leave their namespace", REQUEST, "if (length > 0 && request->cache_namespace == 0 && length - known <", "if (length < 0 && request->cache_namespace == 0 && length - known <"),
    ("beams get drafts", REQUEST, "seq->status != SEQUENCE_RUNNING || request->beams || known", "seq->status != SEQUENCE_RUNNING || known"),
    ("a sequence whose token is pending may get drafts", REQUEST, "    return seq->num_pending > 0 ? 0 : scheduler_draft_room_later(s, seq);", "    return scheduler_draft_room_later(s, seq);"),
    ("a pending token leaves as much room for drafts as before", REQUEST, "length = s->config.first_namespace_len, known = scheduler_num_known(seq);\n    if (seq->status", "length = s->config.first_namespace_len, known = seq->num_tokens;\n    if (seq->status"),
    ("a row's draft is that of the row after it", LAYOUT, "batch->sampled_drafts[sample + i] = s->on_device ? -1 : batch->token_ids[row + i];", "batch->sampled_drafts[sample + i - 1] = s->on_device ? -1 : batch->token_ids[row + i];"),
    ("a run's drafts of the device are those of the step's first run", LAYOUT, "(struct drafted_run){c->seq, sample - 1, batch->num_drafts}", "(struct drafted_run){c->seq, sample - 1, s->on_device ? 0 : batch->num_drafts}"),
    ("an entry that goes on is said to be of the sequence before it", LAYOUT, "    s->sequences[row] = seq;\n", "    if (row == 0) s->sequences[row] = seq;\n"),
    ("the entry of a run is that of its last draft", LAYOUT, "(struct scheduled_run){seq, batch->num_seqs};", "(struct scheduled_run){seq, batch->num_seqs + c->num_drafts};"),
    ("drafts of the device are taken for those of the host before them", SCHEDULER, "    s->on_device = !drafts;\n", "    s->on_device = s->on_device || !drafts;\n"),
    ("all rows of a run draw the same output", LAYOUT, "row + i, output + i);", "row + i, output);"),
    ("a row of a run reads the drafts behind it", LAYOUT, "add_entry(s, batch, seq, c->start + i + 1, row + i + 1);", "add_entry(s, batch, seq, c->start + c->count, row + i + 1);"),
    ("the blocks of a run are not uploaded", LAYOUT, "    if (c->changed) add_deltas(s, batch, seq);\n    for (", "    for ("),
    ("drafts are taken for pending tokens", LAYOUT, "t < seq->num_tokens + c->num_drafts ? seq", "t < seq->num_tokens ? seq"),
    ("a sequence that has ended keeps its drafts", RELEASE, "    seq->num_drafts = 0;\n    release_state_index(s, seq);\n}", "    release_state_index(s, seq);\n}"),
    # Beams
    ("a beam's blocks are not given back", BEAMS, "    enum status status = block_manager_release(&s->blocks, seq, &err);\n", "    enum status status = STATUS_OK;\n"),
    ("a beam's tokens are not copied", BEAMS, "           (size_t)(parent->num_tokens - seq->prompt_len) * sizeof *seq->tokens);", "           0 * sizeof *seq->tokens);"),
    ("a beam keeps the table that its place on the device has", BEAMS, "while (count < most && a->blocks[count] == b->blocks[count]) count++;", "while (count < most && (a->blocks[count] || b->blocks[count])) count++;"),
    ("a choice leaves a waiting request in a namespace that it has outgrown", BEAMS, "if (request->queue == &s->waiting) scheduler_set_namespace(s, request);", "if (!request->queue) scheduler_set_namespace(s, request);"),
    ("a beam whose last token is pending is released", CHOOSE, "if (seq->num_pending > 0 && seq->state_index >= 0 && !request->beams && scheduler_has_last_token(seq))", "if (seq->num_pending > 0 && seq->state_index >= 0 && scheduler_has_last_token(seq))"),
    ("swapped beams enter the prefix cache", BEAMS, "if (seqs[i].status == SEQUENCE_RUNNING) block_manager_hash", "block_manager_hash"),
    ("a beam's block counts as its own", BEAMS, "        seqs[i].num_writable = 0;", "        seqs[i].num_writable += 0;"),
    # State slots and snapshots
    ("a state slot with two holders is written in place", STATES, "pool->slots.blocks[slot].ref_count == 1 &&", "pool->slots.blocks[slot].ref_count >= 1 &&"),
    ("a snapshot is written in place", STATES, "           pool->slots.blocks[slot].prefix == PREFIX_NONE;", "           pool->slots.blocks[slot].prefix >= PREFIX_NONE;"),
    ("a state slot that a step reads can be taken in it", STATES, "    if (seq->state != STATE_SLOT_NONE) pool->leaving[pool->num_leaving++] = seq->state;\n", "    state_pool_drop(pool, seq->state);\n"),
    ("a snapshot can be found in the step that writes it", STATES, "    set_snapshot(pool, seq->prefix, SNAPSHOT_PENDING);\n", "    attach(pool, seq->state, seq->prefix);\n"),
    ("a fork does not count as a holder of the state", STATES, "    if (child->state != STATE_SLOT_NONE) share(pool, child->state);\n", ""),
    ("the newest state becomes a snapshot at the end", STATES, "        make_snapshot(pool, seq, seq->boundary_state, seq->boundary);", "        make_snapshot(pool, seq, seq->state, seq->boundary);"),
    ("a boundary whose tokens are not known becomes a snapshot", STATES, "    if (length < num_tokens) return PREFIX_NONE;\n", "    if (length == 0) return PREFIX_NONE;\n"),
    ("a boundary is not kept", STATES, "    if (pool->slots.num_free > 0) state_pool_keep", "    if (pool->slots.num_free < 0) state_pool_keep"),
    ("the state of a cancelled step becomes a snapshot", MANAGER, "    state_pool_forget(&m->states, seq);\n", ""),
    ("a boundary that is kept is written in place", STATES, "    share(pool, slot);\n    give_up(pool, seq);\n", "    give_up(pool, seq);\n"),
    ("beams keep boundaries", STATES, "num_computed < seq->prompt_len || seq->request->beams ||", "num_computed < seq->prompt_len ||"),
    ("an evicted snapshot can be found still", STATES, "        set_snapshot(pool, evicted, STATE_SLOT_NONE);\n", ""),
    ("a snapshot outlives its block", MANAGER, "    state_pool_drop_snapshot(&m->states, prefix);\n", ""),
    ("a snapshot whose writer ends stays pending", STATES, "    if (seq->parting > 0) cancel_pending(pool, seq->parting_prefix);\n", "    if (seq->parting > 0) prefix_cache_unpin(pool->cache, seq->parting_prefix);\n"),
    ("a snapshot of a cancelled step arrives", STATES, "        cancel_pending(pool, pool->arrivals[i].prefix);\n    }\n    pool->num_arrivals = 0;", "        share(pool, pool->arrivals[i].slot);\n    }"),
    ("a hit needs no snapshot", MANAGER, "    return snapshot > 0;\n", "    return true;\n"),
    ("prompts do not wait for a snapshot", MANAGER, "    if (hits.pending) return ALLOCATE_LATER;\n", ""),
    ("nobody writes a snapshot where prompts part", MANAGER, "    if (hits.parting > 0) state_pool_await", "    if (hits.parting > 0 && hits.state > 0) state_pool_await"),
    ("prompts are not cut at snapshots", CHOOSE, "    if (remaining > 1 && scheduler_has_states(s)) wanted", "    if (remaining > 1 && !s) wanted"),
    ("a prompt has no snapshot at its end", CHOOSE, "{(end - 1) / unit * unit, seq->parting,", "{0, seq->parting,"),
    ("a prompt has no snapshot before the generation prompt", CHOOSE, "seq->request->state_boundary / unit * unit,", "0,"),
    ("a long prompt has no snapshots within it", CHOOSE, "(done / interval + 1) * interval : 0}", "0 : 0}"),
    ("snapshots of a long prompt are not at boundaries", CHOOSE, "(s->config.state_interval + unit - 1) / unit * unit;", "s->config.state_interval;"),
    ("what ends at a boundary becomes no snapshot", CHOOSE, "    if (status == STATUS_OK && is_wanted && is_known) state_pool_add_snapshot(states, seq);\n", "    (void)is_wanted, (void)is_known;\n"),
    ("the state after a run is that after its first token", SCHEDULER, "    if (accepted == 0) return;\n    const int32_t boundary", "    if (accepted >= 0) return;\n    const int32_t boundary"),
    ("the boundary in a run is the state after the token behind it", SCHEDULER, "draft = boundary - first - 2;", "draft = boundary - first - 1;"),
    ("the states of rejected drafts are kept", SCHEDULER, "    for (int32_t i = 0; i < step->num_draft_states; i++) state_pool_drop(&s->blocks.states, step->draft_states[i]);\n", ""),
    ("a swapped state leaves no snapshot of its boundary", SWAP, "        state_pool_release(pool, seq);\n", "        state_pool_forget(pool, seq);\n"),
    ("siblings that share a state take several host slots", SWAP, "    if (place) return block_pool_share(way->to, place, 0, err);\n", ""),
    ("a shared host slot counts one holder", SWAP, "    if (place) return block_pool_share(way->to, place, 0, err);\n", "    if (place) return STATUS_OK;\n"),
    ("a slot keeps its place on the host as a note", SWAP, "        if (b->ref_count > 0) b->note = 0;\n", "        (void)b;\n"),
    ("a state is not copied to the host", SWAP, "    way->pairs[(*way->num_pairs)++] = (struct block_pair){slot, place};\n", "    if (!way->out) way->pairs[(*way->num_pairs)++] = (struct block_pair){slot, place};\n"),
    ("a state does not come back", SWAP, "    way->pairs[(*way->num_pairs)++] = (struct block_pair){slot, place};\n", "    if (way->out) way->pairs[(*way->num_pairs)++] = (struct block_pair){slot, place};\n"),
    ("requests are swapped without free host slots", RELEASE, "has_room(s, HOST_STATES, state_swap_cost(request)) &&\n           ", ""),
    ("a beam does not take over the state", BEAMS, "    seq->state = from->state;\n", ""),
    ("a draft goes on from the state of its sequence", LAYOUT, "i > 0 ? STATE_CONTINUES : c->state_source,", "c->state_source,"),
]

WORLD_SOURCES = ["slot_device", "scheduler_world"]
MODEL_SOURCES = ["operation_list", "slot_device", "scheduler_model", "scheduler_model_request", "scheduler_model_check",
                 "scheduler_model_policy", "scheduler_model_drafts", "scheduler_model_states", "scheduler_model_digest"]
UNIT_TESTS = ["test_scheduler", "test_runs", "test_states", "test_block_manager", "test_block_pool", "test_prefix_cache"]


def run(command, timeout, **more):
    """The exit status and output; None instead of the status if the time was up."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, text=True,
                              errors="replace", **more)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as e:
        return None, (e.stdout or b"").decode(errors="replace") if isinstance(e.stdout, bytes) else (e.stdout or "")


class Tree:
    """A copy of what the tests need, compiled once."""

    def __init__(self, source, folder):
        self.folder = folder
        for name in ["scheduler", "base"]:
            shutil.copytree(os.path.join(source, name), os.path.join(folder, name))
        os.makedirs(os.path.join(folder, "tests"))
        shutil.copytree(os.path.join(source, "tests/support"), os.path.join(folder, "tests/support"))
        for path in glob.glob(os.path.join(source, "tests/test_*.c")):
            shutil.copy(path, os.path.join(folder, "tests"))
        self.flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-w", "-I" + folder]
        self.libraries = ["-lcmocka", "-lxxhash", "-ljansson", "-lutf8proc", "-lm"]
        self.scheduler = {os.path.basename(p): self.compile(p) for p in glob.glob(folder + "/scheduler/*.c")}
        self.base = [self.compile(p) for p in glob.glob(folder + "/base/*.c")]
        support = {name: self.compile(f"{folder}/tests/support/{name}.c") for name in {*WORLD_SOURCES, *MODEL_SOURCES}}
        self.programs = {"test_scheduler_model": [support[name] for name in MODEL_SOURCES]}
        for test in UNIT_TESTS:
            self.programs[test] = [support[name] for name in WORLD_SOURCES]
        for test in self.programs:
            self.programs[test].append(self.compile(f"{folder}/tests/{test}.c"))

    def compile(self, path, out=None):
        out = out or path[:-2] + ".o"
        status, text = run(["cc", *self.flags, "-c", path, "-o", out], 300)
        if status != 0:
            raise RuntimeError(f"{path} does not compile:\n{text}")
        return out

    def link(self, objects):
        """Builds the programs in bin/ with these objects of the scheduler."""
        os.makedirs(self.folder + "/bin", exist_ok=True)
        for name, own in self.programs.items():
            status, text = run(["cc", *self.flags, "-o", f"{self.folder}/bin/{name}", *own, *objects, *self.base,
                                *self.libraries], 300)
            if status != 0:
                raise RuntimeError(f"{name} cannot be linked:\n{text}")

    def mutate(self, name, file, old, new):
        path = f"{self.folder}/scheduler/{file}"
        text = open(path).read()
        if text.count(old) != 1:
            raise RuntimeError(f"\"{name}\": its code stands {text.count(old)} times in scheduler/{file}")
        mutant = f"{self.folder}/scheduler/mutant_{file}"
        with open(mutant, "w") as out:
            out.write(text.replace(old, new))
        objects = dict(self.scheduler)
        objects[file] = self.compile(mutant)
        os.remove(mutant)
        self.link(objects.values())

    def search(self, *arguments, timeout):
        """What the model checker found: after how many operations, and its sentence. None: nothing."""
        status, text = run([self.folder + "/bin/test_scheduler_model", *arguments, "--shrink", "no"], timeout)
        if status == 0:
            return None
        found = re.search(r"after (\d+) operations: (.*)", text)
        return (found.group(1), found.group(2)) if found else ("-", "no end within the time" if status is None else "a crash")

    def failing_units(self):
        failing = []
        for test in [*UNIT_TESTS, "test_scheduler_model"]:  # the latter's lists that failed once
            status, _ = run([f"{self.folder}/bin/{test}"], 180, cwd=self.folder)
            if status != 0:
                failing.append(test)
        return failing


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="the mutations whose name has this regular expression in it")
    parser.add_argument("--operations", default="600000", help="of the random run")
    parser.add_argument("--depth", default="9", help="of the exhaustive run")
    parser.add_argument("--units", action="store_true", help="run the unit tests, too, where the checker has noticed")
    parser.add_argument("--table", help="where the table is written, besides the terminal")
    options = parser.parse_args()
    chosen = [m for m in MUTATIONS if re.search(options.only, m[0])]
    lines = ["| mutation | file | random: operations | what it says | exhaustive: operations | unit tests |",
             "|---|---|---|---|---|---|"]
    print("\n".join(lines), flush=True)
    missed, broken, by_model = [], [], 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(os.path.join(here, "../.."), folder)
        tree.link(tree.scheduler.values())
        if tree.search("--operations", "20000", timeout=120) or tree.failing_units():
            sys.exit("the tests fail without a mutation")
        for name, file, old, new in chosen:
            try:
                tree.mutate(name, file, old, new)
            except RuntimeError as e:
                broken.append(str(e))
                continue
            with concurrent.futures.ThreadPoolExecutor() as pool:
                runs = [pool.submit(tree.search, "--operations", options.operations, timeout=200),
                        pool.submit(tree.search, "--depth", options.depth, timeout=100)]
                random, exhaustive = [r.result() for r in runs]
            units = tree.failing_units() if options.units or not (random or exhaustive) else None
            by_model += bool(random or exhaustive)
            if not (random or exhaustive or units):
                missed.append(name)
            says = (random or exhaustive or ("", "nothing"))[1].replace("|", "/")
            lines.append(f"| {name} | {file} | {random[0] if random else 'no'} | {says} | "
                         f"{exhaustive[0] if exhaustive else 'no'} | {'-' if units is None else ', '.join(units) or 'none'} |")
            print(lines[-1], flush=True)
    total = len(chosen) - len(broken)
    lines += ["", f"{total} mutations: {total - len(missed)} noticed, {by_model} of them by the model checker."]
    print(lines[-1])
    for name in missed:
        print(f"not noticed: {name}")
    for text in broken:
        print(f"cannot be applied: {text}")
    if options.table:
        with open(options.table, "w") as out:
            out.write("\n".join(lines) + "\n")
    sys.exit(1 if missed or broken else 0)


if __name__ == "__main__":
    main()
