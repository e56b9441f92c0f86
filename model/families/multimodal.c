/* Checkpoints of several modalities, used for their text. */
#include <string.h>

#include "base/words.h"
#include "model/families/families.h"

enum { VISION = 1, AUDIO = 2 };

/* By the model_type of the file: that of a text_config without one, and tie_word_embeddings where nobody gives it. */
static const struct kind {
    const char *model_types, *text_type;
    bool tied;
    int modalities;
} kinds[] = {
    {"aya_vision cohere2_vision", "cohere2", true, VISION},
    {"exaone4_5", "exaone4", false, VISION},
    {"gemma3", "gemma3_text", true, VISION},
    {"gemma4", "gemma4_text", true, VISION | AUDIO},
    {"glm4v", "glm4v_text", false, VISION},
    {"glm4v_moe", "glm4v_moe_text", false, VISION},
    {"granite4_vision", "granite4_vision_text", false, VISION},
    {"idefics3 llava llava_next llava_next_video smolvlm video_llava vipllava", "llama", false, VISION},
    {"internvl", "qwen2", true, VISION},
    {"llama4", "llama4_text", false, VISION},
    {"llava_onevision", "qwen2", false, VISION},
    {"mistral3", "mistral", true, VISION},
    {"qwen2_5_vl", "qwen2_5_vl_text", false, VISION},
    {"qwen2_vl", "qwen2_vl_text", false, VISION},
    {"qwen3_5", "qwen3_5_text", false, VISION},
    {"qwen3_5_moe", "qwen3_5_moe_text", false, VISION},
    {"qwen3_vl", "qwen3_vl_text", false, VISION},
    {"qwen3_vl_moe", "qwen3_vl_moe_text", false, VISION},
    {"step3p7", "step3p5", false, VISION},
};

static const struct kind *find_kind(const char *model_type)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (words_have(kinds[i].model_types, model_type)) return &kinds[i];
    return NULL;
}

static void set(json_t *text, const char *key, json_t *value)
{
    json_object_set_new(text, key, value);
}

static bool is_given(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value);
}

/* Replaces what the text_config says by what the outer file says, where this counts. */
static void add_outer(json_t *text, const json_t *file)
{
    static const char *const keys[] = {"tie_word_embeddings", "eos_token_id",       "bos_token_id",
                                       "quantization_config", "compression_config", "quantization"};
    if (is_given(file, "dtype") || is_given(file, "torch_dtype")) {
        json_object_del(text, "torch_dtype");
        json_object_set(text, "dtype", json_object_get(file, is_given(file, "dtype") ? "dtype" : "torch_dtype"));
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (is_given(file, keys[i])) json_object_set(text, keys[i], json_object_get(file, keys[i]));
}

struct multimodal multimodal_read(struct json_reader *r)
{
    struct multimodal out = {NULL};
    const struct kind *kind = find_kind(json_reader_string(r, "model_type", NULL));
    const json_t *nested = json_reader_get(r, "text_config");
    if (!kind) return out;
    if (nested && !json_is_map(nested)) json_reader_expected(r, "text_config", "an object", nested);
    out.is_nested = json_is_map(nested);
    out.has_vision = kind->modalities & VISION;
    out.has_audio = (kind->modalities & AUDIO) && json_reader_get(r, "audio_config"); /* null in some files */
    out.text = json_copy((json_t *)(out.is_nested ? nested : r->object));
    if (!out.text) {
        json_reader_fail(r, STATUS_OUT_OF_MEMORY, "out of host memory for the file");
        return out;
    }
    if (out.is_nested) add_outer(out.text, r->object);
    if (!out.is_nested || !is_given(out.text, "model_type")) set(out.text, "model_type", json_string(kind->text_type));
    /* as the first files of EXAONE 4.5 have it */
    if (json_is_word(json_object_get(out.text, "model_type"), "exaone4_5_text"))
        set(out.text, "model_type", json_string("exaone4"));
    if (!is_given(out.text, "tie_word_embeddings")) set(out.text, "tie_word_embeddings", json_boolean(kind->tied));
    json_object_del(out.text, "architectures"); /* of the whole, or of what the text part was made of */
    return out;
}

static void add_size(json_t *text, const char *key, int32_t size)
{
    if (size > 0 && !is_given(text, key)) set(text, key, json_integer(size));
}

void multimodal_add_sizes(const struct family *family, json_t *text)
{
    const struct config_sizes *s = &family->sizes;
    add_size(text, "hidden_size", s->hidden_size);
    add_size(text, "intermediate_size", s->intermediate_size);
    add_size(text, "num_hidden_layers", s->num_layers);
    add_size(text, "num_attention_heads", s->num_heads);
    add_size(text, "vocab_size", s->vocab_size);
}
