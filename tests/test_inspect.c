/* quire inspect as a person runs it: its numbers are those of the files, and of quire profile. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <sys/stat.h>

#include "base/file.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

#define GOLDEN QUIRE_TEST_DATA "/golden"

enum { MAX_ARGUMENTS = 32 };

static void run(struct program *p, const char *command, const char *model, const char *const *arguments)
{
    const char *argv[MAX_ARGUMENTS] = {QUIRE_EXECUTABLE, command, "--device", "cpu", "--model", model};
    int count = 6;
    while (*arguments && count < MAX_ARGUMENTS - 1) argv[count++] = *arguments++;
    program_run(p, argv, NULL);
}

#define ARGUMENTS(...) ((const char *const[]){__VA_ARGS__, NULL})

static json_t *run_json(const char *command, const char *model, const char *const *arguments)
{
    struct program p;
    run(&p, command, model, arguments);
    json_t *json = program_json(&p);
    program_free(&p);
    return json;
}

/* ---- what the files say ---- */

static json_t *read_json(const char *folder, const char *name)
{
    char path[512];
    assert_true(path_join(path, sizeof path, folder, name));
    json_t *json = json_load_file(path, 0, NULL);
    assert_non_null(json);
    return json;
}

/* Adds up one safetensors file: its bytes, and the elements that the shapes in its header give. */
static void add_file(const char *folder, const char *name, int64_t *bytes, int64_t *elements)
{
    char path[512];
    struct text file = {0};
    struct error err;
    uint64_t length;
    const char *tensor;
    json_t *value;
    assert_true(path_join(path, sizeof path, folder, name));
    assert_int_equal(file_read(path, &file, &err), STATUS_OK);
    memcpy(&length, file.data, sizeof length);
    json_t *header = json_loadb(file.data + 8, length, 0, NULL);
    assert_non_null(header);
    json_object_foreach(header, tensor, value)
    {
        const json_t *shape = json_object_get(value, "shape");
        int64_t count = 1;
        for (size_t d = 0; d < json_array_size(shape); d++) count *= json_integer_value(json_array_get(shape, d));
        if (shape) *elements += count;
    }
    *bytes += (int64_t)file.length;
    json_decref(header);
    text_free(&file);
}

static void check_same(const json_t *report, const json_t *config, const char *const *keys)
{
    for (; *keys; keys++) {
        const json_t *expected = json_object_get(config, *keys), *found = json_object_get(report, *keys);
        const bool same = json_is_number(expected)
                              ? json_is_number(found) && json_number_value(found) == json_number_value(expected)
                              : json_equal(found, expected);
        if (!same) fail_msg("%s is not what config.json says", *keys);
    }
}

static void check_string(const json_t *json, const char *key, const char *expected)
{
    const char *found = json_string_value(json_object_get(json, key));
    if (!found || strcmp(found, expected) != 0) fail_msg("%s is %s, expected %s", key, found, expected);
}

/* What every config.json of these tests has. */
static const char *const SIZES[] = {
    "model_type",          "architectures",       "hidden_size", "intermediate_size", "num_hidden_layers",
    "num_attention_heads", "num_key_value_heads", "head_dim",    "vocab_size",        "max_position_embeddings",
    "tie_word_embeddings", "bos_token_id",        NULL};

/* ---- checkpoints ---- */

static void a_vision_tower_is_counted(void **state)
{
    (void)state;
    json_t *json = run_json("inspect", QUIRE_TEST_DATA "/golden/gemma3_vision", ARGUMENTS("--json"));
    check_string(json, "other_parts", "vision tower");
    assert_int_equal(json_require_integer(json, "other_tensors"), 34);
    check_string(json, "model_type", "gemma3_text");
    json_decref(json);
}

/* Beside a vision tower, and what the drafter has of it. */
static void a_next_layer_is_counted(void **state)
{
    (void)state;
    enum { VISION = 32 }; /* elements of the one tensor that stands for the tower */
    static const char folder[] = QUIRE_TEST_DATA "/heads/mtp_qwen3_5_moe";
    json_t *plain = run_json("inspect", folder, ARGUMENTS("--json")),
           *drafts = run_json("inspect", folder, ARGUMENTS("--json", "--speculative-model", "mtp"));
    int64_t bytes = 0, elements = 0;
    add_file(folder, "model.safetensors", &bytes, &elements);
    const int64_t head = json_require_integer(drafts, "num_draft_parameters");
    assert_int_equal(json_require_integer(plain, "num_draft_parameters"), 0);
    assert_int_equal(json_require_integer(plain, "num_nextn_predict_layers"), 1);
    assert_int_equal(json_require_integer(plain, "mtp_bytes"), 2 * head);
    assert_int_equal(json_require_integer(plain, "mtp_tensors"), 3 * 6 + 17);
    assert_int_equal(json_require_integer(plain, "other_tensors"), 1);
    assert_int_equal(json_require_integer(plain, "other_bytes"), 2 * VISION);
    assert_int_equal(json_require_integer(plain, "num_parameters") + head + VISION, elements);
    json_decref(drafts);
    json_decref(plain);
}

/* Whatever ranks have of it, and of its head. */
static void a_shared_model_is_counted_whole(void **state)
{
    (void)state;
    static const char folder[] = QUIRE_TEST_DATA "/heads/mtp_qwen3_5_moe";
    static const char *const keys[] = {"num_parameters", "num_embedding_parameters", "num_active_parameters",
                                       "num_draft_parameters", "token_bytes"};
    json_t *one = run_json("inspect", folder, ARGUMENTS("--json", "--speculative-model", "mtp")),
           *two = run_json("inspect", folder,
                           ARGUMENTS("--json", "--speculative-model", "mtp", "--tensor-parallel-size", "2"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        assert_int_equal(json_require_integer(two, keys[i]), json_require_integer(one, keys[i]));
    json_t *ranks = json_object_get(json_object_get(two, "memory"), "ranks");
    assert_int_equal(json_array_size(ranks), 2);
    assert_true(json_require_integer(json_array_get(ranks, 0), "weights_memory") <
                json_require_integer(json_object_get(one, "memory"), "weights_memory"));
    assert_null(json_object_get(json_object_get(one, "memory"), "ranks"));
    json_decref(one);
    json_decref(two);
}

static void the_guide_is_what_its_files_say(void **state)
{
    (void)state;
    json_t *json = run_json("inspect", QUIRE_GUIDE, ARGUMENTS("--json")),
           *config = read_json(QUIRE_GUIDE, "config.json");
    int64_t bytes = 0, elements = 0;
    add_file(QUIRE_GUIDE, "model.safetensors", &bytes, &elements);
    check_same(json, config, SIZES);
    check_string(json, "dtype", "bfloat16");
    assert_int_equal(json_require_integer(json, "num_files"), 1);
    assert_int_equal(json_require_integer(json, "file_bytes"), bytes);
    assert_int_equal(json_require_integer(json, "num_parameters"), elements);
    assert_int_equal(json_require_integer(json, "num_embedding_parameters"),
                     json_require_integer(config, "vocab_size") * json_require_integer(config, "hidden_size"));
    check_string(json, "tokenizer", "tokenizer.model");
    assert_int_equal(json_require_integer(json, "tokenizer_size"), 4096);
    check_string(json, "bos_token", "<s>");
    json_t *eos = json_pack("[i, i]", 6, 2), *texts = json_pack("[s, s]", "<|end|>", "</s>");
    assert_true(json_equal(json_object_get(json, "eos_token_id"), eos)); /* of both files */
    assert_true(json_equal(json_object_get(json, "eos_token"), texts));
    assert_int_equal(json_array_size(json_object_get(json, "chat_templates")), 1);
    assert_true(json_is_null(json_object_get(json, "chat_template_error")));
    assert_true(json_is_null(json_object_get(json, "weights_error")));
    assert_true(json_is_null(json_object_get(json, "tokenizer_error")));
    json_decref(texts);
    json_decref(eos);
    json_decref(config);
    json_decref(json);
}

/* Others come and go, and so do pages of a file; and what only quire profile says. */
static bool is_no_plan(const char *key)
{
    static const char *const keys[] = {
        "model",   "others_memory", "context_and_others_memory", "planned", "weights_resident_memory", "notes",
        "what_if", "quantization"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    return false;
}

/* The plan is that of quire profile. */
static void the_plan_is_that_of_profile(void **state)
{
    (void)state;
    const char *const *flags = ARGUMENTS("--json", "--kv-cache-space", "0.01", "--block-size", "32", "--kv-cache-dtype",
                                         "bfloat16", "--max-model-len", "640", "--max-num-seqs", "8",
                                         "--max-num-batched-tokens", "256", "--swap-space", "0.1", "--threads", "1");
    json_t *json = run_json("inspect", QUIRE_GUIDE, flags), *profile = run_json("profile", QUIRE_GUIDE, flags),
           *expected;
    const json_t *memory = json_object_get(json, "memory");
    const char *key;
    json_object_foreach(profile, key, expected)
    {
        if (is_no_plan(key)) continue;
        if (!json_equal(json_object_get(memory, key), expected)) fail_msg("%s differs from quire profile's", key);
    }
    assert_true(json_is_true(json_object_get(memory, "fits")));
    /* K and V of 2 heads of 64 elements in 6 layers, two bytes each */
    assert_int_equal(json_require_integer(json, "kv_bytes_per_token"), 2 * 2 * 64 * 6 * 2);
    assert_int_equal(json_require_integer(memory, "num_gpu_blocks"),
                     (int64_t)(0.01 * 1024 * 1024 * 1024) / (32 * 2 * 2 * 64 * 6 * 2));
    json_decref(profile);
    json_decref(json);
}

/* The guide has 6 layers of 786432 elements, with 2560 output features; int8 has a scale of 4 bytes for each of those.
 */
static void quantization_before_and_after(void **state)
{
    (void)state;
    json_t *plain = run_json("inspect", QUIRE_GUIDE, ARGUMENTS("--json")),
           *json = run_json("inspect", QUIRE_GUIDE, ARGUMENTS("--json", "--quantization", "int8"));
    const int64_t elements = json_require_integer(json, "num_parameters");
    assert_true(json_is_null(json_object_get(plain, "quantization")));
    check_string(json, "quantization", "int8, per channel, activations too (W8A8), quantized while loading");
    assert_int_equal(json_require_integer(plain, "weights_bytes"), 2 * elements);
    assert_int_equal(json_require_integer(plain, "unquantized_weights_bytes"), 2 * elements);
    assert_int_equal(json_require_integer(json, "unquantized_weights_bytes"), 2 * elements);
    assert_int_equal(json_require_integer(json, "weights_bytes"), 2 * elements - 6 * (786432 - 4 * 2560));
    assert_int_equal(json_require_integer(json_object_get(json, "memory"), "weights_memory"),
                     json_require_integer(json, "weights_bytes"));
    json_decref(plain);
    json_decref(json);

    struct program p;
    run(&p, "inspect", QUIRE_GUIDE, ARGUMENTS("--no-json", "--quantization", "int4"));
    assert_non_null(strstr(p.out.data, "quantized      int4, groups of 128, asymmetric, quantized while loading\n"));
    assert_non_null(strstr(p.out.data, "  size         4.36 MiB; in bfloat16 11.01 MiB\n"));
    program_free(&p);
    run(&p, "inspect", QUIRE_GUIDE, ARGUMENTS("--no-json"));
    assert_null(strstr(p.out.data, "quantized"));
    program_free(&p);
    run(&p, "inspect", QUIRE_GUIDE, ARGUMENTS("--no-json", "--quantization", "awq"));
    assert_int_equal(p.exit_status, 1);
    assert_non_null(strstr(p.err.data, "quire quantizes to fp8, int8 or int4"));
    program_free(&p);
}

static void several_files_are_added_up(void **state)
{
    (void)state;
    const char *folder = GOLDEN "/gqa";
    json_t *json = run_json("inspect", folder, ARGUMENTS("--json")), *config = read_json(folder, "config.json");
    int64_t bytes = 0, elements = 0;
    for (int i = 1; i <= 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "model-%05d-of-00003.safetensors", i);
        add_file(folder, name, &bytes, &elements);
    }
    check_same(json, config, SIZES);
    assert_int_equal(json_require_integer(json, "num_files"), 3);
    assert_int_equal(json_require_integer(json, "file_bytes"), bytes);
    assert_int_equal(json_require_integer(json, "num_parameters"), elements);
    json_decref(config);
    json_decref(json);
}

static void layers_of_different_kinds(void **state)
{
    (void)state;
    const char *folder = GOLDEN "/gemma2";
    json_t *json = run_json("inspect", folder, ARGUMENTS("--json")), *config = read_json(folder, "config.json");
    check_same(json, config, SIZES);
    check_same(json, config, ARGUMENTS("layer_types", "dtype", "final_logit_softcapping"));
    const json_t *kinds = json_object_get(json, "layer_kinds");
    assert_int_equal(json_array_size(kinds), 2);
    check_same(json_array_get(kinds, 0), config, ARGUMENTS("sliding_window", "attn_logit_softcapping"));
    check_string(json_array_get(kinds, 0), "norm_placement", "around");
    check_string(json_array_get(kinds, 0), "hidden_act", "gelu_pytorch_tanh");
    assert_true(json_is_null(json_object_get(json_array_get(kinds, 1), "sliding_window")));
    for (int i = 0; i < 2; i++) {
        json_t *numbers = json_pack("[i]", i);
        assert_true(json_equal(json_object_get(json_array_get(kinds, (size_t)i), "layers"), numbers));
        json_decref(numbers);
    }
    json_decref(config);
    json_decref(json);

    static const char *const without_a_gate[][2] = {{GOLDEN "/apertus", "xielu"}, {GOLDEN "/arcee", "relu2"}};
    for (int i = 0; i < 2; i++) {
        json = run_json("inspect", without_a_gate[i][0], ARGUMENTS("--json"));
        check_string(json_array_get(json_object_get(json, "layer_kinds"), 0), "hidden_act", without_a_gate[i][1]);
        json_decref(json);
    }

    json = run_json("inspect", GOLDEN "/yarn", ARGUMENTS("--json"));
    const json_t *rope = json_array_get(json_object_get(json, "ropes"), 0);
    check_string(rope, "rope_type", "yarn");
    assert_float_equal(json_require_number(rope, "factor"), 4, 0);
    assert_int_equal(json_require_integer(rope, "original_max_position_embeddings"), 64);
    assert_int_equal(json_array_size(json_object_get(json, "layer_kinds")), 1);
    json_decref(json);
}

/* The rows of a report in the order of `rows`, which have one space between name and value. */
static void check_rows(const char *folder, const char *const *rows)
{
    struct program p;
    run(&p, "inspect", folder, ARGUMENTS("--no-json"));
    assert_int_equal(p.exit_status, 0);
    for (char *line = strtok(p.out.data, "\n"); line && *rows; line = strtok(NULL, "\n")) {
        const char *name = line + strspn(line, " "), *gap = strstr(name, "  ");
        char found[512];
        if (!gap) continue;
        snprintf(found, sizeof found, "%.*s %s", (int)(gap - name), name, gap + strspn(gap, " "));
        if (strcmp(found, *rows) == 0) rows++;
    }
    if (*rows) fail_msg("%s: there is no row '%s', or not where it was expected", folder, *rows);
    program_free(&p);
}

/* Each row is what the config.json in the folder says; the scores of a head of 64 elements are times 0.125 but where
 * the file says otherwise. */
static void rows_of_every_kind_of_layer(void **state)
{
    (void)state;
    check_rows(GOLDEN "/gemma2",
               ARGUMENTS("layers 2: sliding window 24 (1 layer), full attention (1 layer)",
                         "rotation 64 of 64 elements of a head",
                         "norms RMSNorm, eps 1e-05, before and after each sublayer", "QK norm none",
                         "scores times 0.144338, soft cap 5", "MLP gelu_pytorch_tanh with a gate",
                         "embedding times 5.65685", "logits soft cap 10", "rope default, theta 10000"));
    check_rows(GOLDEN "/gemma3", ARGUMENTS("QK norm of each head", "rope linear, theta 1000000, factor 8 (1 layer)",
                                           "rope default, theta 500 (1 layer)"));
    check_rows(GOLDEN "/mimo_v2", ARGUMENTS("values times 0.707",
                                            "heads 2 of 64 elements, 1 of K and V, those of V of 32 (1 layer); 2 of 64 "
                                            "elements, 2 of K and V, those of V of 32 (1 layer)"));
    check_rows(GOLDEN "/olmo3", ARGUMENTS("norms RMSNorm, eps 1e-05, after each sublayer", "QK norm of each projection",
                                          "rope yarn, theta 500000, factor 4, original length 64 (1 layer)"));
    check_rows(GOLDEN "/cohere2",
               ARGUMENTS("layers 3: sliding window 24 (2 layers), full attention (1 layer)",
                         "rotation interleaved, 64 of 64 elements of a head (2 layers), none (1 layer)",
                         "norms LayerNorm, eps 1e-05, before attention and MLP in parallel", "logits times 0.5"));
    check_rows(GOLDEN "/granite",
               ARGUMENTS("layers 2: full attention", "scores times 0.2", "outputs of the sublayers, times 0.6",
                         "embedding times 3", "logits times 0.666667"));
    check_rows(GOLDEN "/phi3", ARGUMENTS("rotation 24 of 32 elements of a head",
                                         "merged q, k and v in self_attn.qkv_proj, gate and up in mlp.gate_up_proj",
                                         "rope longrope, theta 10000, original length 64"));
    check_rows(GOLDEN "/glm4", ARGUMENTS("rotation interleaved, 32 of 64 elements of a head",
                                         "merged gate and up in mlp.gate_up_proj", "eos 151329, 151336, 151338"));
    check_rows(GOLDEN "/gemma", ARGUMENTS("MLP gelu with a gate"));
    check_rows(GOLDEN "/apertus", ARGUMENTS("MLP xielu without a gate"));
    check_rows(GOLDEN "/opt", ARGUMENTS("rotation none, learned positions", "MLP relu without a gate"));
    check_rows(GOLDEN "/bloom", ARGUMENTS("rotation none, ALiBi"));
    check_rows(GOLDEN "/arcee", ARGUMENTS("MLP relu2 without a gate", "biases MLP"));
    check_rows(GOLDEN "/qwen2", ARGUMENTS("biases qkv"));
    check_rows(GOLDEN "/gemma4_e",
               ARGUMENTS("K and V of an earlier layer (2 layers)", "per layer 8 more elements of each token"));
    check_rows(GOLDEN "/nanochat",
               ARGUMENTS("parameters 51200, 51.20 thousand", "rotation reversed, 64 of 64 elements of a head",
                         "norms RMSNorm without gains, eps 1e-05, before each sublayer",
                         "QK norm of each head, after the rotation"));
    check_rows(GOLDEN "/olmo",
               ARGUMENTS("norms LayerNorm without gains, eps 1e-05, before each sublayer", "q, k and v clipped to 2"));
}

/* Copies model.safetensors from one folder to another, and adds a tensor of one float32. Returns how many tensors there
 * were. */
static size_t copy_with_float32(const struct temp_folder *to, const char *from)
{
    char path[512];
    struct text file = {0}, data = {0};
    struct error err;
    uint64_t length;
    assert_true(path_join(path, sizeof path, from, "model.safetensors"));
    assert_int_equal(file_read(path, &file, &err), STATUS_OK);
    memcpy(&length, file.data, sizeof length);
    json_t *json = json_loadb(file.data + 8, length, 0, NULL);
    const size_t count = json_object_size(json) - (json_object_get(json, "__metadata__") != NULL);
    const json_int_t first = (json_int_t)(file.length - 8 - length);
    json_object_set_new(
        json, "more",
        json_pack("{s:s, s:[i], s:[I, I]}", "dtype", "F32", "shape", 1, "data_offsets", first, first + 4));
    char *dumped = json_dumps(json, JSON_EMBED);
    assert_true(text_append(&data, file.data + 8 + length, (size_t)first));
    assert_true(text_append(&data, "\0\0\0\0", 4));
    temp_folder_write_safetensors(to, "model.safetensors", dumped, data.data, data.length);
    free(dumped);
    json_decref(json);
    text_free(&data);
    text_free(&file);
    return count;
}

/* gemma3 is bfloat16, and so says its config.json: no row. Then with a tensor of another type, and with another type in
 * config.json. */
static void types_that_config_does_not_say(void **state)
{
    (void)state;
    struct temp_folder folder;
    struct program p;
    char row[64];
    run(&p, "inspect", GOLDEN "/gemma3", ARGUMENTS("--no-json"));
    assert_null(strstr(p.out.data, "stored"));
    program_free(&p);

    temp_folder_make(&folder);
    temp_folder_copy(&folder, GOLDEN "/gemma3", "config.json");
    const size_t count = copy_with_float32(&folder, GOLDEN "/gemma3");
    snprintf(row, sizeof row, "stored BF16 (%zu tensors), F32 (1 tensor)", count);
    check_rows(folder.path, ARGUMENTS("dtype bfloat16", row));
    json_t *json = run_json("inspect", folder.path, ARGUMENTS("--json")),
           *expected = json_pack("{s:I, s:i}", "BF16", (json_int_t)count, "F32", 1);
    assert_true(json_equal(json_object_get(json, "stored_dtypes"), expected));
    json_decref(expected);
    json_decref(json);

    json_t *config = read_json(GOLDEN "/gemma3", "config.json");
    json_object_set_new(config, "torch_dtype", json_string("float16"));
    char *text = json_dumps(config, 0);
    temp_folder_write_string(&folder, "config.json", text);
    temp_folder_copy(&folder, GOLDEN "/gemma3", "model.safetensors");
    check_rows(folder.path, ARGUMENTS("dtype float16", "stored BF16"));
    free(text);
    json_decref(config);
    temp_folder_remove(&folder);
}

/* ---- folders that cannot be run ---- */

/* The sizes of Llama-3.1-70B, which has 70,553,706,496 parameters; only its config.json is there. */
static const char *const CONFIG_70B =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"hidden_size\": 8192,"
    " \"intermediate_size\": 28672, \"num_hidden_layers\": 80, \"num_attention_heads\": 64, \"num_key_value_heads\": 8,"
    " \"vocab_size\": 128256, \"max_position_embeddings\": 131072, \"rms_norm_eps\": 1e-5, \"rope_theta\": 500000.0,"
    " \"tie_word_embeddings\": false, \"torch_dtype\": \"bfloat16\", \"bos_token_id\": 128000,"
    " \"eos_token_id\": [128001, 128008]}";

static int make_folder(void **state)
{
    static struct temp_folder folder;
    temp_folder_make(&folder);
    temp_folder_write_string(&folder, "config.json", CONFIG_70B);
    *state = &folder;
    return 0;
}

static int remove_folder(void **state)
{
    temp_folder_remove(*state);
    return 0;
}

static void a_config_alone_is_enough(void **state)
{
    const struct temp_folder *folder = *state;
    temp_folder_write_string(folder, "generation_config.json",
                             "{\"do_sample\": true, \"temperature\": 0.6, \"top_p\": 0.9, \"eos_token_id\": 128009}");
    json_t *json = run_json("inspect", folder->path, ARGUMENTS("--json"));
    assert_true(json_require_integer(json, "num_parameters") == 70553706496);
    assert_true(json_is_false(json_object_get(json, "tie_word_embeddings")));
    assert_int_equal(json_require_integer(json, "num_files"), 0);
    assert_non_null(strstr(json_string_value(json_object_get(json, "weights_error")), "model.safetensors"));
    assert_true(json_is_null(json_object_get(json, "tokenizer")));
    assert_non_null(strstr(json_string_value(json_object_get(json, "tokenizer_error")), "tokenizer.model"));
    assert_int_equal(json_array_size(json_object_get(json, "eos_token_id")), 3);
    json_t *sampling = json_pack("{s:b, s:f, s:f}", "do_sample", 1, "temperature", 0.6, "top_p", 0.9);
    assert_true(json_equal(json_object_get(json, "generation_config"), sampling));
    assert_true(json_require_integer(json_object_get(json, "memory"), "weights_memory") == 70553706496 * 2);
    json_decref(sampling);
    json_decref(json);
    temp_folder_delete(folder, "generation_config.json");

    json = run_json("inspect", folder->path, ARGUMENTS("--json", "--load-format", "dummy"));
    assert_true(json_is_null(json_object_get(json, "weights_error"))); /* none were asked for */
    assert_true(json_is_null(json_object_get(json, "generation_config")));
    json_decref(json);
}

static void what_cannot_be_read_is_a_line(void **state)
{
    const struct temp_folder *folder = *state;
    struct program p;
    temp_folder_write_string(folder, "model.safetensors", "not a header");
    run(&p, "inspect", folder->path, ARGUMENTS("--no-json"));
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "\nweights        cannot be loaded: "));
    assert_non_null(strstr(p.out.data, "70553706496, 70.55 billion"));
    assert_non_null(strstr(p.out.data, "tokenizer      cannot be used: "));
    assert_non_null(strstr(p.out.data, "chat template  no\n"));
    assert_non_null(strstr(p.out.data, "128000\n")); /* bos, whose text no file tells */
    program_free(&p);
    temp_folder_delete(folder, "model.safetensors");
}

/* The texts of special tokens and the template are in files of their own. */
static void special_tokens_need_no_vocabulary(void **state)
{
    const struct temp_folder *folder = *state;
    temp_folder_write_string(
        folder, "tokenizer_config.json",
        "{\"added_tokens_decoder\": {\"128008\": {\"content\": \"<|eom_id|>\", \"special\": true}},"
        " \"chat_template\": \"{{ strftime_now('%Y') }}\"}");
    json_t *json = run_json("inspect", folder->path, ARGUMENTS("--json"));
    const json_t *texts = json_object_get(json, "eos_token");
    assert_string_equal(json_string_value(json_array_get(texts, 0)), "");
    assert_string_equal(json_string_value(json_array_get(texts, 1)), "<|eom_id|>");
    assert_string_equal(json_string_value(json_array_get(json_object_get(json, "chat_templates"), 0)), "default");
    json_decref(json);
    struct program p;
    run(&p, "inspect", folder->path, ARGUMENTS("--no-json"));
    assert_non_null(strstr(p.out.data, "128001, 128008 <|eom_id|>\n"));
    assert_non_null(strstr(p.out.data, "chat template  yes\n"));
    program_free(&p);
    temp_folder_delete(folder, "tokenizer_config.json");
}

static void a_model_that_does_not_fit_is_an_answer(void **state)
{
    const struct temp_folder *folder = *state;
    struct program p;
    json_t *json =
        run_json("inspect", folder->path, ARGUMENTS("--json", "--max-model-len", "2048", "--kv-cache-space", "0.02"));
    const json_t *memory = json_object_get(json, "memory");
    assert_true(json_is_false(json_object_get(memory, "fits")));
    assert_int_equal(json_require_integer(memory, "num_gpu_blocks"), 2); /* of 10 MiB */
    assert_non_null(strstr(json_string_value(json_object_get(memory, "error")), "raise --kv-cache-space to "));
    json_decref(json);

    /* 34 TB of weights; the cache holds a request, but this machine does not hold the weights. */
    char config[1024];
    snprintf(config, sizeof config,
             "{\"model_type\": \"llama\", \"hidden_size\": 32768, \"intermediate_size\": 131072,"
             " \"num_hidden_layers\": 1000, \"num_attention_heads\": 256, \"num_key_value_heads\": 1,"
             " \"vocab_size\": 256, \"max_position_embeddings\": 64, \"torch_dtype\": \"bfloat16\"}");
    temp_folder_write_string(folder, "config.json", config);
    run(&p, "inspect", folder->path, ARGUMENTS("--load-format", "dummy", "--max-num-seqs", "4"));
    temp_folder_write_string(folder, "config.json", CONFIG_70B);
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "no: the weights take "));
    program_free(&p);

    /* Weights that fit beside a smaller cache. */
    run(&p, "inspect", QUIRE_GUIDE, ARGUMENTS("--kv-cache-space", "100000"));
    assert_int_equal(p.exit_status, 0);
    assert_non_null(strstr(p.out.data, "need more memory than is free, "));
    program_free(&p);
}

/* A name of the Hugging Face cache, where only config.json was downloaded. */
static void a_name_of_the_cache_needs_no_weights(void **state)
{
    (void)state;
    static const char snapshot[] = "models--org--name/snapshots/0123456789abcdef0123456789abcdef01234567";
    struct temp_folder cache;
    char path[512];
    temp_folder_make(&cache);
    temp_folder_add_folder(&cache, snapshot);
    temp_folder_add_folder(&cache, "models--org--name/refs");
    temp_folder_write_string(&cache, "models--org--name/refs/main", strrchr(snapshot, '/') + 1);
    snprintf(path, sizeof path, "%s/config.json", snapshot);
    temp_folder_write_string(&cache, path, CONFIG_70B);
    setenv("HF_HUB_CACHE", cache.path, 1);
    json_t *json = run_json("inspect", "org/name", ARGUMENTS("--json"));
    unsetenv("HF_HUB_CACHE");
    assert_non_null(strstr(json_string_value(json_object_get(json, "model")), snapshot));
    assert_true(json_require_integer(json, "num_parameters") == 70553706496);
    json_decref(json);
    temp_folder_remove(&cache);
}

static void check_failure(const char *model, const char *const *arguments, int exit_status, const char *sentence)
{
    struct program p;
    run(&p, "inspect", model, arguments);
    assert_int_equal(p.exit_status, exit_status);
    assert_int_equal(p.out.length, 0);
    if (!strstr(p.err.data, sentence)) fail_msg("no '%s' in: %s", sentence, p.err.data);
    program_free(&p);
}

/* Where there is no GPU that flags could take work from, they are accepted, and a sentence says so. */
static void offloading_to_the_cpu_changes_nothing_there(void **state)
{
    (void)state;
    struct program p;
    run(&p, "inspect", GOLDEN "/qwen3_moe",
        ARGUMENTS("--json", "--cpu-offload-experts", "1", "--cpu-offload-embeddings"));
    json_t *json = program_json(&p), *memory = json_object_get(json, "memory");
    assert_non_null(strstr(p.err.data, "the CPU computes everything, so offloading experts changes nothing"));
    assert_non_null(strstr(p.err.data, "the CPU computes everything, so offloading embeddings changes nothing"));
    assert_int_equal(json_require_integer(memory, "host_experts_memory"), 0);
    assert_int_equal(json_require_integer(memory, "host_embeddings_memory"), 0);
    assert_true(json_require_integer(memory, "experts_memory") > 0);
    json_decref(json);
    program_free(&p);
}

static void errors(void **state)
{
    const struct temp_folder *folder = *state;
    check_failure("/nowhere/at/all", ARGUMENTS("--json"), 1, "/nowhere/at/all");
    check_failure(folder->path, ARGUMENTS("--max-model-len", "200000"), 1, ": lower --max-model-len to ");
    check_failure(folder->path, ARGUMENTS("--jsn", "x"), 2, "did you mean --json?");
    check_failure(folder->path, ARGUMENTS("--temperature", "1"), 2, "there is no flag --temperature");
    temp_folder_write_string(folder, "config.json", "{\"model_type\": \"mamba\"}");
    check_failure(folder->path, ARGUMENTS("--json"), 1, "mamba");
    temp_folder_write_string(folder, "config.json", CONFIG_70B);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vision_tower_is_counted),
        cmocka_unit_test(a_next_layer_is_counted),
        cmocka_unit_test(a_shared_model_is_counted_whole),
        cmocka_unit_test(the_guide_is_what_its_files_say),
        cmocka_unit_test(the_plan_is_that_of_profile),
        cmocka_unit_test(quantization_before_and_after),
        cmocka_unit_test(several_files_are_added_up),
        cmocka_unit_test(layers_of_different_kinds),
        cmocka_unit_test(rows_of_every_kind_of_layer),
        cmocka_unit_test(types_that_config_does_not_say),
        cmocka_unit_test(a_config_alone_is_enough),
        cmocka_unit_test(what_cannot_be_read_is_a_line),
        cmocka_unit_test(special_tokens_need_no_vocabulary),
        cmocka_unit_test(a_model_that_does_not_fit_is_an_answer),
        cmocka_unit_test(a_name_of_the_cache_needs_no_weights),
        cmocka_unit_test(offloading_to_the_cpu_changes_nothing_there),
        cmocka_unit_test(errors),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
