/* quire quantize: the folder that it writes gives the answers of --quantization while loading, and has everything else
 * as it was; kills, full disks and signals, after which the same command goes on; what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "model/checkpoint/tensor_file.h"
#include "tests/support/golden_choice.h"
#include "tests/support/must.h"
#include "tests/support/program.h"
#include "tests/support/run.h"
#include "tests/support/temp_folder.h"

enum { MAX_PATH = 600 };

static const char *const formats[] = {"fp8", "int8", "int4"};
enum { NUM_FORMATS = sizeof formats / sizeof *formats };

/* The path of an entry of a folder; the caller frees it. */
static char *path_of(const char *folder, const char *name)
{
    char *path = malloc(MAX_PATH);
    assert_true(path_join(path, MAX_PATH, folder, name));
    return path;
}

/* ---- running ---- */

/* Expects that exit status, and those words on stderr (NULL: any). */
static void quantize(const char *model, const char *output, const char *format, const char *shard_size, int exit_status,
                     const char *said)
{
    struct program p;
    program_run(&p,
                (const char *[]){QUIRE_EXECUTABLE, "quantize", "--model", model, "--output", output, "--quantization",
                                 format, "--max-shard-size", shard_size, "--threads", "3", NULL},
                NULL);
    if (p.exit_status != exit_status) fail_msg("%s: exit status %d: %s", model, p.exit_status, p.err.data);
    if (said && !strstr(p.err.data, said)) fail_msg("no '%s' in: %s", said, p.err.data);
    assert_int_equal(p.out.length, 0);
    program_free(&p);
}

static void answer(const char *folder, const char *quantization, struct run *out)
{
    static const int32_t lengths[] = {1, 7, 33};
    enum { NUM_PROMPTS = sizeof lengths / sizeof *lengths };
    char path[512];
    struct engine_options options = run_options(folder, path, sizeof path);
    options.quantization = quantization;
    options.dtype = "auto";
    struct engine *e = run_engine(&options);
    struct sampling_params params = sampling_params_default();
    params.temperature = 0;
    params.ignore_eos = true;
    params.logprobs = 2;
    params.max_tokens = 16;
    struct run_prompt *prompts = run_random_prompts(lengths, NUM_PROMPTS, engine_info(e)->num_ids, 1);
    run_prompts(e, prompts, NUM_PROMPTS, &params, out);
    run_prompts_free(prompts, NUM_PROMPTS);
    engine_destroy(e);
}

static void assert_same_answers(const char *model, const char *format, const char *quantized)
{
    struct run while_loading, stored;
    answer(model, format, &while_loading);
    answer(quantized, NULL, &stored);
    for (int32_t i = 0; i < stored.num_prompts; i++) {
        const struct run_answer *a = &while_loading.answers[i], *b = &stored.answers[i];
        assert_int_equal(a->count, b->count);
        if (memcmp(a->tokens, b->tokens, (size_t)a->count * sizeof *a->tokens) != 0 ||
            memcmp(a->gaps, b->gaps, (size_t)a->count * sizeof *a->gaps) != 0)
            fail_msg("%s, %s: answer %d differs", model, format, i);
    }
    run_free(&while_loading);
    run_free(&stored);
}

/* ---- what is written ---- */

/* Whether a tensor of the folder that is to be quantized holds several matrices, such as all experts of a layer, or a
 * transposed one. */
static bool has_stacks(const char *folder, const char *format)
{
    static const char *const models[] = {"dbrx", "gpt2"}, *const cut[] = {"llama4", "qwen3_vl_moe", "qwen3_5_moe",
                                                                          "mistral4"};
    const char *name = strrchr(folder, '/') + 1;
    struct tensor_file *file;
    struct error err;
    bool found = false;
    for (size_t i = 0; i < sizeof cut / sizeof *cut && strcmp(format, "int4") != 0; i++) /* into experts */
        if (strcmp(name, cut[i]) == 0) return false;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) found = found || strcmp(name, models[i]) == 0;
    must(tensor_file_open(folder, &file, &err), &err);
    for (int64_t i = 0; i < tensor_file_count(file); i++) {
        const struct stored_tensor *t = tensor_file_at(file, i);
        found = found || (t->num_dims == 3 && !strstr(t->name, "vision") && !strstr(t->name, "conv"));
    }
    tensor_file_close(file);
    return found;
}

/* Every family's names, shapes and types of floats. The order of the tensors in a file plays no part in the answers, so
 * some folders have one file and some many. */
static void test_same_answers(void **state)
{
    (void)state;
    const struct golden_choice chosen = golden_choose();
    for (int i = 0; i < chosen.count; i++)
        for (int k = 0; k < NUM_FORMATS; k++) {
            char model[MAX_PATH];
            struct temp_folder output;
            snprintf(model, sizeof model, "%s/golden/%s", QUIRE_TEST_DATA, chosen.names[i]);
            const bool stacks = has_stacks(model, formats[k]);
            temp_folder_make(&output);
            quantize(model, output.path, formats[k], i % 8 ? "5" : "0.00003", stacks,
                     stacks ? "holds several matrices, or a transposed one, which quire does not read from"
                            : "matrices to");
            if (!stacks) assert_same_answers(model, formats[k], output.path);
            temp_folder_remove(&output);
        }
}

/* A checkpoint with what quire does not use: a part that is another model, and files of all kinds. */
static void make_model(struct temp_folder *model)
{
    static const char *const files[] = {"config.json", "model-00001-of-00003.safetensors",
                                        "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors"};
    static const char part[] =
        "\"vision_tower.layers.0.q_proj.weight\": {\"dtype\": \"F32\", \"shape\": [2, 2], \"data_offsets\": [0, 16]},"
        "\"vision_tower.odd\": {\"dtype\": \"U8\", \"shape\": [3], \"data_offsets\": [16, 19]},"
        "\"vision_tower.none\": {\"dtype\": \"BF16\", \"shape\": [0, 4], \"data_offsets\": [19, 19]},"
        "\"vision_tower.count\": {\"dtype\": \"I64\", \"shape\": [], \"data_offsets\": [19, 27]}";
    char *golden = path_of(QUIRE_TEST_DATA, "golden/gqa");
    temp_folder_make(model);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) temp_folder_copy(model, golden, files[i]);
    temp_folder_write_safetensors(model, "vision.safetensors", part, "abcdefghijklmnopqrstuvwxyz01", 27);
    temp_folder_write_string(model, "model.safetensors.index.json",
                             "{\"weight_map\": {\"a\": \"model-00001-of-00003.safetensors\", \"b\": "
                             "\"model-00002-of-00003.safetensors\", \"c\": \"model-00003-of-00003.safetensors\", "
                             "\"d\": \"vision.safetensors\"}}");
    temp_folder_write_string(model, "tokenizer_config.json", "{\"a\": 1e-05}\n");
    temp_folder_write_string(model, "README.md", "");
    temp_folder_write_string(model, "pytorch_model.bin", "old");
    temp_folder_write_string(model, ".gitattributes", "hidden");
    temp_folder_add_folder(model, "additional_chat_templates");
    temp_folder_write_string(model, "additional_chat_templates/tools.jinja", "{{ 1 }}");
    free(golden);
}

static void assert_same_file(const char *a_folder, const char *b_folder, const char *name)
{
    char *a = path_of(a_folder, name), *b = path_of(b_folder, name);
    struct text of_a = {0}, of_b = {0};
    struct error err;
    must(file_read(a, &of_a, &err), &err);
    must(file_read(b, &of_b, &err), &err);
    if (of_a.length != of_b.length || memcmp(of_a.data, of_b.data, of_a.length) != 0)
        fail_msg("%s differs in %s and %s", name, a_folder, b_folder);
    text_free(&of_a);
    text_free(&of_b);
    free(a);
    free(b);
}

static int count_entries(const char *folder)
{
    int count = 0;
    DIR *entries = opendir(folder);
    assert_non_null(entries);
    while (readdir(entries)) count++;
    closedir(entries);
    return count - 2; /* . and .. */
}

/* Every tensor that is no quantized matrix is as it was; of those there are `quantized`. */
static void assert_same_tensors(const char *model, const char *output, int quantized)
{
    struct tensor_file *before, *after;
    struct error err;
    int changed = 0;
    must(tensor_file_open(model, &before, &err), &err);
    must(tensor_file_open(output, &after, &err), &err);
    for (int64_t i = 0; i < tensor_file_count(before); i++) {
        const struct stored_tensor *a = tensor_file_at(before, i), *b = tensor_file_find(after, a->name);
        const bool same = b && b->type == a->type && b->num_dims == a->num_dims && b->bytes == a->bytes &&
                          memcmp(a->shape, b->shape, sizeof a->shape) == 0 && memcmp(a->data, b->data, a->bytes) == 0;
        const bool is_matrix = strstr(a->name, "_proj.weight") && !strstr(a->name, "vision");
        if (same == is_matrix) fail_msg("%s", a->name);
        changed += is_matrix;
    }
    assert_int_equal(changed, quantized);
    tensor_file_close(before);
    tensor_file_close(after);
}

static void test_the_rest(void **state)
{
    (void)state;
    struct temp_folder model, output;
    make_model(&model);
    temp_folder_make(&output);
    quantize(model.path, output.path, "int4", "0.00005", 0, "14 matrices to int4");
    assert_same_tensors(model.path, output.path, 14);
    assert_same_answers(model.path, "int4", output.path);
    assert_same_file(model.path, output.path, "tokenizer_config.json");
    assert_same_file(model.path, output.path, "README.md");
    assert_same_file(model.path, output.path, "additional_chat_templates/tools.jinja");
    /* config.json, the index, what the run was, the three above, and the files of weights that the index names */
    char *index = path_of(output.path, "model.safetensors.index.json");
    json_t *json;
    struct error err;
    must(json_object_read(index, &json, &err), &err);
    const char *last = json_string_value(json_object_get(json_object_get(json, "weight_map"), "vision_tower.odd"));
    assert_non_null(last);
    assert_int_equal(count_entries(output.path), 6 + atoi(last + strlen("model-00000-of-")));
    json_decref(json);
    free(index);
    temp_folder_remove(&model);
    temp_folder_remove(&output);
}

static json_t *config_of(const char *folder)
{
    char *path = path_of(folder, "config.json");
    json_t *json;
    struct error err;
    must(json_object_read(path, &json, &err), &err);
    free(path);
    return json;
}

/* Each expert's matrices have the names of the checkpoint, and the router stays as it is. */
static void test_experts(void **state)
{
    (void)state;
    enum { LAYERS = 2, EXPERTS = 8, ATTENTION = 4, OF_AN_EXPERT = 3 };
    struct temp_folder output;
    char *model = path_of(QUIRE_TEST_DATA, "golden/qwen3_moe");
    temp_folder_make(&output);
    quantize(model, output.path, "fp8", "5", 0, "quire quantize: 56 matrices to fp8");
    assert_same_tensors(model, output.path, LAYERS * (ATTENTION + EXPERTS * OF_AN_EXPERT));
    temp_folder_remove(&output);
    free(model);
}

/* The tokens that quire generates after the prompt with activations in floats. */
static json_t *tokens_of(const char *folder, const json_t *prompt)
{
    struct program p;
    json_t *line = json_pack("{s:O}", "prompt", prompt);
    char *text = json_dumps(line, JSON_COMPACT);
    program_run(&p,
                (const char *[]){QUIRE_EXECUTABLE, "generate", "--model", folder, "--device", "cpu", "--cpu-isa",
                                 "scalar", "--dtype", "float32", "--temperature", "0", "--skip-tokenizer-init",
                                 "--return-token-ids", "--ignore-eos", "--max-tokens", "32", NULL},
                text);
    if (p.exit_status != 0) fail_msg("%s: %s", folder, p.err.data);
    json_t *answer = json_loads(p.out.data, 0, NULL);
    json_t *tokens = json_incref(json_object_get(answer, "token_ids"));
    assert_int_equal(json_array_size(tokens), 32);
    json_decref(answer);
    json_decref(line);
    program_free(&p);
    free(text);
    return tokens;
}

/* What compressed-tensors decompresses of the folder computes the same text in transformers, which reads experts of one
 * scheme, in words and without zero points; and quire answers as it does with --quantization. */
static void test_transformers(void **state)
{
    (void)state;
    static const char *const models[] = {"qwen3_moe", "mixtral"};
    for (int i = 0; i < 2; i++) {
        char model[MAX_PATH];
        struct error err;
        json_t *golden, *expected;
        const char *format;
        snprintf(model, sizeof model, "%s/quantize/%s", QUIRE_TEST_DATA, models[i]);
        char *path = path_of(model, "golden.json");
        must(json_object_read(path, &golden, &err), &err);
        json_object_foreach(json_object_get(golden, "tokens"), format, expected)
        {
            struct temp_folder output;
            temp_folder_make(&output);
            quantize(model, output.path, format, "5", 0, "13 matrices to");
            json_t *tokens = tokens_of(output.path, json_object_get(golden, "prompt"));
            if (!json_equal(tokens, expected)) fail_msg("%s, %s: other tokens", model, format);
            assert_same_answers(model, format, output.path);
            temp_folder_remove(&output);
            json_decref(tokens);
        }
        json_decref(golden);
        free(path);
    }
}

/* Experts that lie in one tensor of a layer, transposed, become a tensor each, as llm-compressor names them. */
static void test_cut_experts(void **state)
{
    (void)state;
    enum { OF_ATTENTION = 2 * 4, OF_A_DENSE_LAYER = 3, OF_EXPERTS = 6 * 3 };
    static const char prefix[] = "model.language_model.layers.1.mlp.experts";
    struct temp_folder output;
    struct tensor_file *file;
    struct error err;
    char *model = path_of(QUIRE_TEST_DATA, "golden/qwen3_vl_moe"), name[96];
    temp_folder_make(&output);
    quantize(model, output.path, "int8", "5", 0,
             "are written a tensor for each, as vLLM reads them; transformers does");
    must(tensor_file_open(output.path, &file, &err), &err);
    snprintf(name, sizeof name, "%s.5.up_proj.weight_packed", prefix);
    assert_non_null(tensor_file_find(file, name));
    snprintf(name, sizeof name, "%s.6.up_proj.weight_packed", prefix);
    assert_null(tensor_file_find(file, name));
    snprintf(name, sizeof name, "%s.gate_up_proj", prefix);
    assert_null(tensor_file_find(file, name));
    int quantized = 0;
    for (int64_t i = 0; i < tensor_file_count(file); i++)
        quantized += strstr(tensor_file_at(file, i)->name, ".weight_scale") != NULL;
    assert_int_equal(quantized, OF_ATTENTION + OF_A_DENSE_LAYER + OF_EXPERTS);
    tensor_file_close(file);
    temp_folder_remove(&output);
    free(model);
}

#define EXPERT "model.layers.0.mlp.experts.2.down_proj."

/* Experts have the first group, one for all of their matrices, and scales of the model's type. */
static void test_config_of_experts(void **state)
{
    (void)state;
    static const struct {
        const char *format, *config, *data;
    } expected[] = {
        {"int8",
         "{\"quant_method\": \"compressed-tensors\", \"quantization_status\": \"compressed\", \"format\": "
         "\"mixed-precision\", \"config_groups\": {\"group_0\": {\"targets\": [\"re:.*\\\\bexperts\\\\b\"], "
         "\"weights\": "
         "{\"type\": \"int\", \"num_bits\": 8, \"symmetric\": true, \"strategy\": \"channel\", \"group_size\": null, "
         "\"dynamic\": false}, \"input_activations\": null, \"output_activations\": null, \"format\": "
         "\"pack-quantized\"}, \"group_1\": {\"targets\": [\"Linear\"], \"weights\": {\"type\": \"int\", \"num_bits\": "
         "8, "
         "\"symmetric\": true, \"strategy\": \"channel\", \"group_size\": null, \"dynamic\": false}, "
         "\"input_activations\": {\"type\": \"int\", \"num_bits\": 8, \"symmetric\": true, \"strategy\": \"token\", "
         "\"group_size\": null, \"dynamic\": true}, \"output_activations\": null, \"format\": \"int-quantized\"}}, "
         "\"ignore\": [\"re:.*\\\\bgate\\\\b\", \"lm_head\", \"re:.*\\\\brouter\\\\b\"]}",
         "I32 [64, 8]"},
        {"int4",
         "{\"quant_method\": \"compressed-tensors\", \"quantization_status\": \"compressed\", \"format\": "
         "\"pack-quantized\", \"config_groups\": {\"group_0\": {\"targets\": [\"re:.*\\\\bexperts\\\\b\"], "
         "\"weights\": "
         "{\"type\": \"int\", \"num_bits\": 4, \"symmetric\": true, \"strategy\": \"group\", \"group_size\": 32, "
         "\"dynamic\": false}, \"input_activations\": null, \"output_activations\": null, \"format\": "
         "\"pack-quantized\"}, \"group_1\": {\"targets\": [\"Linear\"], \"weights\": {\"type\": \"int\", \"num_bits\": "
         "4, "
         "\"symmetric\": false, \"strategy\": \"group\", \"group_size\": 64, \"dynamic\": false}",
         "I32 [64, 4]"}};
    char *model = path_of(QUIRE_TEST_DATA, "quantize/qwen3_moe");
    for (int i = 0; i < 2; i++) {
        struct temp_folder output;
        struct text text = {0};
        struct tensor_file *file;
        struct error err;
        char found[64];
        temp_folder_make(&output);
        quantize(model, output.path, expected[i].format, "5", 0, NULL);
        json_t *config = config_of(output.path);
        assert_true(json_append(&text, json_object_get(config, "quantization_config"), 0));
        if (strncmp(text.data, expected[i].config, strlen(expected[i].config)) != 0) fail_msg("%s", text.data);
        must(tensor_file_open(output.path, &file, &err), &err);
        const struct stored_tensor *data = tensor_file_find(file, EXPERT "weight_packed");
        snprintf(found, sizeof found, "%s [%lld, %lld]", data->type->name, (long long)data->shape[0],
                 (long long)data->shape[1]);
        assert_string_equal(found, expected[i].data);
        assert_int_equal(tensor_file_find(file, EXPERT "weight_scale")->type->dtype, DTYPE_BFLOAT16);
        assert_non_null(tensor_file_find(file, EXPERT "weight_shape"));
        assert_null(tensor_file_find(file, EXPERT "weight_zero_point"));
        tensor_file_close(file);
        json_decref(config);
        text_free(&text);
        temp_folder_remove(&output);
    }
    free(model);
}

/* config.json is the model's with one more key: by its patterns, lm_head and the other part stay as they are, and
 * down_proj, with another number of input features, has other groups. */
static void test_config(void **state)
{
    (void)state;
    static const char groups[] =
        "{\"group_0\": {\"targets\": [\"Linear\"], \"weights\": {\"type\": \"int\", \"num_bits\": 4, \"symmetric\": "
        "false, \"strategy\": \"group\", \"group_size\": 64, \"dynamic\": false}, \"input_activations\": null, "
        "\"output_activations\": null, \"format\": \"pack-quantized\"}, \"group_1\": {\"targets\": "
        "[\"re:.*\\\\bdown_proj\\\\b\"], \"weights\": {\"type\": \"int\", \"num_bits\": 4, \"symmetric\": false, "
        "\"strategy\": \"group\", \"group_size\": 32, \"dynamic\": false}, \"input_activations\": null, "
        "\"output_activations\": null, \"format\": \"pack-quantized\"}}";
    struct temp_folder model, output;
    struct text text = {0};
    make_model(&model);
    temp_folder_make(&output);
    quantize(model.path, output.path, "int4", "5", 0, NULL);
    json_t *before = config_of(model.path), *after = config_of(output.path);
    const json_t *config = json_object_get(after, "quantization_config");
    assert_true(json_append(&text, json_object_get(config, "config_groups"), 0));
    assert_string_equal(text.data, groups);
    text_clear(&text);
    assert_true(json_append(&text, json_object_get(config, "ignore"), 0));
    assert_string_equal(text.data, "[\"re:.*\\\\bvision_tower\\\\b\", \"lm_head\"]");
    assert_string_equal(json_string_value(json_object_get(config, "format")), "pack-quantized");
    json_object_del(after, "quantization_config");
    assert_true(json_equal(before, after));
    json_decref(before);
    json_decref(after);
    text_free(&text);
    temp_folder_remove(&model);
    temp_folder_remove(&output);
}

/* ---- going on ---- */

/* A whole folder, and one that is killed again and again. */
struct pair {
    struct temp_folder whole, output;
};
static const char GUIDE_SHARD[] = "0.0003"; /* some dozens of files */

static int pair_set_up(void **state)
{
    struct pair *p = *state = malloc(sizeof *p);
    temp_folder_make(&p->whole);
    temp_folder_make(&p->output);
    quantize(QUIRE_GUIDE, p->whole.path, "int4", GUIDE_SHARD, 0, NULL);
    return 0;
}

static int pair_tear_down(void **state)
{
    struct pair *p = *state;
    temp_folder_remove(&p->whole);
    temp_folder_remove(&p->output);
    free(p);
    return 0;
}

static void assert_whole(const struct pair *p)
{
    DIR *entries = opendir(p->whole.path);
    assert_int_equal(count_entries(p->output.path), count_entries(p->whole.path));
    for (const struct dirent *e; (e = readdir(entries));)
        if (e->d_name[0] != '.') assert_same_file(p->whole.path, p->output.path, e->d_name);
    closedir(entries);
}

static pid_t start(const char *output, const char *format)
{
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid > 0) return pid;
    dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
    execl(QUIRE_EXECUTABLE, QUIRE_EXECUTABLE, "quantize", "--model", QUIRE_GUIDE, "--output", output, "--quantization",
          format, "--max-shard-size", GUIDE_SHARD, "--threads", "2", (char *)NULL);
    _exit(127);
}

/* Sends the signal once the folder has so many entries; returns how the process ended, as wait says it. */
static int end_at(const char *output, int entries, int signal_number)
{
    const pid_t pid = start(output, "int4");
    int status = 0;
    while (count_entries(output) < entries && waitpid(pid, &status, WNOHANG) == 0) usleep(200);
    kill(pid, signal_number);
    if (status == 0) waitpid(pid, &status, 0);
    return status;
}

static void test_kills(void **state)
{
    const struct pair *p = *state;
    static const int entries[] = {1, 2, 3, 7, 12, 13, 20};
    int kills = 0;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
        kills += WIFSIGNALED(end_at(p->output.path, entries[i], SIGKILL));
    print_message("%d kills\n", kills);
    quantize(QUIRE_GUIDE, p->output.path, "int4", GUIDE_SHARD, 0, NULL);
    assert_whole(p);
}

/* The path of that file of weights; the caller frees it. */
static char *shard_of(const char *folder, int number)
{
    char pattern[64], name[64];
    snprintf(pattern, sizeof pattern, "model-%05d-of-*.safetensors", number);
    assert_true(folder_find_entry(folder, pattern, name, sizeof name));
    return path_of(folder, name);
}

/* Files that are whole stay; torn ones, and those that are something else, are written again. */
static void test_what_is_kept(void **state)
{
    const struct pair *p = *state;
    struct stat before, after;
    quantize(QUIRE_GUIDE, p->output.path, "int4", GUIDE_SHARD, 0, NULL);
    char *kept = shard_of(p->output.path, 2), *torn = shard_of(p->output.path, 3), *gone = shard_of(p->output.path, 4);
    char *other = shard_of(p->output.path, 5);
    assert_int_equal(stat(kept, &before), 0);
    assert_int_equal(truncate(torn, 1000), 0);
    assert_int_equal(unlink(gone), 0);
    temp_folder_write_string(&p->output, strrchr(other, '/') + 1, "something else");
    temp_folder_write_string(&p->output, "model.safetensors.part", "what a kill left");
    temp_folder_delete(&p->output, "config.json");
    quantize(QUIRE_GUIDE, p->output.path, "int4", GUIDE_SHARD, 0, NULL);
    assert_int_equal(stat(kept, &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
    assert_whole(p);
    free(kept);
    free(torn);
    free(gone);
    free(other);
}

static void test_a_signal(void **state)
{
    const struct pair *p = *state;
    const int status = end_at(p->output.path, 5, SIGINT);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT);
    char *part = path_of(p->output.path, "model.safetensors.part");
    assert_false(file_exists(part));
    free(part);
    quantize(QUIRE_GUIDE, p->output.path, "int4", GUIDE_SHARD, 0, NULL);
    assert_whole(p);
}

/* A limit on the size of files stands for a disk that is full: it fails in the same call. */
static void test_a_full_disk(void **state)
{
    const struct pair *p = *state;
    struct program shell;
    char command[2 * MAX_PATH];
    snprintf(command, sizeof command,
             "ulimit -f 100; exec %s quantize --model %s --output %s --quantization int4 --max-shard-size %s",
             QUIRE_EXECUTABLE, QUIRE_GUIDE, p->output.path, GUIDE_SHARD);
    program_run(&shell, (const char *[]){"/bin/sh", "-c", command, NULL}, NULL);
    assert_int_equal(shell.exit_status, 1);
    assert_non_null(strstr(shell.err.data, ".safetensors: cannot write: File too large"));
    program_free(&shell);
    quantize(QUIRE_GUIDE, p->output.path, "int4", GUIDE_SHARD, 0, NULL);
    assert_whole(p);
}

/* ---- what is refused ---- */

static void test_other_folders(void **state)
{
    const struct pair *p = *state;
    struct temp_folder other;
    char *golden = path_of(QUIRE_TEST_DATA, "golden/gqa");
    quantize(golden, p->whole.path, "int4", GUIDE_SHARD, 1, "was begun from another checkpoint");
    quantize(QUIRE_GUIDE, p->whole.path, "int8", GUIDE_SHARD, 1, "was begun with another --quantization (\"int4\")");
    quantize(QUIRE_GUIDE, p->whole.path, "int4", "5", 1, "was begun with another --max-shard-size (0.0003");
    quantize(p->whole.path, p->output.path, "int4", "5", 1, "is quantized already (int4, groups of 128, compressed-t");
    quantize(p->whole.path, p->output.path, "fp8", "5", 1, "give the checkpoint of floats from which it was made");
    assert_int_equal(count_entries(p->output.path), 0);
    quantize(QUIRE_GUIDE, QUIRE_GUIDE, "int4", "5", 1, "is the model's own folder; name another one");
    temp_folder_make(&other);
    temp_folder_write_string(&other, "thesis.tex", "\\begin{document}");
    quantize(QUIRE_GUIDE, other.path, "int4", "5", 1, "is not empty, and it was not begun by quire quantize");
    assert_int_equal(count_entries(other.path), 1);
    char *file = path_of(other.path, "thesis.tex"), *below = path_of(other.path, "none/below");
    quantize(QUIRE_GUIDE, file, "int4", "5", 1, "cannot open the output");
    quantize(QUIRE_GUIDE, below, "int4", "5", 1, "cannot make the folder");
    free(file);
    free(below);
    free(golden);
    temp_folder_remove(&other);
}

static void test_a_second_run(void **state)
{
    const struct pair *p = *state;
    const int held = open(p->whole.path, O_RDONLY | O_DIRECTORY);
    assert_int_equal(flock(held, LOCK_EX), 0);
    quantize(QUIRE_GUIDE, p->whole.path, "int4", GUIDE_SHARD, 1, "another quire is writing the output");
    close(held);
}

/* A tensor of the model has a name that is wanted; a file is missing. Nothing is written. */
static void test_other_models(void **state)
{
    (void)state;
    static const char scale[] =
        "\"model.layers.0.mlp.up_proj.weight_scale\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}";
    struct temp_folder model, output;
    make_model(&model);
    temp_folder_make(&output);
    temp_folder_write_safetensors(&model, "vision.safetensors", scale, "abcd", 4);
    quantize(model.path, output.path, "fp8", "5", 1,
             "has the name that a part of the quantized \"model.layers.0.mlp.up");
    temp_folder_delete(&model, "vision.safetensors");
    quantize(model.path, output.path, "fp8", "5", 1, "weight_map names vision.safetensors, which is not there");
    assert_int_equal(count_entries(output.path), 0);
    temp_folder_remove(&model);
    temp_folder_remove(&output);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_answers),
        cmocka_unit_test(test_the_rest),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_transformers),
        cmocka_unit_test(test_cut_experts),
        cmocka_unit_test(test_config_of_experts),
        cmocka_unit_test(test_config),
        cmocka_unit_test_setup_teardown(test_kills, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_what_is_kept, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_a_signal, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_a_full_disk, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_other_folders, pair_set_up, pair_tear_down),
        cmocka_unit_test_setup_teardown(test_a_second_run, pair_set_up, pair_tear_down),
        cmocka_unit_test(test_other_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
