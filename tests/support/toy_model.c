#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "tests/support/toy_model.h"

#include "base/file.h"
#include "tokenizer/tokenizer.h"

static void write_tokenizer_config(const struct temp_folder *folder, const char *guide, bool chat)
{
    char path[4096];
    json_error_t why;
    assert_true(path_join(path, sizeof path, guide, "tokenizer_config.json"));
    json_t *config = json_load_file(path, 0, &why);
    if (!config) fail_msg("%s: %s", path, why.text);
    if (!chat) json_object_del(config, "chat_template");
    char *text = json_dumps(config, JSON_INDENT(2));
    assert_non_null(text);
    temp_folder_write_string(folder, "tokenizer_config.json", text);
    free(text);
    json_decref(config);
}

static const char LLAMA[] = "\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\",";
static const char RECURRENT[] =
    "\"architectures\": [\"Qwen3_5ForCausalLM\"], \"model_type\": \"qwen3_5_text\",\n"
    " \"layer_types\": [\"linear_attention\", \"full_attention\"], \"linear_conv_kernel_dim\": 4,\n"
    " \"linear_key_head_dim\": 16, \"linear_value_head_dim\": 16, \"linear_num_key_heads\": 2,\n"
    " \"linear_num_value_heads\": 4, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000.0,\n"
    "  \"partial_rotary_factor\": 0.5},";

static void write_config(const struct temp_folder *folder, const char *kind, const struct tokenizer *tokenizer)
{
    char config[2048];
    snprintf(config, sizeof config,
             "{%s \"hidden_size\": 64,\n"
             " \"intermediate_size\": 96, \"num_hidden_layers\": 2, \"num_attention_heads\": 4,\n"
             " \"num_key_value_heads\": 2, \"head_dim\": 16, \"vocab_size\": %d, \"max_position_embeddings\": %d,\n"
             " \"rms_norm_eps\": 1e-5, \"rope_theta\": 10000.0, \"hidden_act\": \"silu\",\n"
             " \"tie_word_embeddings\": true, \"torch_dtype\": \"float32\", \"bos_token_id\": %d,\n"
             " \"eos_token_id\": %d}\n",
             kind, tokenizer_size(tokenizer), TOY_MODEL_LENGTH, tokenizer_bos_id(tokenizer),
             tokenizer_eos_id(tokenizer));
    temp_folder_write_string(folder, "config.json", config);
}

static void make(struct temp_folder *folder, const char *guide, const char *kind, bool chat)
{
    temp_folder_make(folder);
    temp_folder_copy(folder, guide, "tokenizer.model");
    write_tokenizer_config(folder, guide, chat);
    struct tokenizer *tokenizer = NULL;
    struct error err = {""};
    if (tokenizer_open(folder->path, &tokenizer, &err) != STATUS_OK) fail_msg("%s", err.text);
    write_config(folder, kind, tokenizer);
    tokenizer_close(tokenizer);
}

void toy_model_make(struct temp_folder *folder, const char *guide, bool chat)
{
    make(folder, guide, LLAMA, chat);
}

void toy_model_make_recurrent(struct temp_folder *folder, const char *guide)
{
    make(folder, guide, RECURRENT, true);
}
