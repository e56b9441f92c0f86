/* Checkpoints that are not what they seem, through quire generate: what is accepted gives the answer of the sound
 * checkpoint, and what is not gives one sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>

#include "base/array.h"
#include "base/file.h"
#include "model/checkpoint/tensor_file.h"
#include "runtime/commands.h"
#include "tests/support/padded_model.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

#define GOLDEN QUIRE_TEST_DATA "/golden/mha"
#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define UP "model.layers.1.mlp.up_proj.weight"

/* ---- building ---- */

/* What is wrong with a copy of tensors whose names hold `name`. SHORTEN_NAME leaves that out, at the beginning. */
struct change {
    const char *name; /* NULL: nothing */
    enum { DROP, WIDEN, LENGTHEN, RENAME, SHORTEN_NAME, DAMAGE } kind;
};

/* [first, last) of golden/mha's tensors, or all if last is 0. */
struct range {
    int64_t first, last;
};

static void add_entry(struct text *header, const char *name, const char *dtype, const struct stored_tensor *t,
                      int64_t more, uint64_t first, uint64_t last)
{
    char shape[64];
    if (t->num_dims == 2) {
        snprintf(shape, sizeof shape, "%lld,%lld", (long long)t->shape[0], (long long)t->shape[1]);
    } else {
        snprintf(shape, sizeof shape, "%lld", (long long)(t->shape[0] + more));
    }
    assert_true(text_printf(header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%llu,%llu]}",
                            header->length ? "," : "", name, dtype, shape, (unsigned long long)first,
                            (unsigned long long)last));
}

/* All are bfloat16. */
static void add_tensor(struct text *header, struct text *data, const struct stored_tensor *t,
                       const struct change *change)
{
    const bool changed = change->name && strstr(t->name, change->name);
    const uint64_t first = data->length;
    if (changed && change->kind == DROP) return;
    if (changed && change->kind == WIDEN) {
        for (uint64_t i = 0; i < t->bytes / 2; i++) {
            const float value = bf16_to_float(((const uint16_t *)t->data)[i]);
            assert_true(text_append(data, (const char *)&value, sizeof value));
        }
    } else {
        assert_true(text_append(data, t->data, t->bytes));
    }
    if (changed && change->kind == LENGTHEN) assert_true(text_append(data, "\0", 2));
    if (changed && change->kind == DAMAGE) {
        static const uint16_t bad[] = {0x7fc0, 0x7f80, 0xff80, 0xff81, 0x7f7f}; /* NaN, two infinities, NaN, finite */
        memcpy(data->data + first, bad, sizeof bad);
        memcpy(data->data + data->length - 2, bad, 2);
    }
    const char *name = t->name;
    if (changed && change->kind == RENAME) name = "another";
    if (changed && change->kind == SHORTEN_NAME) name += strlen(change->name);
    add_entry(header, name, changed && change->kind == WIDEN ? "F32" : "BF16", t, changed && change->kind == LENGTHEN,
              first, data->length);
}

static void write_weights(const struct temp_folder *folder, const char *name, struct range range, struct change change)
{
    struct tensor_file *set = NULL;
    struct text header = {0}, data = {0};
    struct error err;
    if (tensor_file_open_path(GOLDEN "/" SINGLE, &set, &err) != STATUS_OK) fail_msg("%s", err.text);
    const int64_t last = range.last ? range.last : tensor_file_count(set);
    assert_true(text_append(&data, "", 0));
    for (int64_t i = range.first; i < last; i++) add_tensor(&header, &data, tensor_file_at(set, i), &change);
    temp_folder_write_safetensors(folder, name, header.data, data.data, data.length);
    text_free(&header);
    text_free(&data);
    tensor_file_close(set);
}

static void write_config(const struct temp_folder *folder, const char *key, json_t *value)
{
    json_t *config = json_load_file(GOLDEN "/config.json", 0, NULL);
    assert_non_null(config);
    if (key) json_object_set_new(config, key, value);
    char *text = json_dumps(config, 0);
    temp_folder_write_string(folder, "config.json", text);
    free(text);
    json_decref(config);
}

static int setup(void **state)
{
    const int result = temp_folder_setup(state);
    write_config(*state, NULL, NULL);
    return result;
}

/* ---- running ---- */

static const char PROMPTS[] = "{\"prompt_token_ids\":[3,9,4,100,7]}\n{\"prompt_token_ids\":[1,200]}\n";

static void generate(struct program *p, const char *model, const char *flag)
{
    program_run(p,
                (const char *[]){QUIRE_EXECUTABLE, "generate", "--no-chat", "--device", "cpu", "--skip-tokenizer-init",
                                 "--return-token-ids", "--quiet", "--ordered", "--max-num-seqs", "4", "--temperature",
                                 "0", "--max-tokens", "8", "--model", model, flag, NULL},
                PROMPTS);
}

/* The answers are golden/mha's, and stderr holds `warning` ("": it is empty). */
static void accept(const char *model, const char *warning)
{
    struct program sound, p;
    generate(&sound, GOLDEN, NULL);
    assert_int_equal(sound.exit_status, EXIT_STATUS_OK);
    generate(&p, model, NULL);
    if (p.exit_status != EXIT_STATUS_OK) fail_msg("%s", p.err.data);
    assert_string_equal(p.out.data, sound.out.data);
    if (!*warning) assert_string_equal(p.err.data, "");
    if (!strstr(p.err.data, warning)) fail_msg("no '%s' in: %s", warning, p.err.data);
    program_free(&p);
    program_free(&sound);
}

/* One sentence that begins with "quire generate: PATH" and holds `words`. */
static void refuse(const char *path, const char *words)
{
    struct program p;
    char begins[512];
    generate(&p, path, NULL);
    assert_int_equal(p.exit_status, EXIT_STATUS_FAILURE);
    assert_int_equal(p.out.length, 0);
    snprintf(begins, sizeof begins, "quire generate: %s", path);
    if (strncmp(p.err.data, begins, strlen(begins)) != 0 || !strstr(p.err.data, words))
        fail_msg("no '%s' in: %s", words, p.err.data);
    assert_true(strchr(p.err.data, '\n') == p.err.data + p.err.length - 1);
    program_free(&p);
}

/* ---- tensors ---- */

static void test_tensors(void **state)
{
    static const struct {
        struct change change;
        const char *words; /* of the refusal; NULL: accepted */
    } cases[] = {
        {{NULL, DROP}, NULL},
        {{"mlp", WIDEN}, NULL},
        {{"norm", WIDEN}, NULL},
        {{"embed", WIDEN}, NULL},
        {{"model.", SHORTEN_NAME}, NULL}, /* as transformers saves a base model */
        {{UP, DROP}, ": there is no tensor \"" UP "\" in the safetensors files"},
        {{"lm_head", DROP}, "there is no tensor \"lm_head.weight\" in the safetensors files; a model without it has"},
        {{"model.norm.weight", LENGTHEN}, "\"model.norm.weight\" has shape [65], but config.json makes it [64]"},
        {{UP, RENAME}, ": there is no tensor \"" UP "\""},
    };
    const struct temp_folder *folder = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_weights(folder, SINGLE, (struct range){0}, cases[i].change);
        if (cases[i].words) {
            refuse(folder->path, cases[i].words);
        } else {
            accept(folder->path, "");
        }
    }
}

/* Tied by config.json, but the files have another lm_head: it is used, as in transformers. */
static void test_tied_and_present(void **state)
{
    const struct temp_folder *folder = *state;
    write_weights(folder, SINGLE, (struct range){0}, (struct change){NULL, DROP});
    write_config(folder, "tie_word_embeddings", json_true());
    accept(folder->path, "");
}

static void test_vocabulary_of_config(void **state)
{
    const struct temp_folder *folder = *state;
    write_weights(folder, SINGLE, (struct range){0}, (struct change){NULL, DROP});
    write_config(folder, "vocab_size", json_integer(300));
    refuse(folder->path, "\"model.embed_tokens.weight\" has shape [320, 64], but config.json makes it [300, 64]");
}

/* ---- files ---- */

static void test_shards(void **state)
{
    const struct temp_folder *folder = *state;
    const struct change none = {NULL, DROP};
    write_weights(folder, "m-1.safetensors", (struct range){0, 8}, none);
    refuse(folder->path, "but m-1.safetensors, a file of weights; was the download complete?");
    temp_folder_write_string(folder, INDEX,
                             "{\"weight_map\":{\"ghost\":\"m-1.safetensors\",\"" UP "\":\"m-2.safetensors\"}}");
    refuse(folder->path, "weight_map names m-2.safetensors, which is not there; was the download complete?");
    write_weights(folder, "m-2.safetensors", (struct range){8, 0}, none);
    accept(folder->path, "");
    /* Files that the index does not name are no part of the model. */
    write_weights(folder, "consolidated.safetensors", (struct range){0}, (struct change){"weight", DAMAGE});
    write_weights(folder, "m-3.safetensors", (struct range){0, 8}, none);
    accept(folder->path, "");
    write_weights(folder, "m-2.safetensors", (struct range){7, 0}, none);
    refuse(folder->path, "m-2.safetensors too; each must be in one file");
    write_weights(folder, "m-2.safetensors", (struct range){9, 0}, none);
    refuse(folder->path, ": there is no tensor ");
    /* The single file goes before the index. */
    write_weights(folder, SINGLE, (struct range){0}, none);
    accept(folder->path, "");
}

static void test_not_the_weights(void **state)
{
    const struct temp_folder *folder = *state;
    temp_folder_write_string(folder, SINGLE, "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 123\n");
    refuse(folder->path, "the pointer that Git LFS keeps in place of the file; fetch the file with: git lfs pull");
    temp_folder_write_string(folder, SINGLE, "");
    refuse(folder->path, "0 bytes are too few for a safetensors file");
    temp_folder_write_string(folder, SINGLE, "<html><body>Access denied</body></html>");
    refuse(folder->path, "is this a safetensors file?");
}

/* The files of a folder, and what is said of it. */
static void test_foreign_folders(void **state)
{
    static const struct {
        const char *files[3], *words;
    } cases[] = {
        {{"README.md"}, ": there is no config.json; a checkpoint folder holds config.json and *.safetensors"},
        {{"model.safetensors"},
         ": there is no config.json, but model.safetensors, a file of weights; was the download"},
        {{"config.json", "pytorch_model.bin"},
         ": there is no model.safetensors or " INDEX
         ", but pytorch_model.bin, weights as a PyTorch pickle; quire reads "
         "safetensors: download the model in that form, or save it so with transformers (save_pretrained)"},
        {{"config.json", "pytorch_model-00001-of-00002.bin"}, "but pytorch_model-00001-of-00002.bin, weights as a Py"},
        {{"b.Q8_0.gguf", "a.Q4_0.GGUF"}, "no config.json, but a.Q4_0.GGUF, a GGUF file; quire reads the original"},
        {{"config.json", "a.gguf"}, ", but a.gguf, a GGUF file; quire reads the original checkpoint: name the folder"},
        {{"adapter_config.json", "adapter_model.safetensors"},
         ", but adapter_config.json, the description of an adapter (LoRA); merge the adapter into its base model"},
        {{"config.json", "adapter_config.json"}, ", but adapter_config.json, the description of an adapter (LoRA)"},
        {{"params.json", "consolidated.safetensors"},
         ", but consolidated.safetensors, weights in Mistral's own layout"},
        {{"config.json", "consolidated.safetensors"},
         ", but consolidated.safetensors, weights in Mistral's own layout"},
        {{"params.json", "consolidated.00.pth"},
         ", but consolidated.00.pth, weights in Meta's own layout; name a fold"},
        {{"config.json", "model-00001-of-00002.safetensors", "original/"},
         ", but model-00001-of-00002.safetensors, a file of weights; was the download complete?"},
        {{"original/"}, ", but original, a folder for weights in Meta's own layout; name a folder with"},
        {{"snapshots/"},
         ", but snapshots, which marks a model in the Hugging Face cache; name the model as org/name, or the "
         "folder of a snapshot in it: snapshots/COMMIT"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct temp_folder folder;
        temp_folder_make(&folder);
        for (int k = 0; k < 3 && cases[i].files[k]; k++) {
            const char *name = cases[i].files[k];
            if (strcmp(name, "config.json") == 0) {
                write_config(&folder, NULL, NULL);
            } else if (name[strlen(name) - 1] == '/') {
                temp_folder_add_folder(&folder, name);
            } else {
                temp_folder_write_string(&folder, name, "");
            }
        }
        refuse(folder.path, cases[i].words);
        temp_folder_remove(&folder);
    }
}

static void test_files(void **state)
{
    static const char *const cases[][2] = {
        {"a.Q4_K_M.gguf", " is a GGUF file; quire reads the original checkpoint: name the folder with its config.json"},
        {"pytorch_model.bin", " is weights as a PyTorch pickle; quire reads safetensors: download the model in that"},
        {"other.bin", " is a file of weights as a PyTorch pickle; quire reads safetensors: download the model in that"},
        {"model.pt", " is a file of weights as a PyTorch pickle; quire reads safetensors: download the model in that"},
        {"model.PTH", " is a file of weights as a PyTorch pickle; quire reads safetensors: download the model in that"},
        {"consolidated.00.pth", " is weights in Meta's own layout; name a folder with the model as transformers saves"},
        {"model.safetensors", " is a file of weights; name the folder that holds it and config.json"},
        {"config.json", " is a file; name the folder that holds config.json and *.safetensors"},
    };
    const struct temp_folder *folder = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[512];
        path_join(path, sizeof path, folder->path, cases[i][0]);
        temp_folder_write_string(folder, cases[i][0], "");
        refuse(path, cases[i][1]);
    }
}

/* ---- what is said of files that are read ---- */

/* Keys of config.json and files beside it that do not change the answer, but might be thought to. */
static void test_warnings(void **state)
{
    static const struct {
        const char *file, *text; /* the keys of config.json, where no file is named */
        const char *words;       /* NULL: nothing is said */
    } cases[] = {
        {"adapter_config.json", "{}",
         ": adapter_config.json describes an adapter (LoRA), which quire does not apply; merge the adapter into its"},
        {"generation_config.json", "{\"temperature\": \"0.6\", \"top_k\": 5}",
         "/generation_config.json: temperature must be a number from 0 to 1e+06, found \"0.6\"; it is ignored\n"},
        {"generation_config.json", "{\"top_p\": 0}",
         "/generation_config.json: top_p must be a number from 1e-09 to 1, "},
        {"generation_config.json", "{\"eos_token_id\": \"</s>\"}", "eos_token_id must be a token id or an array of"},
        {"generation_config.json",
         "{\"num_beams\": 4, \"no_repeat_ngram_size\": 3, \"typical_p\": 0.5, \"bad_words_ids\": [[7]], "
         "\"min_length\": 0, \"guidance_scale\": 1.0, \"suppress_tokens\": [], \"num_beam_groups\": null}",
         "/generation_config.json: quire does not use what would change answers in transformers: num_beams, "
         "no_repeat_ngram_size, bad_words_ids\n"},
        {"generation_config.json", "{\"do_sample\": true, \"typical_p\": 0.5, \"max_length\": 20}",
         "answers in transformers: max_length, typical_p\n"},
        {"generation_config.json", "{\"num_beams\": 1, \"max_length\": 4096, \"typical_p\": 1, \"eta_cutoff\": 0.0}",
         NULL},
        {"generation_config.json", "{\"max_length\": 20, \"max_new_tokens\": 30}", NULL},
        {NULL,
         "{\"rope_type\": \"yarn\", \"rope_theta\": 10000, \"factor\": 1, \"attention_factor\": 1, \"attn_factor\": "
         "0.9}",
         "/config.json: rope_parameters.attn_factor is not used, as in transformers; vLLM uses it, so its answers "
         "differ\n"},
        {NULL,
         "{\"rope_type\": \"yarn\", \"rope_theta\": 10000, \"factor\": 1, \"attention_factor\": 1, \"attn_factor\": 1}",
         NULL},
    };
    const struct temp_folder *folder = *state;
    write_weights(folder, SINGLE, (struct range){0}, (struct change){NULL, DROP});
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (cases[i].file) temp_folder_write_string(folder, cases[i].file, cases[i].text);
        if (!cases[i].file) write_config(folder, "rope_parameters", json_loads(cases[i].text, 0, NULL));
        accept(folder->path, cases[i].words ? cases[i].words : "");
        if (cases[i].file) temp_folder_delete(folder, cases[i].file);
    }
}

/* transformers 5 does not read the old name of rope_type in families with two ropes. */
static void test_old_rope_type(void **state)
{
    static const char words[] =
        "/config.json: rope_scaling.type counts as rope_type, as in transformers 4; transformers 5 "
        "does not read it in this family, so its answers differ\n";
    static const char *const keys[] = {"type", "rope_type"};
    const struct temp_folder *folder = *state;
    for (int i = 0; i < 2; i++) {
        struct program p;
        json_t *config = json_load_file(QUIRE_TEST_DATA "/golden/gemma3/config.json", 0, NULL);
        assert_non_null(config);
        json_object_set_new(config, "rope_scaling", json_pack("{s:s, s:f}", keys[i], "linear", "factor", 8.0));
        char *text = json_dumps(config, 0);
        temp_folder_write_string(folder, "config.json", text);
        program_run(&p,
                    (const char *[]){QUIRE_EXECUTABLE, "inspect", "--device", "cpu", "--load-format", "dummy",
                                     "--model", folder->path, NULL},
                    "");
        assert_int_equal(p.exit_status, EXIT_STATUS_OK);
        assert_non_null(strstr(p.out.data, "linear, theta 1000000, factor 8"));
        assert_int_equal(strstr(p.err.data, words) != NULL, i == 0);
        program_free(&p);
        free(text);
        json_decref(config);
    }
}

/* ---- NaN and infinity ---- */

/* The damaged tensor is used for every token, so every request ends with an error; --verbose says which tensor it is.
 */
static void test_damaged_tensor(void **state)
{
    static const char warning[] = "warning: %s/" SINGLE ": tensor \"" UP "\" is damaged: it holds 3 NaN "
                                  "and 2 infinite values among 6144\n";
    const struct temp_folder *folder = *state;
    for (int verbose = 0; verbose <= 1; verbose++) {
        char words[512];
        struct program p;
        write_weights(folder, SINGLE, (struct range){0}, (struct change){UP, DAMAGE});
        generate(&p, folder->path, verbose ? "--verbose" : NULL);
        assert_int_equal(p.exit_status, EXIT_STATUS_FAILURE);
        assert_non_null(
            strstr(p.out.data, "{\"index\": 0, \"line\": 1, \"error\": \"line 1: the model computed NaN or infinity"));
        assert_non_null(
            strstr(p.out.data, "{\"index\": 1, \"line\": 2, \"error\": \"line 2: the model computed NaN or infinity"));
        snprintf(words, sizeof words, warning, folder->path);
        if ((strstr(p.err.data, words) != NULL) != verbose) fail_msg("%s", p.err.data);
        assert_int_equal(strstr(p.err.data, "in 21 tensors in ") != NULL, verbose);
        assert_int_equal(strstr(p.err.data, "s; damaged: 1\n") != NULL, verbose);
        program_free(&p);
    }
}

/* Every damaged tensor is named, whatever its type and place; sound ones are not. */
static void test_damaged_types(void **state)
{
    static const char header[] = "\"a\":{\"dtype\":\"F32\",\"shape\":[3,50000],\"data_offsets\":[0,600000]},"
                                 "\"b\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[600000,600008]},"
                                 "\"c\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[600008,600012]},"
                                 "\"d\":{\"dtype\":\"I32\",\"shape\":[1],\"data_offsets\":[600012,600016]},"
                                 "\"e\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[600016,600020]},"
                                 "\"f\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[600020,600024]}";
    static const uint16_t halves[] = {0x7c00, 0xfc00, 0xfe00, 0x7bff, 0x7bff, 0xfbff, 0xffff, 0x7fff, 0x7f7f, 0x8000};
    const struct temp_folder *folder = *state;
    const float largest = -3.4028235e38f;
    struct text data = {0};
    float *values = calloc(150000, sizeof *values);
    struct program p;
    assert_non_null(values);
    values[0] = NAN;
    values[65535] = -INFINITY;
    values[65536] = INFINITY;
    values[149999] = -NAN;
    assert_true(text_append(&data, (const char *)values, 600000) &&
                text_append(&data, (const char *)halves, sizeof halves) &&
                text_append(&data, (const char *)&largest, sizeof largest));
    temp_folder_write_safetensors(folder, "m-2.safetensors", header, data.data, data.length);
    write_weights(folder, "m-1.safetensors", (struct range){0}, (struct change){NULL, DROP});
    temp_folder_write_string(folder, INDEX, "{\"weight_map\":{\"x\":\"m-1.safetensors\",\"y\":\"m-2.safetensors\"}}");
    generate(&p, folder->path, "-v");
    assert_int_equal(p.exit_status, EXIT_STATUS_OK);
    assert_non_null(strstr(p.err.data, "\"a\" is damaged: it holds 2 NaN and 2 infinite values among 150000\n"));
    assert_non_null(strstr(p.err.data, "\"b\" is damaged: it holds 1 NaN and 2 infinite values among 4\n"));
    assert_non_null(strstr(p.err.data, "in 27 tensors in "));
    assert_non_null(strstr(p.err.data, "s; damaged: 2\n"));
    program_free(&p);
    text_free(&data);
    free(values);
}

/* ---- quantized checkpoints ---- */

#define QUANTIZED QUIRE_TEST_DATA "/quantized"
#define O_PROJ "model.layers.0.self_attn.o_proj."
#define CONFIG "config.json"

/* A copy of `from`, in whose file `name` the first `what` is `instead`. NULL: nothing is changed. */
static void copy_quantized(const struct temp_folder *folder, const char *from, const char *name, const char *what,
                           const char *instead)
{
    char path[512];
    struct text sound = {0}, changed = {0};
    struct error err;
    assert_true(path_join(path, sizeof path, QUANTIZED, from));
    temp_folder_copy(folder, path, CONFIG);
    temp_folder_copy(folder, path, SINGLE);
    if (!name) return;
    assert_true(path_join(path, sizeof path, folder->path, name));
    if (file_read(path, &sound, &err) != STATUS_OK) fail_msg("%s", err.text);
    const char *found = memmem(sound.data, sound.length, what, strlen(what));
    if (!found) fail_msg("%s: no %s in %s", from, what, name);
    const size_t before = (size_t)(found - sound.data), after = before + strlen(what);
    assert_true(text_append(&changed, sound.data, before) && text_append_string(&changed, instead) &&
                text_append(&changed, sound.data + after, sound.length - after));
    temp_folder_write(folder, name, changed.data, changed.length);
    text_free(&sound);
    text_free(&changed);
}

/* What is said of a text in config.json, or in the header of the weights, that is another. */
static void test_quantized(void **state)
{
    static const struct {
        const char *from, *name, *what, *instead, *words;
    } cases[] = {
        {"gptq", CONFIG, "\"bits\": 4", "\"bits\": 3",
         "config.json: quantization_config: GPTQ with 3 bits is not read; use the model in bfloat16 or float16, which"},
        {"gptq", CONFIG, "\"group_size\": 128", "\"group_size\": -5",
         "quantization_config.group_size must be an integer from -1 to 1048576, found -5"},
        {"gptq", CONFIG, "\"group_size\": 128", "\"group_size\": 1e9", "from -1 to 1048576, found 1e9"},
        {"gptq", CONFIG, "\"group_size\": 128", "\"group_size\": 24",
         "q_proj: int4 in groups of 24, which do not divide its 128 input features, is not read; use"},
        {"gptq-act-order", CONFIG, "\"group_size\": 32", "\"group_size\": 0",
         "tensor \"model.layers.0.self_attn.q_proj.scales\" has shape [2, 128], but config.json makes it [1, 128]"},
        {"fp8-block", CONFIG, "128,\n      128", "64,\n      64",
         "fp8 with a weight_block_size of [64,64], other than [128,128], is not read; use"},
        {"fp8-block", CONFIG, "\"weight_block_size\"", "\"ignored\"",
         "weight_scale_inv\" has shape [2, 1], but config.json makes it [1]"},
        {"ct-w8a8", CONFIG, "\"ignore\": [", "\"ignore\": [7, ",
         "quantization_config.ignore must be an array of names, found [7,"},
        {"ct-w8a8", CONFIG, "\"ignore\": [", "\"ignore\": [\"model.layers.0.mlp.up_proj\", ",
         "up_proj.weight\" has dtype I8, but config.json makes it F32, F16 or BF16: its \"quantization_config\" says"},
        {"ct-mixed", CONFIG, "\"model.layers.1.mlp.down_proj\",", "",
         "down_proj.weight_packed\" in the safetensors files; by the \"quantization_config\" of config.json this "
         "matrix is "
         "quantized, but the files have it as floats"},
        {"ct-w8a8", CONFIG, "quantization_config", "ignored", "has dtype I8, but config.json makes it F32, F16 or B"},
        {"gptq", SINGLE, O_PROJ "scales", O_PROJ "scale_",
         ": there is no tensor \"" O_PROJ
         "scales\" in the safetensors files; by the \"quantization_config\" of config"},
        {"awq", SINGLE, O_PROJ "qzeros\":{\"dtype\":\"I32\"", O_PROJ "qzeros\":{\"dtype\":\"F32\"",
         "o_proj.qzeros\" has dtype F32, but by the \"quantization_config\" of config.json it is I32"},
        {"ct-w4a16-asym", SINGLE, "mlp.gate_proj.weight_zero_point\":{\"dtype\":\"I32\",\"shape\":[12,2]",
         "mlp.gate_proj.weight_zero_point\":{\"dtype\":\"I8\" ,\"shape\":[48,2]",
         "gate_proj.weight_zero_point\" holds zero points that are not packed, as early versions of "
         "compressed-tensors"},
        {"awq", SINGLE, O_PROJ "scales\":{\"dtype\":\"F16\",\"shape\":[4,64]",
         O_PROJ "scales\":{\"dtype\":\"F16\",\"shape\":[8,32]",
         "o_proj.scales\" has shape [8, 32], but config.json makes it [4, 64]"},
    };
    const struct temp_folder *folder = *state;
    struct text file = {0};
    char path[512];
    struct error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        copy_quantized(folder, cases[i].from, cases[i].name, cases[i].what, cases[i].instead);
        refuse(folder->path, cases[i].words);
    }
    copy_quantized(folder, "gptq", NULL, NULL, NULL);
    assert_true(path_join(path, sizeof path, folder->path, SINGLE));
    if (file_read(path, &file, &err) != STATUS_OK) fail_msg("%s", err.text);
    temp_folder_write(folder, SINGLE, file.data, file.length - 1);
    refuse(folder->path, "bytes of data; was the download cut short?");
    text_free(&file);
}

/* The first bytes of a tensor are others. */
static void damage(const struct temp_folder *folder, const char *name, const void *bytes, size_t count)
{
    struct tensor_file *set = NULL;
    struct text file = {0};
    struct error err;
    char path[512];
    uint64_t header;
    assert_true(path_join(path, sizeof path, folder->path, SINGLE));
    if (file_read(path, &file, &err) != STATUS_OK || tensor_file_open_path(path, &set, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    memcpy(&header, file.data, sizeof header);
    const char *first = tensor_file_at(set, 0)->data, *data = tensor_file_find(set, name)->data;
    memcpy(file.data + sizeof header + header + (data - first), bytes, count);
    tensor_file_close(set);
    temp_folder_write(folder, SINGLE, file.data, file.length);
    text_free(&file);
}

/* NaN and infinity in scales, or the codes of fp8 that are NaN. */
static void test_damaged_scales(void **state)
{
    static const struct {
        const char *from, *tensor;
        uint8_t bytes[2];
        size_t count;
        const char *words;
    } cases[] = {
        {"ct-fp8-tensor", O_PROJ "weight", {0x7f}, 1, "it holds 1 NaN and 0 infinite values among 8192\n"},
        {"ct-fp8-tensor", O_PROJ "weight_scale", {0xc0, 0x7f}, 2, "it holds 1 NaN and 0 infinite values among 1\n"},
        {"gptq", O_PROJ "scales", {0, 0x7e}, 2, "it holds 1 NaN and 0 infinite values among "},
        {"awq", O_PROJ "scales", {0, 0x7c}, 2, "it holds 0 NaN and 1 infinite values among 256\n"},
    };
    const struct temp_folder *folder = *state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct program p;
        char words[256];
        copy_quantized(folder, cases[i].from, NULL, NULL, NULL);
        damage(folder, cases[i].tensor, cases[i].bytes, cases[i].count);
        generate(&p, folder->path, "--verbose");
        assert_int_equal(p.exit_status, EXIT_STATUS_FAILURE);
        assert_non_null(strstr(p.out.data, "\"error\": \"line 1: the model computed NaN or infinity where"));
        snprintf(words, sizeof words, "tensor \"%s\" is damaged: %s", cases[i].tensor, cases[i].words);
        if (!strstr(p.err.data, words)) fail_msg("no '%s' in: %s", words, p.err.data);
        program_free(&p);
    }
}

/* Floats that are to be quantized: what is said of them is what is said without --quantization. */
static void test_quantizing(void **state)
{
    static const struct {
        struct change change;
        const char *words;
    } cases[] = {
        {{UP, DROP}, ": there is no tensor \"" UP "\" in the safetensors files\n"},
        {{UP, DAMAGE}, "quire: warning: the model computed NaN or infinity where probabilities were expected: the"},
    };
    const struct temp_folder *folder = *state;
    for (size_t i = 0; i < 3 * sizeof cases / sizeof *cases; i++) {
        static const char *const flags[] = {"--quantization=fp8", "--quantization=int8", "--quantization=int4"};
        struct program p;
        write_weights(folder, SINGLE, (struct range){0}, cases[i / 3].change);
        generate(&p, folder->path, flags[i % 3]);
        assert_int_equal(p.exit_status, EXIT_STATUS_FAILURE);
        if (!strstr(p.err.data, cases[i / 3].words)) fail_msg("no '%s' in: %s", cases[i / 3].words, p.err.data);
        program_free(&p);
    }
}

/* ---- vocabulary and tokenizer ---- */

static void generate_with_tokenizer(struct program *p, const char *model, const char *prompts)
{
    program_run(p,
                (const char *[]){QUIRE_EXECUTABLE, "generate", "--no-chat", "--device", "cpu", "--return-token-ids",
                                 "--quiet", "--ordered", "--logprobs", "5", "--max-num-seqs", "4", "--max-tokens", "16",
                                 "--ignore-eos", "--model", model, NULL},
                prompts);
}

/* The model of the guide with random weights and `vocab_size` rows. */
static void ask(const struct temp_folder *folder, int64_t vocab_size, struct program *p)
{
    json_t *config = json_load_file(QUIRE_GUIDE "/config.json", 0, NULL);
    assert_non_null(config);
    json_object_set_new(config, "vocab_size", json_integer(vocab_size));
    char *text = json_dumps(config, 0);
    temp_folder_write_string(folder, "config.json", text);
    free(text);
    json_decref(config);
    temp_folder_copy(folder, QUIRE_GUIDE, "tokenizer.model");
    program_run(p,
                (const char *[]){QUIRE_EXECUTABLE,
                                 "generate",
                                 "--no-chat",
                                 "--device",
                                 "cpu",
                                 "--load-format",
                                 "dummy",
                                 "--return-token-ids",
                                 "--quiet",
                                 "--ordered",
                                 "--max-num-seqs",
                                 "4",
                                 "--temperature",
                                 "1",
                                 "--max-tokens",
                                 "16",
                                 "--ignore-eos",
                                 "--model",
                                 folder->path,
                                 NULL},
                "{\"prompt\":\"Hello\"}\n{\"prompt_token_ids\":[5,6,7]}\n");
}

/* Rows beyond the tokenizer's are padding. The answers, with probabilities, ranks and lists of the most probable
 * tokens, are those of the same model without padding. */
static void test_more_rows_than_tokens(void **state)
{
    static const char *const prompts =
        "{\"prompt\":\"Hello\",\"temperature\":0}\n{\"prompt\":\"Hello\",\"n\":3,\"temperature\":1}\n"
        "{\"prompt_token_ids\":[5,6,7],\"temperature\":2,\"top_p\":0.9,\"repetition_penalty\":1.2}\n";
    struct temp_folder folder;
    struct program sound, p;
    (void)state;
    padded_model_make(&folder, QUIRE_GUIDE);
    generate_with_tokenizer(&sound, QUIRE_GUIDE, prompts);
    generate_with_tokenizer(&p, folder.path, prompts);
    assert_int_equal(p.exit_status, EXIT_STATUS_OK);
    assert_string_equal(p.err.data, "");
    assert_string_equal(p.out.data, sound.out.data);
    program_free(&p);
    temp_folder_write_string(&folder, "generation_config.json", "{\"eos_token_id\": 4100}");
    generate_with_tokenizer(&p, folder.path, "{\"prompt\":\"Hello\",\"logit_bias\":{\"4096\":1}}\n");
    assert_int_equal(p.exit_status, EXIT_STATUS_FAILURE);
    assert_non_null(strstr(p.out.data, "logit_bias names token 4096; this model's tokens are 0 to 4095\"}\n"));
    assert_non_null(strstr(p.err.data, "the end-of-sequence id 4100 is never sampled"));
    program_free(&p);
    program_free(&sound);
    temp_folder_remove(&folder);
}

/* A prompt with a token that the model does not have ends with an error; another one is answered. */
static void test_fewer_rows_than_tokens(void **state)
{
    struct program p;
    ask(*state, 300, &p);
    assert_int_equal(p.exit_status, EXIT_STATUS_FAILURE);
    assert_non_null(strstr(p.err.data, "the tokenizer knows 4096 tokens, the model 300; the last ones cannot be used"));
    assert_non_null(strstr(p.out.data, "of the prompt is 1464, but the model's ids are 0 to 299\"}\n"));
    assert_non_null(strstr(p.out.data, "{\"index\": 1, \"text\": "));
    program_free(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, temp_folder_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tensors),
        TEST(test_tied_and_present),
        TEST(test_vocabulary_of_config),
        TEST(test_shards),
        TEST(test_not_the_weights),
        TEST(test_foreign_folders),
        TEST(test_files),
        TEST(test_warnings),
        TEST(test_old_rope_type),
        TEST(test_damaged_tensor),
        TEST(test_damaged_types),
        TEST(test_quantized),
        TEST(test_damaged_scales),
        TEST(test_quantizing),
        TEST(test_more_rows_than_tokens),
        TEST(test_fewer_rows_than_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
