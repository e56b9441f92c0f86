#include "runtime/chat/history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* Creates the folders above the file that do not exist. */
static bool make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        const bool ok = mkdir(path, 0700) == 0 || errno == EEXIST;
        *slash = '/';
        if (!ok) return false;
    }
    return true;
}

static void find_file(struct text *path, const char *name)
{
    const char *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    bool ok = false;
    if (state && *state == '/')
        ok = text_printf(path, "%s/quire/%s", state, name);
    else if (home && *home == '/')
        ok = text_printf(path, "%s/.local/state/quire/%s", home, name);
    if (!ok || !make_folders(path->data)) text_clear(path);
}

/* Opens and locks the file; -1 if it cannot be opened. The lock is of an inode: if another session has replaced the
 * file in the meantime, the new one is locked. A file system without locks does without. */
static int lock_file(const char *path)
{
    for (;;) {
        const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        struct stat locked, named;
        if (file < 0) return -1;
        while (flock(file, LOCK_EX) != 0 && errno == EINTR) continue;
        if (fstat(file, &locked) == 0 && stat(path, &named) == 0 && locked.st_ino == named.st_ino &&
            locked.st_dev == named.st_dev)
            return file;
        close(file);
    }
}

/* Replaces what is in memory by what is in the file. False if the file holds something else than a history. */
static bool load(struct message_history *h, int file)
{
    HistEvent event;
    struct stat info;
    history(h->entries, &event, H_CLEAR);
    if (fstat(file, &info) != 0 || info.st_size == 0) return true;
    return history(h->entries, &event, H_LOAD, h->path.data) >= 0;
}

static void save(struct message_history *h)
{
    HistEvent event;
    struct text new_path = {0};
    if (!text_printf(&new_path, "%s.new", h->path.data)) return;
    if (history(h->entries, &event, H_SAVE, new_path.data) < 0 || rename(new_path.data, h->path.data) != 0)
        unlink(new_path.data);
    text_free(&new_path);
}

void history_open(struct message_history *h, const char *name)
{
    HistEvent event;
    *h = (struct message_history){.entries = history_init()};
    if (!h->entries) return;
    history(h->entries, &event, H_SETSIZE, HISTORY_MESSAGES);
    if (name) find_file(&h->path, name);
    const int file = h->path.length ? lock_file(h->path.data) : -1;
    if (file < 0 || !load(h, file)) text_clear(&h->path);
    if (file >= 0) close(file);
}

void history_close(struct message_history *h)
{
    if (h->entries) history_end(h->entries);
    text_free(&h->path);
}

static void remove_equal(struct message_history *h, const char *message)
{
    HistEvent event;
    int found = history(h->entries, &event, H_FIRST);
    while (found >= 0 && strcmp(event.str, message) != 0) found = history(h->entries, &event, H_NEXT);
    if (found < 0 || history(h->entries, &event, H_DEL, event.num) < 0) return;
    free((char *)event.str); /* a copy for us */
}

void history_add(struct message_history *h, const char *message)
{
    HistEvent event;
    if (!h->entries || strlen(message) > HISTORY_MAX_BYTES) return;
    const int file = h->path.length ? lock_file(h->path.data) : -1;
    const bool shared = file >= 0 && load(h, file);
    remove_equal(h, message);
    history(h->entries, &event, H_ENTER, message);
    if (shared) save(h); /* now, because a closed terminal kills the process */
    if (file >= 0) close(file);
}

const char *history_get(const struct message_history *h, int n)
{
    HistEvent event;
    if (!h->entries || history(h->entries, &event, H_FIRST) < 0) return NULL;
    while (--n > 0)
        if (history(h->entries, &event, H_NEXT) < 0) return NULL;
    return event.str;
}
