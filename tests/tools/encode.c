/* A tokenizer that answers requests, for comparison with another implementation.
 *
 * usage: encode FOLDER
 * A request on standard input: uint32 operation, flags and length, then `length` bytes. An answer on standard output:
 * double seconds that the operation took, uint32 length, then `length` bytes. The first answer, to no request, says how
 * long opening the tokenizer took. All in the machine's byte order.
 *
 *     ENCODE  text -> int32 ids                    flags: enum tokenizer_flags
 *     DECODE  int32 ids -> text                    flags: 1 shows special tokens
 *     STREAM  int32 ids -> text, id by id          flags: 1 shows special tokens */
#include <stdio.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

enum { ENCODE, DECODE, STREAM };

struct request {
    uint32_t operation, flags, length;
};

static void must(bool right, const char *what)
{
    if (right) return;
    fprintf(stderr, "encode: %s\n", what);
    exit(1);
}

static void answer(double seconds, const void *bytes, size_t length)
{
    const uint32_t count = (uint32_t)length;
    fwrite(&seconds, sizeof seconds, 1, stdout);
    fwrite(&count, sizeof count, 1, stdout);
    if (length > 0) fwrite(bytes, 1, length, stdout);
    must(fflush(stdout) == 0, "the answer cannot be written");
}

static void stream(const struct tokenizer *t, const int32_t *ids, size_t count, bool with_special, struct text *out)
{
    struct detokenizer d;
    const size_t most = detokenizer_max_bytes(tokenizer_tokens(t));
    detokenizer_init(&d, tokenizer_tokens(t), true, with_special);
    for (size_t i = 0; i <= count; i++) {
        must(text_reserve(out, out->length + most), "no memory");
        char *end = out->data + out->length;
        out->length += i < count ? detokenizer_add(&d, ids[i], end) : detokenizer_finish(&d, end);
    }
}

static void serve(const struct tokenizer *t, const struct request *r, const char *bytes)
{
    struct token_list ids = {0};
    struct text text = {0};
    struct error err;
    enum status status = STATUS_OK;
    const int32_t *given = (const int32_t *)(const void *)bytes;
    const size_t count = r->length / sizeof *given;
    const double start = clock_seconds();
    if (r->operation == ENCODE) status = tokenizer_encode(t, bytes, r->length, r->flags, &ids, &err);
    if (r->operation == DECODE) status = tokenizer_decode(t, given, count, r->flags, &text, &err);
    if (r->operation == STREAM) stream(t, given, count, r->flags, &text);
    const double seconds = clock_seconds() - start;
    must(status == STATUS_OK, err.text);
    if (r->operation == ENCODE)
        answer(seconds, ids.ids, ids.count * sizeof *ids.ids);
    else
        answer(seconds, text.data, text.length);
    token_list_free(&ids);
    text_free(&text);
}

int main(int argc, char **argv)
{
    must(argc == 2, "usage: encode FOLDER");
    struct error err;
    struct tokenizer *t;
    const double start = clock_seconds();
    must(tokenizer_open(argv[1], &t, &err) == STATUS_OK, err.text);
    answer(clock_seconds() - start, NULL, 0);
    struct request r;
    while (fread(&r, sizeof r, 1, stdin) == 1) {
        char *bytes = malloc(r.length + 1); /* aligned for ids */
        must(bytes && fread(bytes, 1, r.length, stdin) == r.length, "the request is cut short");
        serve(t, &r, bytes);
        free(bytes);
    }
    tokenizer_close(t);
    return 0;
}
