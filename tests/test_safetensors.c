/* The reader of safetensors: well-formed variants open; every rule of the format has a file that breaks it, and is
 * refused with a sentence that names the file and the rule; mutated files never crash it. */
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/array.h"
#include "base/file.h"
#include "model/checkpoint/tensor_file.h"
#include "tests/support/temp_folder.h"

#define FILE_NAME "model.safetensors"
#define INDEX_NAME "model.safetensors.index.json"

/* length + header + data */
static void write_file(const struct temp_folder *folder, const char *name, uint64_t length, const char *header,
                       size_t header_bytes, size_t data_bytes)
{
    struct text file = {0};
    assert_true(text_append(&file, (const char *)&length, 8));
    assert_true(text_append(&file, header, header_bytes));
    for (size_t i = 0; i < data_bytes; i++) {
        const char byte = (char)(i * 7 + 1);
        assert_true(text_append(&file, &byte, 1));
    }
    temp_folder_write(folder, name, file.data, file.length);
    text_free(&file);
}

static void write_simple(const struct temp_folder *folder, const char *name, const char *header, size_t data_bytes)
{
    write_file(folder, name, strlen(header), header, strlen(header), data_bytes);
}

static void path_in(const struct temp_folder *folder, const char *name, char *path, size_t size)
{
    assert_true(path_join(path, size, folder->path, name));
}

/* Opens FILE_NAME of the folder and expects success. */
static struct tensor_file *open_good(const struct temp_folder *folder)
{
    char path[512];
    struct error err = {""};
    struct tensor_file *s = NULL;
    path_in(folder, FILE_NAME, path, sizeof path);
    const enum status status = tensor_file_open_path(path, &s, &err);
    if (status != STATUS_OK) print_error("%s\n", err.text);
    assert_int_equal(status, STATUS_OK);
    return s;
}

/* The message names the file and holds the words, and the reader is NULL. */
static void check_refusal(enum status status, const struct tensor_file *s, const struct error *err,
                          enum status expected, const char *file, const char *words)
{
    if (status != expected || !strstr(err->text, words) || !strstr(err->text, file))
        print_error("expected status %d and \"%s\" about %s; found status %d: %s\n", (int)expected, words, file,
                    (int)status, err->text);
    assert_int_equal(status, expected);
    assert_null(s);
    assert_non_null(strstr(err->text, file));
    assert_non_null(strstr(err->text, words));
    assert_null(strchr(err->text, '\n'));
}

static void refuse_file(const struct temp_folder *folder, enum status expected, const char *words)
{
    char path[512];
    struct error err = {""};
    struct tensor_file *s = NULL;
    path_in(folder, FILE_NAME, path, sizeof path);
    const enum status status = tensor_file_open_path(path, &s, &err);
    check_refusal(status, s, &err, expected, path, words);
}

static void refuse_folder(const struct temp_folder *folder, enum status expected, const char *file, const char *words)
{
    struct error err = {""};
    struct tensor_file *s = NULL;
    const enum status status = tensor_file_open(folder->path, &s, &err);
    check_refusal(status, s, &err, expected, file, words);
}

/* --- Well-formed files --- */

static void test_two_tensors(void **state)
{
    const struct temp_folder *folder = *state;
    write_simple(folder, FILE_NAME,
                 "{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[4,28]},"
                 "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}     ",
                 28);
    struct tensor_file *s = open_good(folder);
    assert_int_equal(tensor_file_count(s), 2);
    assert_int_equal(tensor_file_bytes(s), 28);
    const struct stored_tensor *a = tensor_file_find(s, "a"), *b = tensor_file_find(s, "b");
    assert_ptr_equal(a, tensor_file_at(s, 0)); /* in order of offset, not of name or header */
    assert_ptr_equal(b, tensor_file_at(s, 1));
    assert_int_equal(tensor_file_index(s, b), 1);
    assert_null(tensor_file_find(s, "c"));
    assert_null(tensor_file_find(s, ""));
    assert_string_equal(a->name, "a");
    assert_non_null(strstr(a->path, "/" FILE_NAME));
    assert_ptr_equal(a->type, &element_types[ELEMENT_BF16]);
    assert_int_equal(a->num_dims, 1);
    assert_int_equal(a->shape[0], 2);
    assert_int_equal(a->bytes, 4);
    assert_int_equal(((const uint8_t *)a->data)[0], 1);
    assert_int_equal(b->num_dims, 2);
    assert_int_equal(b->shape[0], 2);
    assert_int_equal(b->shape[1], 3);
    assert_int_equal(((const uint8_t *)b->data)[0], 4 * 7 + 1);
    tensor_file_close(s);
}

static void test_no_tensors(void **state)
{
    const struct temp_folder *folder = *state;
    write_simple(folder, FILE_NAME, "{}", 0);
    struct tensor_file *s = open_good(folder);
    assert_int_equal(tensor_file_count(s), 0);
    assert_int_equal(tensor_file_bytes(s), 0);
    assert_null(tensor_file_find(s, "a"));
    tensor_file_close(s);
    tensor_file_close(NULL);
}

static void test_scalar_and_empty(void **state)
{
    const struct temp_folder *folder = *state;
    /* an empty tensor at the start, between two others, and at the very end */
    write_simple(folder, FILE_NAME,
                 "{\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                 "\"e0\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                 "\"e1\":{\"dtype\":\"F32\",\"shape\":[4,0,2],\"data_offsets\":[4,4]},"
                 "\"last\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[4,7]},"
                 "\"e2\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[7,7]}}",
                 7);
    struct tensor_file *s = open_good(folder);
    assert_int_equal(tensor_file_count(s), 5);
    assert_int_equal(tensor_file_find(s, "scalar")->num_dims, 0);
    assert_int_equal(tensor_file_find(s, "scalar")->bytes, 4);
    assert_int_equal(tensor_file_find(s, "e1")->bytes, 0);
    assert_int_equal(tensor_file_find(s, "e1")->num_dims, 3);
    assert_non_null(tensor_file_find(s, "e2")->data);
    tensor_file_close(s);
}

static void test_metadata(void **state)
{
    const struct temp_folder *folder = *state;
    write_simple(folder, FILE_NAME,
                 "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"\"},"
                 "\"a\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
                 1);
    struct tensor_file *s = open_good(folder);
    assert_int_equal(tensor_file_count(s), 1);
    tensor_file_close(s);
    write_simple(folder, FILE_NAME, "{\"__metadata__\":{}}", 0);
    tensor_file_close(open_good(folder));
}

static void test_misaligned(void **state)
{
    const struct temp_folder *folder = *state;
    const char *text = "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                       "\"b\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[1,17]},"
                       "\"c\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[17,21]},"
                       "\"d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[21,21]}}";
    for (size_t padding = 0; padding < 8; padding++) {
        char header[512];
        snprintf(header, sizeof header, "%s%*s", text, (int)padding, "");
        write_simple(folder, FILE_NAME, header, 21);
        struct tensor_file *s = open_good(folder);
        const struct stored_tensor *b = tensor_file_find(s, "b"), *c = tensor_file_find(s, "c");
        assert_int_equal((uintptr_t)b->data % 8, 0);
        assert_int_equal((uintptr_t)c->data % 2, 0);
        for (size_t i = 0; i < 16; i++) assert_int_equal(((const uint8_t *)b->data)[i], (uint8_t)((i + 1) * 7 + 1));
        for (size_t i = 0; i < 4; i++) assert_int_equal(((const uint8_t *)c->data)[i], (uint8_t)((i + 17) * 7 + 1));
        tensor_file_close(s);
    }
}

/* A tensor is read as it lies in memory, a part of it too, from a mapping or from an aligned copy. */
static void check_read(const struct tensor_file *s, const struct stored_tensor *t)
{
    uint8_t bytes[64];
    for (uint64_t first = 0; first < t->bytes; first++) {
        struct error err;
        memset(bytes, 0xAA, sizeof bytes);
        const uint8_t *data = (const uint8_t *)t->data + first;
        assert_int_equal(tensor_file_read(s, data, t->bytes - first, bytes, &err), STATUS_OK);
        assert_memory_equal(bytes, data, t->bytes - first);
        assert_int_equal(bytes[t->bytes - first], 0xAA);
    }
}

static void test_read(void **state)
{
    const struct temp_folder *folder = *state;
    char path[PATH_MAX];
    write_simple(folder, FILE_NAME,
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]},"
                 "\"b\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[5,17]}}",
                 17);
    struct tensor_file *s = open_good(folder);
    const struct stored_tensor *a = tensor_file_find(s, "a"), *b = tensor_file_find(s, "b");
    check_read(s, a);
    check_read(s, b);
    path_in(folder, FILE_NAME, path, sizeof path);
    assert_int_equal(truncate(path, 12), 0);
    uint8_t bytes[8];
    struct error err = {""};
    assert_int_equal(tensor_file_read(s, a->data, a->bytes, bytes, &err), STATUS_IO);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "shorter"));
    tensor_file_close(s);
}

/* Rows of a matrix, and columns, a band of rows at a time. */
static void test_read_strips(void **state)
{
    const struct temp_folder *folder = *state;
    write_simple(folder, FILE_NAME, "{\"m\":{\"dtype\":\"U8\",\"shape\":[4,6],\"data_offsets\":[0,24]}}", 24);
    struct tensor_file *s = open_good(folder);
    const struct stored_tensor *m = tensor_file_find(s, "m");
    for (int64_t first = 0; first < 4; first++)
        for (int64_t count = 1; first + count <= 4; count++)
            for (int64_t offset = 0; offset < 6; offset++)
                for (int64_t bytes = 1; offset + bytes <= 6; bytes++) {
                    uint8_t out[32];
                    struct error err;
                    memset(out, 0xAA, sizeof out);
                    assert_int_equal(tensor_file_read_strips(s, m, first, count, offset, bytes, out, &err), STATUS_OK);
                    for (int64_t row = 0; row < count; row++)
                        assert_memory_equal(out + row * bytes, (const uint8_t *)m->data + (first + row) * 6 + offset,
                                            (size_t)bytes);
                    assert_int_equal(out[count * bytes], 0xAA);
                }
    tensor_file_close(s);
}

static void test_dtypes(void **state)
{
    const struct temp_folder *folder = *state;
    static const struct {
        const char *name;
        int bytes, dtype;
    } all[] = {{"BOOL", 1, -1},
               {"U8", 1, -1},
               {"I8", 1, -1},
               {"F8_E5M2", 1, DTYPE_FP8_E5M2},
               {"F8_E4M3", 1, DTYPE_FP8_E4M3},
               {"I16", 2, -1},
               {"U16", 2, -1},
               {"F16", 2, DTYPE_FLOAT16},
               {"BF16", 2, DTYPE_BFLOAT16},
               {"I32", 4, -1},
               {"U32", 4, -1},
               {"F32", 4, DTYPE_FLOAT32},
               {"F64", 8, -1},
               {"I64", 8, -1},
               {"U64", 8, -1}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char header[256];
        snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}", all[i].name,
                 3 * all[i].bytes);
        write_simple(folder, FILE_NAME, header, 3 * (size_t)all[i].bytes);
        struct tensor_file *s = open_good(folder);
        const struct stored_tensor *t = tensor_file_find(s, "t");
        assert_string_equal(t->type->name, all[i].name);
        assert_int_equal(t->type->bytes, all[i].bytes);
        assert_int_equal(t->type->has_dtype, all[i].dtype >= 0);
        if (all[i].dtype >= 0) assert_int_equal(t->type->dtype, all[i].dtype);
        tensor_file_close(s);
    }
}

/* --- Files that break a rule --- */

#define TENSOR(rest) "{\"w\":{" rest "}}"
#define WELL "\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"

static const struct {
    const char *header;
    size_t data_bytes;
    enum status status;
    const char *words;
} malformed[] = {
    /* the header's ends */
    {"", 8, STATUS_INVALID, "must start with '{'"},
    {"[]", 0, STATUS_INVALID, "must start with '{'"},
    {" {}", 0, STATUS_INVALID, "must start with '{'"},
    {"   ", 0, STATUS_INVALID, "must start with '{'"},
    {"{", 0, STATUS_INVALID, "must start with '{'"},
    {"{}\n", 0, STATUS_INVALID, "must end with '}'"},
    {"{} x", 0, STATUS_INVALID, "must end with '}'"},
    {"{}{}", 0, STATUS_INVALID, "not valid JSON"},
    {"{} }", 0, STATUS_INVALID, "not valid JSON"},
    /* JSON */
    {"{\"w\":}", 0, STATUS_INVALID, "not valid JSON"},
    {"{w:1}", 0, STATUS_INVALID, "not valid JSON"},
    {"{\"w\xff\":{" WELL "}}", 8, STATUS_INVALID, "not valid JSON"},
    {"{\"w\":{" WELL "},\"w\":{" WELL "}}", 8, STATUS_INVALID, "the key \"w\" is there twice"},
    {TENSOR(WELL ",\"dtype\":\"F32\""), 8, STATUS_INVALID, "the key \"dtype\" is there twice"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,8]"), 8, STATUS_INVALID,
     "\"shape\" must hold integers of 64 bits"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[NaN],\"data_offsets\":[0,8]"), 8, STATUS_INVALID, "must hold integers"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8e999]"), 8, STATUS_INVALID,
     "must be an array of two integers"},
    {"{\"w\":NaN}", 0, STATUS_INVALID, "expected an object with dtype, shape and data_offsets"},
    {"{\"__metadata__\":Infinity}", 0, STATUS_INVALID, "\"__metadata__\" must be an object"},
    /* metadata */
    {"{\"__metadata__\":[]}", 0, STATUS_INVALID, "\"__metadata__\" must be an object"},
    {"{\"__metadata__\":null}", 0, STATUS_INVALID, "\"__metadata__\" must be an object"},
    {"{\"__metadata__\":{\"a\":1}}", 0, STATUS_INVALID, "must hold strings, but \"a\""},
    /* entries */
    {"{\"w\":[]}", 0, STATUS_INVALID, "\"w\": expected an object"},
    {"{\"w\":null}", 0, STATUS_INVALID, "\"w\": expected an object"},
    {TENSOR("\"shape\":[2],\"data_offsets\":[0,8]"), 8, STATUS_INVALID, "\"w\": \"dtype\" must be a string"},
    {TENSOR("\"dtype\":32,\"shape\":[2],\"data_offsets\":[0,8]"), 8, STATUS_INVALID, "\"dtype\" must be a string"},
    {TENSOR("\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,1]"), 1, STATUS_UNSUPPORTED, "dtype \"F4\""},
    {TENSOR("\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]"), 8, STATUS_UNSUPPORTED, "dtype \"f32\""},
    {TENSOR("\"dtype\":\"F32\",\"data_offsets\":[0,8]"), 8, STATUS_INVALID, "\"shape\" must be an array"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]"), 8, STATUS_INVALID, "\"shape\" must be an array"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]"), 8, STATUS_INVALID, "must hold integers"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[\"2\"],\"data_offsets\":[0,8]"), 8, STATUS_INVALID, "must hold integers"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]"), 8, STATUS_INVALID, "not negative"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]"), 8, STATUS_UNSUPPORTED,
     "more than 8 dimensions"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]"), 8, STATUS_INVALID,
     "more bytes than 64 bits"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]"), 0, STATUS_INVALID,
     "more bytes than 64 bits"},
    {TENSOR("\"dtype\":\"U8\",\"shape\":[9223372036854775807,2],\"data_offsets\":[0,8]"), 8, STATUS_INVALID,
     "more bytes than 64 bits"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2]"), 8, STATUS_INVALID, "\"data_offsets\" must be an array of two"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":{}"), 8, STATUS_INVALID, "must be an array of two"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]"), 8, STATUS_INVALID, "must be an array of two"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]"), 8, STATUS_INVALID, "must be an array of two"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8.0]"), 8, STATUS_INVALID, "must be an array of two"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]"), 8, STATUS_INVALID, "are not a span"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"), 8, STATUS_INVALID, "are not a span"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), 7, STATUS_INVALID, "end beyond the file"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[9223372036854775799,9223372036854775807]"), 8,
     STATUS_INVALID, "end beyond the file"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]"), 8, STATUS_INVALID,
     "need 12 bytes, but data_offsets [0, 8] span 8"},
    {TENSOR("\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,8]"), 8, STATUS_INVALID, "need 0 bytes"},
    /* the tiling */
    {TENSOR("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]"), 12, STATUS_INVALID, "allows no gap"},
    {"{\"v\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[5,9]}}",
     9, STATUS_INVALID, "\"w\" starts at byte 5"},
    {"{\"v\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[3,7]}}",
     7, STATUS_INVALID, "allows no overlap"},
    {"{\"v\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"w\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
     4, STATUS_INVALID, "allows no overlap"},
    {"{\"v\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[2,2]}}",
     4, STATUS_INVALID, "allows no overlap"},
    {TENSOR(WELL), 9, STATUS_INVALID, "allows none left over"},
    {"{}", 1, STATUS_INVALID, "allows none left over"},
};

static void test_malformed(void **state)
{
    const struct temp_folder *folder = *state;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        write_simple(folder, FILE_NAME, malformed[i].header, malformed[i].data_bytes);
        refuse_file(folder, malformed[i].status, malformed[i].words);
    }
}

static void test_header_length(void **state)
{
    const struct temp_folder *folder = *state;
    temp_folder_write(folder, FILE_NAME, "", 0);
    refuse_file(folder, STATUS_INVALID, "too few");
    temp_folder_write(folder, FILE_NAME, "\2\0\0\0\0\0\0", 7);
    refuse_file(folder, STATUS_INVALID, "too few");
    write_file(folder, FILE_NAME, 3, "{}", 2, 0);
    refuse_file(folder, STATUS_INVALID, "goes beyond the file");
    write_file(folder, FILE_NAME, 100000000, "{}", 2, 0);
    refuse_file(folder, STATUS_INVALID, "goes beyond the file");
    write_file(folder, FILE_NAME, 100000001, "{}", 2, 0);
    refuse_file(folder, STATUS_INVALID, "100 MB");
    write_file(folder, FILE_NAME, UINT64_MAX, "{}", 2, 0);
    refuse_file(folder, STATUS_INVALID, "100 MB");
    write_file(folder, FILE_NAME, UINT64_MAX - 7, "{}", 2, 0);
    refuse_file(folder, STATUS_INVALID, "100 MB");
    write_file(folder, FILE_NAME, 0, "{}", 2, 0);
    refuse_file(folder, STATUS_INVALID, "must start with '{'");
}

static void test_nul_in_header(void **state)
{
    const struct temp_folder *folder = *state;
    write_file(folder, FILE_NAME, 4, "{\0 }", 4, 0);
    refuse_file(folder, STATUS_INVALID, "not valid JSON");
}

/* A hostile name is shown, not obeyed: cut, and without control characters. */
static void test_hostile_name(void **state)
{
    const struct temp_folder *folder = *state;
    struct text header = {0};
    assert_true(text_append_string(&header, "{\"a\\n\\u001b[31m"));
    for (int i = 0; i < 5000; i++) assert_true(text_append_string(&header, "\xc3\xa9"));
    assert_true(text_append_string(&header, "\":1}"));
    write_simple(folder, FILE_NAME, header.data, 0);
    refuse_file(folder, STATUS_INVALID, "...\": expected an object");
    text_free(&header);
}

static void test_deep_nesting(void **state)
{
    const struct temp_folder *folder = *state;
    struct text header = {0};
    assert_true(text_append_string(&header, "{\"a\":"));
    for (int i = 0; i < 100000; i++) assert_true(text_append(&header, "[", 1));
    assert_true(text_append(&header, "}", 1));
    write_simple(folder, FILE_NAME, header.data, 0);
    refuse_file(folder, STATUS_INVALID, "not valid JSON");
    text_free(&header);
}

static void test_missing_file(void **state)
{
    const struct temp_folder *folder = *state;
    refuse_file(folder, STATUS_IO, "cannot open");
    refuse_folder(folder, STATUS_IO, folder->path, "there is no model.safetensors or model.safetensors.index.json;");
    struct error err;
    struct tensor_file *s = NULL;
    assert_int_equal(tensor_file_open("/no/such/folder", &s, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "/no/such/folder: no such folder"));
    assert_int_equal(tensor_file_open_path(folder->path, &s, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "not a regular file"));
}

/* An index that is there but cannot be read is never taken for one that is absent, nor waited for. */
static void test_strange_files(void **state)
{
    const struct temp_folder *folder = *state;
    static const char *const names[] = {INDEX_NAME, "model.safetensors"};
    char path[512];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder->path, names[i]);
        alarm(20); /* a named pipe without a writer would block for ever */
        assert_int_equal(mkfifo(path, 0600), 0);
        refuse_folder(folder, STATUS_IO, path, "not a regular file but a named pipe");
        assert_int_equal(unlink(path), 0);
        assert_int_equal(symlink("gone", path), 0);
        refuse_folder(folder, STATUS_IO, path, "a symbolic link to a file that does not exist");
        assert_int_equal(unlink(path), 0);
        alarm(0);
    }
}

/* --- Index --- */

#define ONE(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

static void test_index(void **state)
{
    const struct temp_folder *folder = *state;
    write_simple(folder, "m-2.safetensors", ONE("b"), 4);
    write_simple(folder, "m-1.safetensors",
                 "{\"c\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                 "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                 2);
    temp_folder_write_string(folder, INDEX_NAME,
                             "{\"metadata\":{\"total_size\":6},\"weight_map\":{\"a\":\"m-1.safetensors\","
                             "\"b\":\"m-2.safetensors\",\"c\":\"m-1.safetensors\"}}\n");
    struct error err = {""};
    struct tensor_file *s = NULL;
    assert_int_equal(tensor_file_open(folder->path, &s, &err), STATUS_OK);
    assert_int_equal(tensor_file_count(s), 3);
    assert_int_equal(tensor_file_bytes(s), 6);
    assert_string_equal(tensor_file_at(s, 0)->name, "c");
    assert_string_equal(tensor_file_at(s, 1)->name, "a");
    assert_string_equal(tensor_file_at(s, 2)->name, "b");
    assert_non_null(strstr(tensor_file_find(s, "b")->path, "m-2.safetensors"));
    assert_non_null(strstr(tensor_file_at(s, 0)->path, "m-1.safetensors"));
    assert_ptr_equal(tensor_file_find(s, "a"), tensor_file_at(s, 1));
    tensor_file_close(s);
    /* a single file goes before the index, even one that is broken */
    temp_folder_write_string(folder, FILE_NAME, "broken");
    refuse_folder(folder, STATUS_INVALID, FILE_NAME, "too few");
}

static void test_bad_index(void **state)
{
    const struct temp_folder *folder = *state;
    static const struct {
        const char *index;
        enum status status;
        const char *words;
    } cases[] = {
        {"", STATUS_INVALID, "is empty"},
        {"[]", STATUS_INVALID, "expected a JSON object"},
        {"{\"weight_map\":{}", STATUS_INVALID, "not valid JSON"},
        {"{\"weight_map\":{}} x", STATUS_INVALID, "not valid JSON"},
        {"{}", STATUS_INVALID, "\"weight_map\" must be an object"},
        {"{\"weight_map\":[]}", STATUS_INVALID, "\"weight_map\" must be an object"},
        {"{\"weight_map\":{}}", STATUS_INVALID, "\"weight_map\" must be an object"},
        {"{\"weight_map\":{\"a\":1}}", STATUS_INVALID, "\"a\": expected a file name, found 1"},
        {"{\"weight_map\":{\"a\":null}}", STATUS_INVALID, "\"a\": expected a file name, found null"},
        {"{\"weight_map\":{\"a\":\"\"}}", STATUS_INVALID, "\"\" is not the plain name"},
        {"{\"weight_map\":{\"a\":\".\"}}", STATUS_INVALID, "\".\" is not the plain name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", STATUS_INVALID, "\"..\" is not the plain name"},
        {"{\"weight_map\":{\"a\":\"../a.safetensors\"}}", STATUS_INVALID, "is not the plain name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", STATUS_INVALID, "is not the plain name"},
        {"{\"weight_map\":{\"a\":\"x/a.safetensors\"}}", STATUS_INVALID, "is not the plain name"},
        {"{\"weight_map\":{\"a\":\"a.safetensors\\u0000\"}}", STATUS_INVALID, "\"a\": expected a file name"},
        {"{\"weight_map\":NaN}", STATUS_INVALID, "\"weight_map\" must be an object"},
        {"{\"weight_map\":{\"a\":\"gone.safetensors\"}}", STATUS_IO, "gone.safetensors, which is not there"},
    };
    write_simple(folder, "a.safetensors", ONE("a"), 4);
    write_simple(folder, "b.safetensors", ONE("b"), 4);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        temp_folder_write_string(folder, INDEX_NAME, cases[i].index);
        refuse_folder(folder, cases[i].status, INDEX_NAME, cases[i].words);
    }
}

/* The files of an index count, not where it puts which tensor. */
static void test_wrong_index(void **state)
{
    const struct temp_folder *folder = *state;
    struct error err = {""};
    struct tensor_file *s = NULL;
    write_simple(folder, "a.safetensors", ONE("a"), 4);
    write_simple(folder, "b.safetensors", ONE("b"), 4);
    write_simple(folder, "consolidated.safetensors", ONE("a"), 4);
    temp_folder_write_string(folder, INDEX_NAME, "{\"weight_map\":{\"a\":\"b.safetensors\",\"z\":\"a.safetensors\"}}");
    if (tensor_file_open(folder->path, &s, &err) != STATUS_OK) fail_msg("%s", err.text);
    assert_int_equal(tensor_file_count(s), 2);
    assert_non_null(strstr(tensor_file_find(s, "a")->path, "/a.safetensors"));
    assert_non_null(strstr(tensor_file_find(s, "b")->path, "/b.safetensors"));
    assert_null(tensor_file_find(s, "z"));
    tensor_file_close(s);
}

static void test_tensor_in_two_files(void **state)
{
    const struct temp_folder *folder = *state;
    write_simple(folder, "a.safetensors", ONE("a"), 4);
    write_simple(folder, "b.safetensors",
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
                 "\"b\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}",
                 2);
    temp_folder_write_string(folder, INDEX_NAME, "{\"weight_map\":{\"a\":\"a.safetensors\",\"b\":\"b.safetensors\"}}");
    refuse_folder(folder, STATUS_INVALID, "b.safetensors", "each must be in one file");
}

static void test_bad_file_of_index(void **state)
{
    const struct temp_folder *folder = *state;
    write_simple(folder, "a.safetensors", ONE("a"), 5);
    temp_folder_write_string(folder, INDEX_NAME, "{\"weight_map\":{\"a\":\"a.safetensors\"}}");
    refuse_folder(folder, STATUS_INVALID, "a.safetensors", "left over");
}

/* --- Mutations --- */

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Reads every byte that an open reader vouches for. */
static unsigned touch(const struct tensor_file *s)
{
    unsigned sum = 0;
    for (int64_t i = 0; i < tensor_file_count(s); i++) {
        const struct stored_tensor *t = tensor_file_at(s, i);
        assert_ptr_equal(tensor_file_find(s, t->name), t);
        for (uint64_t j = 0; j < t->bytes; j++) sum += ((const uint8_t *)t->data)[j];
    }
    return sum;
}

static void mutate(struct text *file, uint64_t *random)
{
    static const char *const words[] = {"\"",
                                        "}",
                                        "{",
                                        "[",
                                        "]",
                                        ",",
                                        "-",
                                        "9",
                                        "0",
                                        "1e9",
                                        "null",
                                        "F64",
                                        "U8",
                                        "18446744073709551615",
                                        "9223372036854775807",
                                        "\\u0000",
                                        "\xff",
                                        " ",
                                        "\n"};
    const size_t at = next_random(random) % file->length;
    switch (next_random(random) % 4) {
    case 0:
        file->data[at] = (char)next_random(random);
        break;
    case 1:
        file->length = at + 1;
        break;
    case 2: { /* a word over what is there */
        const char *word = words[next_random(random) % (sizeof words / sizeof *words)];
        for (size_t i = 0; word[i] && at + i < file->length; i++) file->data[at + i] = word[i];
        break;
    }
    default: /* a stretch moved to another place */
        memmove(file->data + at, file->data + next_random(random) % file->length / 2, (file->length - at) / 2);
        break;
    }
}

static void test_mutations(void **state)
{
    const struct temp_folder *folder = *state;
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"},"
                         "\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
                         "\"bb\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]},"
                         "\"ccc\":{\"dtype\":\"U8\",\"shape\":[6],\"data_offsets\":[26,32]}}  ";
    char path[512];
    path_in(folder, FILE_NAME, path, sizeof path);
    uint64_t random = 20240607;
    unsigned sum = 0;
    int opened = 0;
    for (int round = 0; round < 5000; round++) {
        struct text file = {0};
        const uint64_t length = strlen(header);
        assert_true(text_append(&file, (const char *)&length, 8));
        assert_true(text_append_string(&file, header));
        for (int i = 0; i < 32; i++) assert_true(text_append(&file, "\1", 1));
        for (uint64_t n = 1 + next_random(&random) % 3; n > 0; n--) mutate(&file, &random);
        temp_folder_write(folder, FILE_NAME, file.data, file.length);
        text_free(&file);
        struct tensor_file *s = NULL;
        struct error err = {""};
        if (tensor_file_open_path(path, &s, &err) == STATUS_OK) {
            sum += touch(s);
            opened++;
        } else {
            assert_null(s);
            assert_non_null(strstr(err.text, path));
            assert_null(strchr(err.text, '\n'));
        }
        tensor_file_close(s);
    }
    assert_true(opened > 0 && opened < 5000);
    assert_true(sum > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, temp_folder_setup, temp_folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_two_tensors),  TEST(test_no_tensors),    TEST(test_scalar_and_empty),    TEST(test_metadata),
        TEST(test_misaligned),   TEST(test_read),          TEST(test_read_strips),         TEST(test_dtypes),
        TEST(test_malformed),    TEST(test_header_length), TEST(test_nul_in_header),       TEST(test_hostile_name),
        TEST(test_deep_nesting), TEST(test_missing_file),  TEST(test_strange_files),       TEST(test_index),
        TEST(test_bad_index),    TEST(test_wrong_index),   TEST(test_tensor_in_two_files), TEST(test_bad_file_of_index),
        TEST(test_mutations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
