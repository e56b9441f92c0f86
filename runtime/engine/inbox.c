#include "runtime/engine/inbox.h"

#include <stdlib.h>

enum { FIRST_BUCKETS = 64 };

void inbox_init(struct inbox *inbox)
{
    *inbox = (struct inbox){0};
    pthread_mutex_init(&inbox->lock, NULL);
    pthread_cond_init(&inbox->changed, NULL);
}

void inbox_free(struct inbox *inbox, void (*release)(void *job))
{
    for (size_t i = 0; i < inbox->num_buckets; i++)
        for (struct inbox_entry *entry = inbox->buckets[i], *next; entry; entry = next) {
            next = entry->next_alike;
            release(entry->job);
        }
    free(inbox->buckets);
    pthread_cond_destroy(&inbox->changed);
    pthread_mutex_destroy(&inbox->lock);
}

/* ---- the table ---- */

static struct inbox_entry **bucket_of(const struct inbox *inbox, uint64_t id)
{
    return &inbox->buckets[id & (inbox->num_buckets - 1)];
}

static void insert(struct inbox *inbox, struct inbox_entry *entry)
{
    struct inbox_entry **bucket = bucket_of(inbox, entry->id);
    entry->next_alike = *bucket;
    *bucket = entry;
}

static struct inbox_entry *find(const struct inbox *inbox, uint64_t id)
{
    struct inbox_entry *entry = inbox->num_buckets ? *bucket_of(inbox, id) : NULL;
    while (entry && entry->id != id) entry = entry->next_alike;
    return entry;
}

/* Makes room for one more entry. */
static bool grow(struct inbox *inbox)
{
    const struct inbox old = *inbox;
    if (inbox->num_entries < inbox->num_buckets) return true;
    inbox->num_buckets = old.num_buckets ? 2 * old.num_buckets : FIRST_BUCKETS;
    inbox->buckets = calloc(inbox->num_buckets, sizeof *inbox->buckets);
    if (!inbox->buckets) {
        inbox->num_buckets = old.num_buckets;
        inbox->buckets = old.buckets;
        return false;
    }
    for (size_t i = 0; i < old.num_buckets; i++)
        for (struct inbox_entry *entry = old.buckets[i], *next; entry; entry = next) {
            next = entry->next_alike;
            insert(inbox, entry);
        }
    free(old.buckets);
    return true;
}

/* ---- from any thread ---- */

static void append(struct inbox *inbox, struct inbox_entry *entry)
{
    if (inbox->first_new)
        inbox->last_new->next_new = entry;
    else
        inbox->first_new = entry;
    inbox->last_new = entry;
}

enum status inbox_put(struct inbox *inbox, struct inbox_entry *entry, uint64_t *id, struct error *err)
{
    pthread_mutex_lock(&inbox->lock);
    const bool room = grow(inbox);
    if (room) {
        entry->id = ++inbox->last_id;
        if (id) *id = entry->id;
        insert(inbox, entry);
        append(inbox, entry);
        if (inbox->num_entries++ == 0) pthread_cond_signal(&inbox->changed);
    }
    pthread_mutex_unlock(&inbox->lock);
    return room ? STATUS_OK : error_set(err, STATUS_OUT_OF_MEMORY, "out of host memory for one more request");
}

void inbox_abort(struct inbox *inbox, uint64_t id)
{
    pthread_mutex_lock(&inbox->lock);
    struct inbox_entry *entry = find(inbox, id);
    if (entry && !entry->is_ended) {
        entry->is_ended = true;
        entry->next_abort = inbox->last_abort;
        if (inbox->last_abort) inbox->last_abort->previous_abort = entry;
        inbox->last_abort = entry;
    }
    pthread_mutex_unlock(&inbox->lock);
}

bool inbox_has_work(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    const bool work = inbox->num_entries > 0;
    pthread_mutex_unlock(&inbox->lock);
    return work;
}

void inbox_wait(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    while (inbox->num_entries == 0 && !inbox->woken) pthread_cond_wait(&inbox->changed, &inbox->lock);
    inbox->woken = false;
    pthread_mutex_unlock(&inbox->lock);
}

void inbox_wake(struct inbox *inbox)
{
    pthread_mutex_lock(&inbox->lock);
    inbox->woken = true;
    pthread_cond_signal(&inbox->changed);
    pthread_mutex_unlock(&inbox->lock);
}

/* ---- the thread that steps ---- */

void inbox_read(struct inbox *inbox, struct inbox_entry **added, struct inbox_entry **aborts)
{
    pthread_mutex_lock(&inbox->lock);
    *added = inbox->first_new;
    *aborts = inbox->last_abort;
    inbox->first_new = inbox->last_abort = NULL;
    pthread_mutex_unlock(&inbox->lock);
}

struct inbox_entry *inbox_find(struct inbox *inbox, uint64_t id)
{
    pthread_mutex_lock(&inbox->lock);
    struct inbox_entry *entry = find(inbox, id);
    pthread_mutex_unlock(&inbox->lock);
    return entry;
}

/* Nobody else touches the links of an entry in the list: it is ended only once. */
struct inbox_entry *inbox_next_abort(struct inbox_entry **aborts)
{
    struct inbox_entry *entry = *aborts;
    if (!entry) return NULL;
    *aborts = entry->next_abort;
    entry->next_abort = entry->previous_abort = NULL;
    return entry;
}

/* It may be in the list of aborts that were not read. */
static void forget_abort(struct inbox *inbox, struct inbox_entry *entry)
{
    if (entry->previous_abort)
        entry->previous_abort->next_abort = entry->next_abort;
    else if (inbox->last_abort == entry)
        inbox->last_abort = entry->next_abort;
    if (entry->next_abort) entry->next_abort->previous_abort = entry->previous_abort;
}

void inbox_remove(struct inbox *inbox, struct inbox_entry *entry)
{
    pthread_mutex_lock(&inbox->lock);
    struct inbox_entry **place = bucket_of(inbox, entry->id);
    while (*place != entry) place = &(*place)->next_alike;
    *place = entry->next_alike;
    forget_abort(inbox, entry);
    inbox->num_entries--;
    pthread_mutex_unlock(&inbox->lock);
}
