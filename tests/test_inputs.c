/* What quire generate and quire profile read: several files, gzip and zstd, pipes; and files that are damaged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/file.h"
#include "base/random.h"
#include "runtime/inputs.h"
#include "tests/support/generate.h"

enum { NUM_LINES = 20000 };

struct fixture {
    struct temp_folder model, files;
    struct text lines; /* "line 0 RANDOM\n" and so on */
};

static int set_up(void **state)
{
    static struct fixture f;
    struct random random = {1};
    toy_model_make(&f.model, QUIRE_GUIDE, true);
    temp_folder_make(&f.files);
    for (int i = 0; i < NUM_LINES; i++)
        assert_true(text_printf(&f.lines, "line %d %016llx\n", i, (unsigned long long)random_bits(&random)));
    *state = &f;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    text_free(&f->lines);
    temp_folder_remove(&f->files);
    temp_folder_remove(&f->model);
    return 0;
}

/* ---- packing ---- */

static void pack_gzip(const char *bytes, size_t count, struct text *out)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_true(text_reserve(out, out->length + deflateBound(&z, count)));
    z.next_in = (Bytef *)bytes;
    z.avail_in = (uInt)count;
    z.next_out = (Bytef *)out->data + out->length;
    z.avail_out = (uInt)(out->capacity - out->length);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out->length += z.total_out;
    deflateEnd(&z);
}

static void pack_zstd(const char *bytes, size_t count, struct text *out)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    assert_true(text_reserve(out, out->length + ZSTD_compressBound(count)));
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    const size_t packed = ZSTD_compress2(c, out->data + out->length, ZSTD_compressBound(count), bytes, count);
    assert_false(ZSTD_isError(packed));
    out->length += packed;
    ZSTD_freeCCtx(c);
}

typedef void pack_function(const char *bytes, size_t count, struct text *out);
static pack_function *const packers[] = {pack_gzip, pack_zstd};

static const char *path_of(const struct fixture *f, const char *name, char *path, size_t size)
{
    assert_true(path_join(path, size, f->files.path, name));
    return path;
}

/* Reads the file "packed", and checks that its lines are a beginning of `expected`. Returns how many bytes of it they
 * are, newlines included; *end is what came then. */
static size_t read_packed(const struct fixture *f, const struct text *expected, enum line_result *end,
                          struct error *err)
{
    char path[512];
    struct line_reader r;
    const char *line;
    size_t length, at = 0;
    if (line_reader_open(&r, path_of(f, "packed", path, sizeof path), err) != STATUS_OK) fail_msg("%s", err->text);
    while ((*end = line_reader_next(&r, true, &line, &length, err)) == LINE_READY) {
        assert_true(at + length < expected->length);
        assert_memory_equal(line, expected->data + at, length);
        assert_int_equal(expected->data[at + length], '\n');
        at += length + 1;
    }
    line_reader_free(&r);
    return at;
}

static void test_packed(void **state)
{
    const struct fixture *f = *state;
    for (size_t i = 0; i < 2; i++) {
        struct text packed = {0};
        enum line_result end;
        struct error err = {""};
        packers[i](f->lines.data, 100, &packed); /* several members or frames, cut anywhere, one of them empty */
        packers[i](f->lines.data, 0, &packed);
        packers[i](f->lines.data + 100, f->lines.length - 100, &packed);
        if (i == 0) assert_true(text_append(&packed, "\0\0\0\0\0", 5)); /* padding */
        temp_folder_write(&f->files, "packed", packed.data, packed.length);
        assert_int_equal(read_packed(f, &f->lines, &end, &err), f->lines.length);
        assert_int_equal(end, LINE_END);
        text_free(&packed);
    }
}

/* Wherever a file is cut, the lines before the cut come, a part of a line does not, and then a sentence. */
static void test_cut_short(void **state)
{
    const struct fixture *f = *state;
    for (size_t i = 0; i < 2; i++) {
        struct text packed = {0};
        packers[i](f->lines.data, f->lines.length, &packed);
        size_t most = 0;
        for (size_t cut = 4; cut < packed.length; cut += cut < 64 || packed.length - cut < 64 ? 1 : 9973) {
            enum line_result end;
            struct error err = {""};
            temp_folder_write(&f->files, "packed", packed.data, cut);
            const size_t given = read_packed(f, &f->lines, &end, &err);
            assert_int_equal(end, LINE_FAILED);
            assert_non_null(strstr(err.text, "ends in the middle: the file is cut short"));
            assert_true(given >= most);
            most = given;
        }
        assert_true(most > f->lines.length * 9 / 10);
        text_free(&packed);
    }
}

static void test_damaged(void **state)
{
    const struct fixture *f = *state;
    for (size_t i = 0; i < 2; i++) {
        struct text packed = {0};
        enum line_result end;
        struct error err = {""};
        packers[i](f->lines.data, f->lines.length / 2, &packed);
        packers[i](f->lines.data + f->lines.length / 2, f->lines.length - f->lines.length / 2, &packed);
        packed.data[packed.length - 2] ^= 1; /* in the checksum, or the length, of the second half */
        temp_folder_write(&f->files, "packed", packed.data, packed.length);
        const size_t given = read_packed(f, &f->lines, &end, &err);
        assert_int_equal(end, LINE_FAILED);
        assert_non_null(strstr(err.text, "data is damaged ("));
        assert_true(given > f->lines.length / 3);
        text_free(&packed);
    }
    struct text packed = {0};
    enum line_result end;
    struct error err = {""};
    pack_gzip(f->lines.data, f->lines.length, &packed);
    assert_true(text_append_string(&packed, "rubbish"));
    temp_folder_write(&f->files, "packed", packed.data, packed.length);
    assert_int_equal(read_packed(f, &f->lines, &end, &err), f->lines.length);
    assert_int_equal(end, LINE_FAILED);
    text_free(&packed);
}

static void test_foreign(void **state)
{
    const struct fixture *f = *state;
    static const struct {
        const char *bytes, *sentence;
    } cases[] = {{"\xFD"
                  "7zXZ rest",
                  "packed by xz; unpack it, or pack it with gzip or zstd"},
                 {"BZh91AY&SY", "packed by bzip2"},
                 {"\x04\x22\x4D\x18 rest", "packed by lz4"},
                 {"PK\x03\x04 rest", "is a zip archive"},
                 {"\xFF\xFEx", "the text is UTF-16; write it as UTF-8"},
                 {"\xFE\xFFx", "the text is UTF-16"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum line_result end;
        struct error err = {""};
        temp_folder_write_string(&f->files, "packed", cases[i].bytes);
        assert_int_equal(read_packed(f, &f->lines, &end, &err), 0);
        assert_int_equal(end, LINE_FAILED);
        if (!strstr(err.text, cases[i].sentence)) fail_msg("%s", err.text);
    }
}

/* ---- JSON Lines, by name and by lines ---- */

/* Reads the file, packed if its name says so; objects[i] gets 'o' where line i must be an object, else 't'. */
static enum status read_forms(const struct fixture *f, const char *name, const char *content, bool are_texts,
                              char *objects, struct error *err)
{
    char path[512];
    struct text packed = {0};
    const char *names[] = {path_of(f, name, path, sizeof path)};
    const struct input_list list = {.names = names, .count = 1, .are_texts = are_texts};
    struct inputs in;
    const char *line;
    size_t length, count = 0;
    if (strstr(name, ".gz")) pack_gzip(content, strlen(content), &packed);
    if (strstr(name, ".zst")) pack_zstd(content, strlen(content), &packed);
    temp_folder_write(&f->files, name, packed.data ? packed.data : content,
                      packed.data ? packed.length : strlen(content));
    enum status status = inputs_open(&in, &list, err);
    while (status == STATUS_OK && inputs_next(&in, true, &line, &length, err) == LINE_READY)
        objects[count++] = inputs_is_object(&in) ? 'o' : 't';
    objects[count] = '\0';
    inputs_close(&in);
    temp_folder_delete(&f->files, name);
    text_free(&packed);
    return status;
}

static void test_forms(void **state)
{
    static const struct {
        const char *name, *content, *objects;
    } cases[] = {
        {"p.txt", "a\nb\n", "tt"},
        {"p.txt", "a\n {\"prompt\": 1}\n\nb\n", "tooo"}, /* from the first object on */
        {"p.txt", "[INST] hello\n[\n{\n", "tto"},
        {"p.txt", "{\"a\": [\n", "o"},
        {"p.jsonl", "a\nb\n", "oo"},
        {"p.json", "\xef\xbb\xbf{}\n[1]\n", "oo"},
        {"p.json.gz", "{}\nb\n", "oo"},
        {"p.jsonl.zst", "a\n", "o"},
        {"p.txt.gz", "a\n", "t"},
        {"json", "a\n", "t"},
    };
    static const struct {
        const char *name, *content, *sentence;
    } refused[] = {
        {"p.json", "[\n{\"prompt\": 1},\n", "p.json: this is a JSON array, and not an object on each line"},
        {"p.json", "\n [1, 2]\n", "convert it with jq -c '.[]', or"},
        {"p.txt", "[\r\n", "a JSON array"},
        {"p.txt", "\xef\xbb\xbf[ {\"prompt\": 1}]", "a JSON array"},
        {"p.jsonl.gz", "[]\n", "a JSON array"},
        {"p.txt", "{ \n\"prompt\": 1}\n", "p.txt: this is a JSON object over several lines, and not an object on each"},
        {"p.jsonl.zst", "{\n", "convert it with jq -c ., or take its lines as texts with --format text"},
    };
    char objects[16];
    struct error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (read_forms(*state, cases[i].name, cases[i].content, false, objects, &err)) fail_msg("%s", err.text);
        assert_string_equal(objects, cases[i].objects);
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        assert_int_equal(read_forms(*state, refused[i].name, refused[i].content, false, objects, &err), STATUS_INVALID);
        if (!strstr(err.text, refused[i].sentence)) fail_msg("%s", err.text);
        assert_int_equal(read_forms(*state, refused[i].name, refused[i].content, true, objects, &err), STATUS_OK);
        assert_int_equal(objects[0], 't');
    }
}

/* ---- pipes ---- */

/* A byte at a time: the form is found, nothing blocks, and what is there is given out. */
static void test_slow_pipe(void **state)
{
    (void)state;
    static const char plain[] = "(one)\n(two\n";
    struct text forms[3] = {{0}};
    assert_true(text_append_string(&forms[0], plain));
    pack_gzip(plain, strlen(plain), &forms[1]);
    pack_zstd(plain, strlen(plain), &forms[2]);
    for (size_t i = 0; i < 3; i++) {
        int ends[2], lines = 0;
        struct line_reader r;
        const char *line;
        size_t length;
        struct error err = {""};
        enum line_result result;
        assert_int_equal(pipe(ends), 0);
        line_reader_init(&r, ends[0]);
        for (size_t k = 0; k < forms[i].length; k++) {
            assert_int_equal(write(ends[1], forms[i].data + k, 1), 1);
            for (int again = 0; again < 20; again++) { /* more often than zstd lets one ask in vain */
                result = line_reader_next(&r, false, &line, &length, &err);
                if (result == LINE_READY)
                    assert_string_equal(lines++ == 0 ? "(one)" : "(two", strndupa(line, length));
                else
                    assert_int_equal(result, LINE_NOT_YET);
            }
        }
        close(ends[1]);
        assert_int_equal(line_reader_next(&r, true, &line, &length, &err), LINE_END);
        assert_int_equal(lines, 2);
        line_reader_free(&r);
        close(ends[0]);
        text_free(&forms[i]);
    }
}

/* ---- several files ---- */

static void open_list(struct inputs *in, struct input_list *list, const char *const *names)
{
    struct error err = {""};
    for (; *names; names++) assert_int_equal(input_list_add(list, *names, &err), STATUS_OK);
    if (inputs_open(in, list, &err) != STATUS_OK) fail_msg("%s", err.text);
}

static void test_several(void **state)
{
    const struct fixture *f = *state;
    char a[512], b[512], c[512];
    struct text packed = {0};
    struct inputs in;
    struct input_list list = {0};
    const char *line;
    size_t length;
    struct error err = {""};
    pack_zstd("three\n\nfour", 11, &packed);
    temp_folder_write_string(&f->files, "a", "one\ntwo");
    temp_folder_write_string(&f->files, "b", "");
    temp_folder_write(&f->files, "c", packed.data, packed.length);
    path_of(f, "a", a, sizeof a);
    path_of(f, "b", b, sizeof b);
    path_of(f, "c", c, sizeof c);
    open_list(&in, &list, (const char *[]){a, b, c, NULL});
    assert_int_equal(in.size, 7 + packed.length);
    const struct {
        const char *line, *file;
        int64_t number;
    } expected[] = {{"one", a, 1}, {"two", a, 2}, {"three", c, 1}, {"", c, 2}, {"four", c, 3}};
    uint64_t before = 0;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_int_equal(inputs_next(&in, true, &line, &length, &err), LINE_READY);
        assert_string_equal(strndupa(line, length), expected[i].line);
        assert_string_equal(inputs_file(&in), expected[i].file);
        assert_int_equal(inputs_line(&in), expected[i].number);
        assert_true(inputs_position(&in) >= before);
        before = inputs_position(&in);
    }
    assert_int_equal(inputs_next(&in, true, &line, &length, &err), LINE_END);
    assert_int_equal(inputs_position(&in), in.size);
    const int fd = open(c, O_RDONLY);
    assert_string_equal(inputs_find(&in, fd), c);
    close(fd);
    inputs_close(&in);
    input_list_free(&list);
    /* One file has no name in sentences, and one that goes away is noticed. */
    open_list(&in, &list, (const char *[]){a, NULL});
    assert_null(inputs_file(&in));
    inputs_close(&in);
    open_list(&in, &list, (const char *[]){c, NULL});
    temp_folder_delete(&f->files, "c");
    for (int i = 0; i < 2; i++) assert_int_equal(inputs_next(&in, true, &line, &length, &err), LINE_READY);
    assert_int_equal(inputs_next(&in, true, &line, &length, &err), LINE_FAILED);
    assert_non_null(strstr(err.text, "cannot open the input"));
    inputs_close(&in);
    input_list_free(&list);
    text_free(&packed);
}

static void test_bad_lists(void **state)
{
    const struct fixture *f = *state;
    char a[512];
    temp_folder_write_string(&f->files, "a", "one\n");
    path_of(f, "a", a, sizeof a);
    const struct {
        const char *names[2];
        int exit_status;
        const char *sentence;
    } cases[] = {{{a, "/nowhere/at/all"}, 1, "cannot open the input /nowhere/at/all"},
                 {{a, f->files.path}, 1, "is a folder; name a file of prompts"},
                 {{"-", "-"}, 2, "standard input (-) is named twice"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p;
        generate_run(&p, &f->model, "x\n",
                     (const char *[]){"-i", cases[i].names[0], "--input", cases[i].names[1], NULL});
        assert_int_equal(p.exit_status, cases[i].exit_status);
        assert_int_equal(p.out.length, 0);
        if (!strstr(p.err.data, cases[i].sentence)) fail_msg("%s", p.err.data);
        program_free(&p);
    }
    struct program p;
    generate_run(&p, &f->model, "x\n", (const char *[]){"-i", "", NULL});
    assert_int_equal(p.exit_status, 2);
    program_free(&p);
    char path[512];
    temp_folder_write_string(&f->files, "b", "two\n");
    path_of(f, "b", path, sizeof path);
    generate_run(&p, &f->model, "x\n", (const char *[]){"-i", a, "-i", path, "-o", path, "--overwrite", NULL});
    assert_int_equal(p.exit_status, 2);
    assert_non_null(strstr(p.err.data, "is the input; name another file"));
    program_free(&p);
}

/* ---- the commands ---- */

static void expect_error(const struct text *written, int index, const char *sentence)
{
    json_t *line = generate_line(written, index);
    assert_string_equal(json_string_value(json_object_get(line, "error")), sentence);
    assert_int_equal(json_require_integer(line, "index"), index);
    json_decref(line);
}

static void test_generate(void **state)
{
    const struct fixture *f = *state;
    char a[512], b[512], command[2048], sentence[600];
    struct text packed = {0};
    struct program p;
    static const char second[] = "{\"prompt\": [3]}\n\n{}\n{\"prompt\": [4]}\n";
    pack_gzip(second, strlen(second), &packed);
    temp_folder_write_string(&f->files, "a", "{\"prompt\": [1]}\n{\"prompt\": 5}\n");
    temp_folder_write(&f->files, "b", packed.data, packed.length);
    path_of(f, "a", a, sizeof a);
    path_of(f, "b", b, sizeof b);
    generate_run(&p, &f->model, NULL,
                 (const char *[]){"-i", a, "-i", b, "--ordered", "--max-tokens", "1", "--ignore-eos", NULL});
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(generate_count_lines(&p.out), 5);
    snprintf(sentence, sizeof sentence, "%s:2: prompt must be a string or a list of token ids, found 5", a);
    expect_error(&p.out, 1, sentence);
    snprintf(sentence, sizeof sentence,
             "%s:3: one of prompt, prompt_token_ids and messages must be given, and only one", b);
    expect_error(&p.out, 3, sentence);
    json_t *last = generate_line(&p.out, 4);
    assert_int_equal(json_require_integer(last, "index"), 4);
    assert_int_equal(json_require_integer(last, "completion_tokens"), 1);
    json_decref(last);
    program_free(&p);
    /* Through a pipe, cut short: what is whole is answered. */
    temp_folder_write(&f->files, "b", packed.data, packed.length - 8);
    snprintf(command, sizeof command,
             "cat %s | %s generate --model %s --load-format dummy --device cpu --max-num-seqs 4 --kv-cache-space 0.1 "
             "--ordered --max-tokens 1",
             b, QUIRE_EXECUTABLE, f->model.path);
    program_run(&p, (const char *[]){"/bin/sh", "-c", command, NULL}, NULL);
    assert_int_equal(p.exit_status, 1);
    assert_int_equal(generate_count_lines(&p.out), 3);
    assert_non_null(strstr(p.err.data, "standard input: the gzip data ends in the middle: the file is cut short"));
    program_free(&p);
    text_free(&packed);
}

static void test_profile(void **state)
{
    const struct fixture *f = *state;
    char a[512], b[512];
    struct program p;
    temp_folder_write_string(&f->files, "a", "{\"prompt\": [1], \"max_tokens\": 2}\n");
    temp_folder_write_string(&f->files, "b", "{\"prompt\": [1], \"max_tokens\": 2}\n{\"prompt\": [2]}\n");
    const char *const argv[] = {QUIRE_EXECUTABLE,
                                "profile",
                                "--model",
                                f->model.path,
                                "--load-format",
                                "dummy",
                                "--device",
                                "cpu",
                                "--kv-cache-space",
                                "0.1",
                                "--json",
                                "-i",
                                path_of(f, "a", a, sizeof a),
                                "-i",
                                path_of(f, "b", b, sizeof b),
                                NULL};
    program_run(&p, argv, NULL);
    json_t *report = program_json(&p);
    assert_int_equal(json_require_integer(json_object_get(report, "summary"), "num_prompts"), 3);
    json_decref(report);
    program_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_foreign),   cmocka_unit_test(test_forms),     cmocka_unit_test(test_packed),
        cmocka_unit_test(test_cut_short), cmocka_unit_test(test_damaged),   cmocka_unit_test(test_slow_pipe),
        cmocka_unit_test(test_several),   cmocka_unit_test(test_bad_lists), cmocka_unit_test(test_generate),
        cmocka_unit_test(test_profile),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
