#include "runtime/fingerprint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/file.h"

enum { CHUNK_BYTES = 1 << 20, PAGE_BYTES = 4096, NUM_PAGES = 64, MAX_HEADER_BYTES = 100 << 20 };

struct hasher {
    XXH3_state_t *state;
    char *chunk; /* [CHUNK_BYTES] */
};

static enum status hasher_open(struct hasher *h, struct error *err)
{
    *h = (struct hasher){XXH3_createState(), malloc(CHUNK_BYTES)};
    if (h->state && h->chunk && XXH3_128bits_reset(h->state) == XXH_OK) return STATUS_OK;
    return error_set(err, STATUS_OUT_OF_MEMORY, "no memory for hashing files");
}

static void hasher_close(struct hasher *h, struct fingerprint *out)
{
    *out = (struct fingerprint){""};
    if (h->state) {
        const XXH128_hash_t hash = XXH3_128bits_digest(h->state);
        snprintf(out->text, sizeof out->text, "%016llx%016llx", (unsigned long long)hash.high64,
                 (unsigned long long)hash.low64);
    }
    XXH3_freeState(h->state);
    free(h->chunk);
}

static void add_number(struct hasher *h, uint64_t number)
{
    XXH3_128bits_update(h->state, &number, sizeof number);
}

/* Adds the bytes [offset, offset + count) of a file, or as many of them as it has. */
static enum status add_bytes(struct hasher *h, int fd, uint64_t offset, uint64_t count, struct error *err)
{
    while (count > 0) {
        const ssize_t got = pread(fd, h->chunk, count < CHUNK_BYTES ? (size_t)count : CHUNK_BYTES, (off_t)offset);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return error_set(err, STATUS_IO, "cannot read: %s", strerror(errno));
        if (got == 0) break;
        XXH3_128bits_update(h->state, h->chunk, (size_t)got);
        offset += (uint64_t)got;
        count -= (uint64_t)got;
    }
    return STATUS_OK;
}

/* ---- files as they are ---- */

enum status fingerprint_size(int fd, uint64_t *size, struct error *err)
{
    struct stat info;
    const off_t start = lseek(fd, 0, SEEK_CUR);
    if (start < 0 || fstat(fd, &info) != 0) return error_set(err, STATUS_IO, "cannot read: %s", strerror(errno));
    *size = info.st_size > start ? (uint64_t)(info.st_size - start) : 0;
    return STATUS_OK;
}

/* The size stands before the bytes, so that a line cannot move from one file to the next unseen. */
static enum status add_file(struct hasher *h, int fd, uint64_t size, struct error *err)
{
    const off_t start = lseek(fd, 0, SEEK_CUR);
    if (start < 0) return error_set(err, STATUS_IO, "cannot read: %s", strerror(errno));
    add_number(h, size);
    return add_bytes(h, fd, (uint64_t)start, size, err);
}

enum status fingerprint_files(const int *fds, const uint64_t *sizes, int count, struct fingerprint *out,
                              struct error *err)
{
    struct hasher h;
    enum status status = hasher_open(&h, err);
    for (int i = 0; status == STATUS_OK && i < count; i++) status = add_file(&h, fds[i], sizes[i], err);
    hasher_close(&h, out);
    return status;
}

enum status fingerprint_path(const char *path, struct fingerprint *out, struct error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error_set(err, STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    uint64_t size;
    enum status status = fingerprint_size(fd, &size, err);
    if (status == STATUS_OK) status = fingerprint_files(&fd, &size, 1, out, err);
    close(fd);
    return status == STATUS_OK ? status : error_prefix(err, status, path);
}

enum status fingerprint_text(const struct text *text, struct fingerprint *out, struct error *err)
{
    struct hasher h;
    const enum status status = hasher_open(&h, err);
    if (status == STATUS_OK) {
        add_number(&h, text->length);
        XXH3_128bits_update(h.state, text->data, text->length);
    }
    hasher_close(&h, out);
    return status;
}

/* ---- a model ---- */

/* What a safetensors file says about itself: 8 bytes with the length of the header, and the header. Then pages. */
static enum status add_weights(struct hasher *h, int fd, uint64_t size, struct error *err)
{
    uint64_t header = 0;
    if (pread(fd, &header, sizeof header, 0) != (ssize_t)sizeof header || header > MAX_HEADER_BYTES) header = 0;
    add_number(h, size);
    enum status status = add_bytes(h, fd, 0, header + 8, err);
    for (uint64_t i = 0; status == STATUS_OK && i < NUM_PAGES; i++)
        status = add_bytes(h, fd, size / NUM_PAGES * i, PAGE_BYTES, err);
    return status;
}

static bool is_weights(const char *name)
{
    return fnmatch("*.safetensors", name, 0) == 0;
}

static int is_read(const struct dirent *entry)
{
    static const char *const patterns[] = {"config.json",
                                           "generation_config.json",
                                           "hf_quant_config.json",
                                           "tokenizer*",
                                           "vocab*",
                                           "merges.txt",
                                           "added_tokens.json",
                                           "chat_template*",
                                           "special_tokens_map.json",
                                           "*.safetensors",
                                           "*.safetensors.index.json"};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        if (fnmatch(patterns[i], entry->d_name, 0) == 0) return 1;
    return 0;
}

/* This order is the same everywhere; alphasort's follows the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static enum status add_entry(struct hasher *h, const char *folder, const char *name, struct error *err)
{
    char path[4096];
    struct stat info;
    if (!path_join(path, sizeof path, folder, name) || stat(path, &info) != 0 || !S_ISREG(info.st_mode))
        return STATUS_OK; /* who reads it says what is wrong with it */
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return error_set(err, STATUS_IO, "cannot open %s: %s", path, strerror(errno));
    XXH3_128bits_update(h->state, name, strlen(name) + 1);
    const enum status status = is_weights(name) ? add_weights(h, fd, (uint64_t)info.st_size, err)
                                                : add_file(h, fd, (uint64_t)info.st_size, err);
    close(fd);
    return status == STATUS_OK ? status : error_prefix(err, status, path);
}

enum status fingerprint_model(const char *folder, bool with_weights, struct fingerprint *out, struct error *err)
{
    struct dirent **entries = NULL;
    struct hasher h;
    enum status status = hasher_open(&h, err);
    const int count = scandir(folder, &entries, is_read, by_name);
    for (int i = 0; i < count; i++) {
        if (status == STATUS_OK && (with_weights || !is_weights(entries[i]->d_name)))
            status = add_entry(&h, folder, entries[i]->d_name, err);
        free(entries[i]);
    }
    free(entries);
    hasher_close(&h, out);
    return status;
}
