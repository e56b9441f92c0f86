#include "runtime/generate/window.h"

#include <stdlib.h>
#include <string.h>

void window_free(struct window *w)
{
    for (size_t i = w->taken; i < w->count; i++) prompt_free(&w->entries[i].prompt);
    free(w->entries);
    *w = (struct window){0};
}

int64_t window_count(const struct window *w)
{
    return (int64_t)(w->count - w->taken);
}

int64_t window_collected(const struct window *w)
{
    return (int64_t)(w->count - w->sorted);
}

bool window_add(struct window *w, const struct prompt *prompt, struct result *result)
{
    if (!array_reserve(&w->entries, &w->capacity, w->count + 1, sizeof *w->entries)) return false;
    w->entries[w->count] = (struct window_entry){*prompt, result, w->count};
    w->count++;
    w->num_tokens += (int64_t)prompt->tokens.count;
    return true;
}

/* Compares as strcmp does: the shorter comes first where one begins with the other. */
static int compare_tokens(const struct token_list *a, const struct token_list *b)
{
    const size_t length = a->count < b->count ? a->count : b->count;
    for (size_t i = 0; i < length; i++)
        if (a->ids[i] != b->ids[i]) return a->ids[i] < b->ids[i] ? -1 : 1;
    return (a->count > b->count) - (a->count < b->count);
}

static int compare(const void *first, const void *second)
{
    const struct window_entry *x = first, *y = second;
    const struct prompt *a = &x->prompt, *b = &y->prompt;
    if (a->priority != b->priority) return a->priority < b->priority ? -1 : 1;
    const int salts = strcmp(a->cache_salt ? a->cache_salt : "", b->cache_salt ? b->cache_salt : "");
    if (salts) return salts;
    const int tokens = compare_tokens(&a->tokens, &b->tokens);
    return tokens ? tokens : (x->order > y->order) - (x->order < y->order);
}

/* Makes the collected prompts the sorted ones, of which none is left. */
static void sort(struct window *w)
{
    w->count -= w->taken;
    if (w->count > 0) memmove(w->entries, w->entries + w->taken, w->count * sizeof *w->entries);
    w->taken = 0;
    w->sorted = w->count;
    if (w->count > 0) qsort(w->entries, w->count, sizeof *w->entries, compare);
}

bool window_take(struct window *w, struct window_entry *out)
{
    if (w->taken == w->sorted) sort(w);
    if (w->taken == w->sorted) return false;
    *out = w->entries[w->taken++];
    w->num_tokens -= (int64_t)out->prompt.tokens.count;
    return true;
}
