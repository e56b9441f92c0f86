#include "runtime/chat/branches.h"

#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* Adds a branch that takes over the conversation, and makes it the current one. */
static bool add(struct branches *b, const char *name, const struct conversation *conversation)
{
    if (!array_reserve(&b->list, &b->capacity, b->count + 1, sizeof *b->list)) return false;
    char *copy = strdup(name);
    if (!copy) return false;
    b->list[b->count] = (struct branch){.name = copy, .conversation = *conversation};
    b->current = b->count++;
    return true;
}

bool branches_init(struct branches *b, const char *name, const struct conversation *conversation)
{
    *b = (struct branches){0};
    return add(b, name, conversation);
}

void branches_free(struct branches *b)
{
    for (size_t i = 0; i < b->count; i++) {
        conversation_free(&b->list[i].conversation);
        free(b->list[i].name);
    }
    free(b->list);
    *b = (struct branches){0};
}

struct branch *branches_current(const struct branches *b)
{
    return &b->list[b->current];
}

struct branch *branches_find(const struct branches *b, const char *name)
{
    for (size_t i = 0; i < b->count; i++)
        if (strcmp(b->list[i].name, name) == 0) return &b->list[i];
    return NULL;
}

bool branches_add(struct branches *b, const char *name)
{
    struct conversation copy;
    const bool warned = branches_current(b)->warned;
    if (conversation_copy(&branches_current(b)->conversation, &copy) && add(b, name, &copy)) {
        branches_current(b)->warned = warned;
        return true;
    }
    conversation_free(&copy);
    return false;
}

void branches_switch(struct branches *b, const struct branch *to)
{
    b->current = (size_t)(to - b->list);
}
