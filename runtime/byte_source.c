#include "runtime/byte_source.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

enum {
    BUFFER_BYTES = 64 * 1024,
    WAIT_MILLISECONDS = 500, /* bounded: a signal just before poll does not end it */
    GZIP_WINDOW = 15 + 16,   /* the largest window, and the header of gzip */
    ZSTD_WINDOW_LOG = 31     /* as `zstd --long=31` writes; memory is taken only for files that need it */
};

static const unsigned char GZIP_MAGIC[] = {0x1F, 0x8B};
static const unsigned char ZSTD_MAGIC[] = {0x28, 0xB5, 0x2F, 0xFD};

struct unpacker {
    z_stream gzip;
    bool gzip_open;
    ZSTD_DCtx *zstd;
    size_t block_bytes; /* of zstd: what it takes next, at most; 0: not known */
    bool inside;        /* of a member or frame, which is not complete */
    bool again;         /* the last call left something to give out, or failed */
};

void byte_source_init(struct byte_source *s, int fd)
{
    *s = (struct byte_source){.fd = fd};
}

void byte_source_free(struct byte_source *s)
{
    if (s->unpacker) {
        if (s->unpacker->gzip_open) inflateEnd(&s->unpacker->gzip);
        ZSTD_freeDCtx(s->unpacker->zstd);
        free(s->unpacker);
    }
    free(s->buffer);
    *s = (struct byte_source){0};
}

static enum source_result fail(struct error *err, enum status status, const char *sentence)
{
    error_set(err, status, "%s", sentence);
    return SOURCE_FAILED;
}

/* ---- the file ---- */

/* One read from the file. SOURCE_END: there is nothing more. */
static enum source_result read_file(struct byte_source *s, bool wait, void *out, size_t size, size_t *count,
                                    struct error *err)
{
    struct pollfd poller = {.fd = s->fd, .events = POLLIN};
    *count = 0;
    if (s->ended) return SOURCE_END;
    const int ready = poll(&poller, 1, wait ? WAIT_MILLISECONDS : 0);
    if (ready == 0 || (ready < 0 && errno == EINTR)) return SOURCE_NOT_YET;
    const ssize_t got = read(s->fd, out, size);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return SOURCE_NOT_YET;
    if (got < 0) {
        error_set(err, STATUS_IO, "cannot read: %s", strerror(errno));
        return SOURCE_FAILED;
    }
    *count = (size_t)got;
    s->ended = got == 0;
    return s->ended ? SOURCE_END : SOURCE_BYTES;
}

/* Reads more into the buffer, behind the bytes that are in it. */
static enum source_result fill(struct byte_source *s, bool wait, struct error *err)
{
    size_t count;
    if (!s->buffer) s->buffer = malloc(BUFFER_BYTES);
    if (!s->buffer) return fail(err, STATUS_OUT_OF_MEMORY, "no memory for reading");
    if (s->start == s->end) s->start = s->end = 0;
    const enum source_result result = read_file(s, wait, s->buffer + s->end, BUFFER_BYTES - s->end, &count, err);
    s->end += count;
    return result;
}

static void consume(struct byte_source *s, size_t count)
{
    s->start += count;
    s->bytes_read += count;
}

/* ---- the form ---- */

/* How the buffer's bytes compare with a magic number: 1 they begin with it, 0 they do not, -1 more are needed. */
static int begins_with(const struct byte_source *s, const unsigned char *magic, size_t length)
{
    const size_t held = s->end - s->start, compared = held < length ? held : length;
    if (memcmp(s->buffer + s->start, magic, compared) != 0) return 0;
    return compared == length ? 1 : s->ended ? 0 : -1;
}

static enum source_result open_unpacker(struct byte_source *s, struct error *err)
{
    static const char no_memory[] = "no memory for unpacking";
    struct unpacker *u = s->unpacker = calloc(1, sizeof *s->unpacker);
    if (!u) return fail(err, STATUS_OUT_OF_MEMORY, no_memory);
    if (s->form == BYTE_FORM_GZIP) {
        u->gzip_open = inflateInit2(&u->gzip, GZIP_WINDOW) == Z_OK;
        if (!u->gzip_open) return fail(err, STATUS_OUT_OF_MEMORY, no_memory);
    } else {
        u->zstd = ZSTD_createDCtx();
        if (!u->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(u->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG)))
            return fail(err, STATUS_OUT_OF_MEMORY, no_memory);
    }
    return SOURCE_BYTES;
}

/* Other forms that files of prompts come in by mistake. */
static const struct {
    const char *magic, *sentence;
} others[] = {
    {"\xFD"
     "7zXZ",
     "the data is packed by xz; unpack it, or pack it with gzip or zstd"},
    {"BZh91AY&SY", "the data is packed by bzip2; unpack it, or pack it with gzip or zstd"},
    {"\x04\x22\x4D\x18", "the data is packed by lz4; unpack it, or pack it with gzip or zstd"},
    {"PK\x03\x04", "the data is a zip archive; unpack it, or pack each file with gzip or zstd"},
    {"\xFF\xFE", "the text is UTF-16; write it as UTF-8"},
    {"\xFE\xFF", "the text is UTF-16; write it as UTF-8"},
};

/* The sentence for the buffer's first bytes; NULL: nothing is known against them. */
static const char *foreign_form(const struct byte_source *s)
{
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (begins_with(s, (const unsigned char *)others[i].magic, strlen(others[i].magic)) > 0)
            return others[i].sentence;
    return NULL;
}

/* Reads until the form is known. */
static enum source_result find_form(struct byte_source *s, bool wait, struct error *err)
{
    while (s->form == BYTE_FORM_UNKNOWN) {
        const enum source_result result = fill(s, wait, err);
        if (result == SOURCE_NOT_YET || result == SOURCE_FAILED) return result;
        const int gzip = begins_with(s, GZIP_MAGIC, sizeof GZIP_MAGIC);
        const int zstd = begins_with(s, ZSTD_MAGIC, sizeof ZSTD_MAGIC);
        if (gzip > 0) s->form = BYTE_FORM_GZIP;
        if (zstd > 0) s->form = BYTE_FORM_ZSTD;
        if (gzip == 0 && zstd == 0) s->form = BYTE_FORM_PLAIN;
    }
    const char *foreign = s->form == BYTE_FORM_PLAIN ? foreign_form(s) : NULL;
    if (foreign) return fail(err, STATUS_UNSUPPORTED, foreign);
    return s->form == BYTE_FORM_PLAIN ? SOURCE_BYTES : open_unpacker(s, err);
}

/* ---- unpacking ---- */

static bool only_zeros(const struct byte_source *s)
{
    for (size_t i = s->start; i < s->end; i++)
        if (s->buffer[i]) return false;
    return true;
}

/* This and unpack_zstd take bytes from the buffer and put *count bytes into `out`, perhaps none yet. */
static enum source_result unpack_gzip(struct byte_source *s, char *out, size_t size, size_t *count, struct error *err)
{
    z_stream *z = &s->unpacker->gzip;
    if (!s->unpacker->inside && s->bytes_read > 0 && only_zeros(s)) { /* padding, which gzip ignores, too */
        consume(s, s->end - s->start);
        return SOURCE_BYTES;
    }
    s->unpacker->inside = true;
    z->next_in = s->buffer + s->start;
    z->avail_in = (uInt)(s->end - s->start);
    z->next_out = (Bytef *)out;
    z->avail_out = (uInt)size;
    const int result = inflate(z, Z_NO_FLUSH);
    consume(s, s->end - s->start - z->avail_in);
    *count = size - z->avail_out;
    if (result == Z_STREAM_END) {
        s->unpacker->inside = false;
        return inflateReset(z) == Z_OK ? SOURCE_BYTES : fail(err, STATUS_INTERNAL, "zlib failed");
    }
    if (result == Z_MEM_ERROR) return fail(err, STATUS_OUT_OF_MEMORY, "no memory for unpacking");
    if (result == Z_OK || result == Z_BUF_ERROR) return SOURCE_BYTES;
    error_set(err, STATUS_INVALID, "the gzip data is damaged (%s)", z->msg ? z->msg : "no reason is known");
    return SOURCE_FAILED;
}

/* A call that fails gives out nothing, so each gets at most the bytes of one block: the blocks before a damaged one are
 * then given out. */
static enum source_result unpack_zstd(struct byte_source *s, char *out, size_t size, size_t *count, struct error *err)
{
    struct unpacker *u = s->unpacker;
    const size_t held = s->end - s->start, wanted = u->block_bytes ? u->block_bytes : sizeof ZSTD_MAGIC;
    ZSTD_inBuffer in = {s->buffer + s->start, held < wanted ? held : wanted, 0};
    ZSTD_outBuffer result = {out, size, 0};
    const size_t left = ZSTD_decompressStream(u->zstd, &result, &in);
    consume(s, in.pos);
    *count = result.pos;
    u->inside = left != 0;
    u->block_bytes = left;
    if (!ZSTD_isError(left)) return SOURCE_BYTES;
    if (ZSTD_getErrorCode(left) == ZSTD_error_memory_allocation)
        return fail(err, STATUS_OUT_OF_MEMORY, "no memory for unpacking");
    error_set(err, STATUS_INVALID, "the zstd data is damaged (%s)", ZSTD_getErrorName(left));
    return SOURCE_FAILED;
}

static enum source_result end_unpacking(const struct byte_source *s, struct error *err)
{
    if (!s->unpacker->inside) return SOURCE_END;
    error_set(err, STATUS_INVALID, "the %s data ends in the middle: the file is cut short",
              s->form == BYTE_FORM_GZIP ? "gzip" : "zstd");
    return SOURCE_FAILED;
}

static enum source_result unpack(struct byte_source *s, bool wait, char *out, size_t size, size_t *count,
                                 struct error *err)
{
    struct unpacker *u = s->unpacker;
    for (;;) {
        enum source_result result;
        if (s->start == s->end && !u->again) {
            result = fill(s, wait, err);
            if (result == SOURCE_END) return end_unpacking(s, err);
            if (result != SOURCE_BYTES) return result;
        }
        result =
            s->form == BYTE_FORM_GZIP ? unpack_gzip(s, out, size, count, err) : unpack_zstd(s, out, size, count, err);
        u->again = *count == size || result == SOURCE_FAILED;
        if (*count > 0) return SOURCE_BYTES; /* a failure comes with the next call */
        if (result == SOURCE_FAILED) return result;
    }
}

/* ---- reading ---- */

static enum source_result read_plain(struct byte_source *s, bool wait, char *out, size_t size, size_t *count,
                                     struct error *err)
{
    const size_t held = s->end - s->start;
    if (held == 0) {
        const enum source_result result = read_file(s, wait, out, size, count, err);
        s->bytes_read += *count;
        return result;
    }
    *count = held < size ? held : size;
    memcpy(out, s->buffer + s->start, *count);
    consume(s, *count);
    return SOURCE_BYTES;
}

enum source_result byte_source_read(struct byte_source *s, bool wait, char *out, size_t size, size_t *count,
                                    struct error *err)
{
    *count = 0;
    if (s->form == BYTE_FORM_UNKNOWN) {
        const enum source_result result = find_form(s, wait, err);
        if (result != SOURCE_BYTES) return result;
    }
    const enum source_result result = s->form == BYTE_FORM_PLAIN ? read_plain(s, wait, out, size, count, err)
                                                                 : unpack(s, wait, out, size, count, err);
    s->bytes_given += *count;
    return result;
}
