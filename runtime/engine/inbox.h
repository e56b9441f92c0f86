/* What other threads leave for the thread that steps: new requests, and requests to end. It also knows all requests
 * that are not finished by id, so that one is aborted in O(1), and aborting needs no memory.
 *
 * inbox_read, inbox_find and inbox_remove belong to the thread that steps; the others may be called from any thread.
 * The entry is a member of what the owner keeps of a request. */
#ifndef QUIRE_RUNTIME_INBOX_H
#define QUIRE_RUNTIME_INBOX_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct inbox_entry {
    uint64_t id;   /* given out by inbox_put, never 0 */
    void *job;     /* the owner's */
    bool is_ended; /* inbox_abort named it */
    /* Neighbours in the list of new entries; in the list of aborts, the last one first; and in the bucket. */
    struct inbox_entry *next_new, *next_abort, *previous_abort, *next_alike;
};

struct inbox { /* everything is read and written under the lock */
    pthread_mutex_t lock;
    pthread_cond_t changed;         /* num_entries became 1, or woken became true */
    struct inbox_entry *first_new;  /* put and not read, in order of arrival */
    struct inbox_entry *last_new;   /* undefined if there is none */
    struct inbox_entry *last_abort; /* aborts that were not read */
    struct inbox_entry **buckets;   /* [num_buckets] of all entries, by id modulo num_buckets */
    size_t num_buckets;             /* 0 or a power of two, at least num_entries: ids are consecutive, lists short */
    size_t num_entries;             /* put and not removed */
    uint64_t last_id;
    bool woken; /* inbox_wake was called, and no wait has returned for it yet */
};

void inbox_init(struct inbox *inbox);
/* Calls `release` on the job of each entry that is left. */
void inbox_free(struct inbox *inbox, void (*release)(void *job));

/* Gives the entry, with its `job` set and the rest zero, its id and adds it. *id (may be NULL) gets the id too: once
 * the lock is released, the entry may be removed and freed at any time. Fails only for want of memory. */
enum status inbox_put(struct inbox *inbox, struct inbox_entry *entry, uint64_t *id, struct error *err);
/* An id that is unknown, finished or aborted already is ignored. */
void inbox_abort(struct inbox *inbox, uint64_t id);

/* Takes what was left since the last call: the list of new entries (by next_new), and of entries to end, which were
 * read now or earlier. The latter is read with inbox_next_abort. */
void inbox_read(struct inbox *inbox, struct inbox_entry **added, struct inbox_entry **aborts);
/* Takes the first entry off the list; NULL: it is empty. The list must be read to its end before an entry is removed.
 */
struct inbox_entry *inbox_next_abort(struct inbox_entry **aborts);
/* The entry's request is finished. */
void inbox_remove(struct inbox *inbox, struct inbox_entry *entry);
/* The entry that is not removed and has this id; NULL: there is none. */
struct inbox_entry *inbox_find(struct inbox *inbox, uint64_t id);

bool inbox_has_work(struct inbox *inbox); /* some entry is not removed */
void inbox_wait(struct inbox *inbox);     /* until there is work, or for a call of inbox_wake */
void inbox_wake(struct inbox *inbox);

#endif
