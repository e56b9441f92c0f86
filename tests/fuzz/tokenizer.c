#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/temp_folder.h"
#include "tokenizer/detokenizer.h"

/* Token by token the ids give the same text as at once. */
static void check_stream(const struct tokenizer *t, const struct token_list *ids, const struct text *whole,
                         bool with_special)
{
    struct detokenizer d;
    struct text text = {0};
    const size_t most = detokenizer_max_bytes(tokenizer_tokens(t));
    detokenizer_init(&d, tokenizer_tokens(t), true, with_special);
    for (size_t i = 0; i <= ids->count; i++) {
        char *piece = malloc(most + 1); /* of its own, so that a byte too many is seen */
        fuzz_require(piece != NULL, "no memory");
        const size_t length = i < ids->count ? detokenizer_add(&d, ids->ids[i], piece) : detokenizer_finish(&d, piece);
        fuzz_require(length <= most, "more bytes than detokenizer_max_bytes");
        fuzz_require(text_append(&text, piece, length), "no memory");
        free(piece);
    }
    fuzz_require(text.length == whole->length && (text.length == 0 || !memcmp(text.data, whole->data, text.length)),
                 "streamed text differs");
    text_free(&text);
}

static void check_decode(const struct tokenizer *t, const struct token_list *ids, bool with_special)
{
    struct text text = {0};
    struct error err = {""};
    for (size_t i = 0; i < ids->count; i++)
        fuzz_require(ids->ids[i] >= 0 && ids->ids[i] < tokenizer_size(t), "an id outside the vocabulary");
    fuzz_require(tokenizer_decode(t, ids->ids, ids->count, with_special, &text, &err) == STATUS_OK, err.text);
    fuzz_require(utf8_valid_prefix(text.data, text.length) == text.length, "decoded text that is not UTF-8");
    check_stream(t, ids, &text, with_special);
    text_free(&text);
}

/* The unknown piece and single characters stand for text, special or not. */
static bool stands_for_text(const struct tokenizer *t, int32_t id)
{
    static const char unknown[] = "\xf4\x8f\xbf\xbf";
    struct token_list ids = {0};
    struct error err;
    size_t length;
    const char *bytes = tokenizer_token_bytes(t, id, true, &length);
    bool yes = length <= 1 || utf8_length(bytes, length) == (int)length;
    if (!yes && tokenizer_encode(t, unknown, sizeof unknown - 1, 0, &ids, &err) == STATUS_OK)
        for (size_t i = 0; i < ids.count; i++) yes = yes || ids.ids[i] == id;
    token_list_free(&ids);
    return yes;
}

/* Special tokens come from a text only if it may name them. */
static void check_encode(const struct tokenizer *t, struct fuzz_part text, unsigned flags)
{
    struct token_list ids = {0};
    struct error err = {""};
    if (tokenizer_encode(t, text.bytes, text.length, flags, &ids, &err) == STATUS_OK) {
        for (size_t i = 0; flags == 0 && i < ids.count; i++)
            fuzz_require(!tokenizer_is_special(t, ids.ids[i]) || stands_for_text(t, ids.ids[i]),
                         "text became a special token");
        check_decode(t, &ids, true);
        check_decode(t, &ids, false);
    } else {
        fuzz_require(ids.count == 0 && err.text[0], "ids or no sentence after a failure");
    }
    token_list_free(&ids);
}

/* The first half of the bytes is marked. */
static void check_marked(const struct tokenizer *t, struct fuzz_part text)
{
    struct token_list ids = {0};
    struct marked_text marked = {0};
    struct error err = {""};
    const char person = 1, template = 0;
    bool ok = utf8_append_valid(&marked.text, text.bytes, text.length);
    for (size_t i = 0; i < marked.text.length; i++)
        ok = ok && text_append(&marked.marks, i < marked.text.length / 2 ? &person : &template, 1);
    fuzz_require(ok, "no memory");
    if (tokenizer_encode_marked(t, &marked, &ids, &err) == STATUS_OK) check_decode(t, &ids, true);
    token_list_free(&ids);
    marked_text_free(&marked);
}

static void check_text(const struct tokenizer *t, struct fuzz_part text)
{
    check_encode(t, text, 0);
    check_encode(t, text, TOKENIZER_PARSE_SPECIAL);
    check_encode(t, text, TOKENIZER_ADD_SPECIAL | TOKENIZER_PARSE_SPECIAL);
    check_marked(t, text);
}

void fuzz_tokenizer(const struct tokenizer *t, struct fuzz_part text)
{
    static const char mixed[] = " Hello, low lower\n\n  IT'S 1234567 <s></s><|im_start|>\xc3\xa9\xcc\x81\xe4\xbd\xa0"
                                "\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb\xe2\x96\x81\xff\xc3";
    struct token_list all = {0};
    check_text(t, text);
    check_text(t, (struct fuzz_part){mixed, sizeof mixed - 1});
    for (int32_t id = 0; id < tokenizer_size(t) && id < 1000; id++)
        fuzz_require(token_list_append(&all, &id, 1), "no memory");
    check_decode(t, &all, true);
    check_decode(t, &all, false);
    token_list_free(&all);
}

void fuzz_tokenizer_file(const char *name, struct fuzz_part file, struct fuzz_part text)
{
    struct temp_folder folder;
    struct tokenizer *t;
    struct error err = {""};
    temp_folder_make(&folder);
    temp_folder_write(&folder, name, file.bytes, file.length);
    const enum status status = tokenizer_open(folder.path, &t, &err);
    fuzz_require((status == STATUS_OK) == (t != NULL) && (t || err.text[0]), "a failure without a sentence");
    if (t) fuzz_tokenizer(t, text);
    tokenizer_close(t);
    temp_folder_remove(&folder);
}
