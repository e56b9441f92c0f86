/* The families that quire runs, a file each, or one for near relatives: how config.json of a family becomes a struct
 * model_spec.
 *
 * To add a family, write a file beside this one, name its struct here and in the table of families.c, both in
 * alphabetical order, and add a golden checkpoint (tests/scripts/make_golden.py). A family follows its modelling code
 * in transformers, defaults of absent keys included.
 */
#ifndef QUIRE_MODEL_FAMILIES_FAMILIES_H
#define QUIRE_MODEL_FAMILIES_FAMILIES_H

#include "base/json.h"
#include "model/model_spec.h"

/* What a text_config leaves out, because it is what the family's config class in transformers says: that of a file of
 * its own is always written. 0: none. */
struct config_sizes {
    int32_t hidden_size, intermediate_size, num_layers, num_heads, vocab_size;
};

struct family {
    const char *model_type, *architecture; /* of config.json: "llama", "LlamaForCausalLM" */
    bool is_head;        /* it drafts for another model (struct head_spec), whose model_type its files may have */
    bool is_llama_class; /* transformers computes it with Llama's class, so that its files name Llama's architecture */
    /* Fills what is this family's own: sizes, layers, multipliers, names. `spec` comes with Llama's names and OLMo 2's
     * for post norms, with one rope, and with everything else off. Ropes and dtype are read for all families alike,
     * after this. */
    void (*read)(struct json_reader *r, struct model_spec *spec);
    /* Turns a model's spec into that of the head that is its first next layer; NULL: quire computes none. Embedding and
     * lm_head are the target's, of which published files hold copies for the head. */
    void (*make_mtp)(struct json_reader *r, struct model_spec *spec);
    const char *num_next_layers_key; /* NULL: num_nextn_predict_layers */
    int32_t absent_num_next_layers;  /* where the file does not say */
    enum dtype dtype;                /* where the file gives none; 0: float32 */
    double rope_theta;               /* where the file gives none; 0: 10000 */
    double rope_local_theta;         /* theta of the second rope, of families with two */
    const struct rope_config *rope;  /* where the file has neither rope_scaling nor rope_parameters; NULL: plain */
    double partial_rotary_factor;    /* where the file gives none, of families that read this key; 0: 1 */
    const char *rope_theta_key, *partial_rotary_factor_key; /* what the family calls these keys; NULL: so */
    const char *rope_local_theta_key;                       /* NULL: rope_local_base_freq */
    int32_t original_max_position;                          /* where the file gives none; 0: max_position_embeddings */
    bool scales_queries;                                    /* the object of its rope has `llama_4_scaling_beta` */
    bool reads_alpha;   /* a rope of type "dynamic" may have `alpha`, and then a fixed theta */
    bool reads_mscale;  /* the object of longrope has what scales its table */
    bool longrope_only; /* its rope types are "default" and "longrope", of which "su" and "yarn" are old names */
    /* Keys known to change the arithmetic (known_keys.h), as words: those that read() honours, and those that change
     * nothing in this family. NULL: none. A file that gives another one of them is refused. */
    const char *reads, *ignores;
    struct config_sizes sizes; /* of families that are the text part of others */
};

extern const struct family family_afmoe, family_apertus, family_arcee, family_bamba, family_bloom, family_cohere,
    family_cohere2, family_cohere2_moe, family_cwm, family_dbrx, family_deepseek_v2, family_deepseek_v3, family_dots1,
    family_ernie4_5, family_ernie4_5_moe, family_exaone, family_exaone4, family_exaone_moe, family_falcon,
    family_falcon_h1, family_flex_olmo, family_gemma, family_gemma2, family_gemma3, family_gemma4, family_glm,
    family_glm4, family_glm4_moe, family_glm4_moe_lite, family_glm4v, family_glm4v_moe, family_gpt2, family_gpt_bigcode,
    family_gpt_neox, family_gpt_oss, family_gptj, family_granite, family_granite4, family_granite4_vision,
    family_granite_swa, family_granitemoe, family_granitemoe_swa, family_granitemoeshared, family_helium,
    family_hunyuan_v1_dense, family_hunyuan_v1_moe, family_hy_v3, family_hyperclovax, family_internlm3,
    family_iquestcoder, family_jais2, family_kimi_k2, family_kimi_linear, family_laguna, family_lfm2, family_lfm2_moe,
    family_llama, family_llama4, family_llama_eagle3, family_mellum, family_mimo, family_mimo_v2_flash, family_minicpm3,
    family_minimax, family_minimax_m1, family_minimax_m2, family_minimax_text_01, family_ministral, family_ministral3,
    family_mistral, family_mistral4, family_mixtral, family_mpt, family_nanochat, family_nemotron, family_nemotron_h,
    family_olmo, family_olmo2, family_olmo3, family_olmo_hybrid, family_olmoe, family_opt, family_persimmon, family_phi,
    family_phi3, family_phimoe, family_qwen2, family_qwen2_5_vl, family_qwen2_moe, family_qwen2_vl, family_qwen3,
    family_qwen3_5, family_qwen3_5_moe, family_qwen3_moe, family_qwen3_next, family_qwen3_vl, family_qwen3_vl_moe,
    family_seed_oss, family_smollm3, family_solar_open, family_stablelm, family_starcoder2, family_step3p5,
    family_vaultgemma, family_youtu;

/* The family that model_type names; without it, the one that architectures names. Fails if quire does not run it, or
 * if the two contradict each other; never NULL. */
const struct family *family_find(struct json_reader *r);

/* What quire lacks to run a model_type that transformers knows: "latent attention (MLA) and a mixture of experts".
 * Empty for other types. */
struct missing_parts {
    char text[192];
};
struct missing_parts family_missing_parts(const char *model_type);

/* Checkpoints of several modalities, of which quire runs the text: the config.json that the text part would have as a
 * checkpoint of its own, which is a new object; NULL: the file is no such checkpoint's. Its text_config counts, or the
 * file itself where older versions of transformers wrote it flat, and the outer file for ties, tokens, dtype and
 * quantization. */
struct multimodal {
    json_t *text;
    bool is_nested; /* text_config, and not flat */
    bool has_vision, has_audio;
};
struct multimodal multimodal_read(struct json_reader *r);
/* Adds the sizes that a text_config of this family leaves out. */
void multimodal_add_sizes(const struct family *family, json_t *text);

/* Fills *spec from config.json, which is of this family. */
void family_read_spec(struct json_reader *r, const struct family *family, struct model_spec *spec);

/* The same, and then turns it into the spec of the head that the file's next layers are. UNSUPPORTED: there is none. */
void family_read_mtp(struct json_reader *r, const struct family *family, struct model_spec *spec);

/* Parts of family_read_spec, the same for all families, after read(). The first fills spec->ropes, and narrows the
 * rotary_dim of layers that rotate if the family reads partial_rotary_factor. The second is for families that do not
 * read layer_types: it fails if these contradict the layers' windows. */
void family_read_rope(struct json_reader *r, const struct family *family, struct model_spec *spec);
void family_check_layer_types(struct json_reader *r, const struct model_spec *spec);

/* --- For the files of families --- */

/* What a family takes where config.json has no such key. */
struct size_defaults {
    int32_t max_position;
    int32_t num_kv_heads; /* 0: num_attention_heads */
    int32_t head_size;    /* 0: hidden_size / num_attention_heads */
    double norm_eps;      /* 0: 1e-6 */
    bool tie_word_embeddings;
    int32_t intermediate_factor; /* intermediate_size is this times hidden_size; 0: the file must give it */
    /* What the family calls num_hidden_layers, rms_norm_eps and others; NULL: so; "": it has no such key. */
    const char *num_layers_key, *norm_eps_key, *hidden_size_key, *intermediate_size_key, *num_heads_key,
        *num_kv_heads_key, *max_position_key;
    bool no_mlp;        /* family_read_llama does not read intermediate_size */
    int32_t num_layers; /* 0: the file must give it */
};

/* Reads the sizes of the model, and returns Llama's layer of these sizes: norms before attention and MLP, whole heads
 * rotated, scores scaled by 1 / sqrt(head_size), SiLU. */
struct layer_spec family_read_llama(struct json_reader *r, const struct size_defaults *defaults,
                                    struct model_spec *spec);
void family_set_layers(struct model_spec *spec, const struct layer_spec *layer); /* every layer alike */
/* LayerNorms with biases. */
void family_set_layer_norms(struct model_spec *spec);
/* What GPT-2 and GPT-J take, and what they call the keys: by their own names, or by those of other families. */
struct size_defaults family_gpt_sizes(struct json_reader *r);
/* The names that GPT-2, GPT-J and EXAONE share. */
void family_set_gpt_names(struct tensor_names *names);
/* The first of two names of a key that the file has; `other` if it has neither. */
const char *family_either_key(struct json_reader *r, const char *key, const char *other);
/* Fails unless the key is absent or of this value. `what` is said of the other: "norms after sublayers". */
void family_require_bool(struct json_reader *r, const char *key, bool expected, const char *what);

/* Checks the sizes of a recurrent layer, and sets what follows from them where it is 0: the scale, 1 / sqrt of
 * k_head_size, and a norm of each head with one gain for all. */
void family_finish_recurrent(struct json_reader *r, struct recurrent_spec *recurrent);
/* layer_types, or layers_block_type: layers of one of `words` are `other`, those of "full_attention" (in old files
 * "attention") `attention`. Where the key is absent, every full_every-th layer is `attention`. */
void family_set_mixed_layers(struct json_reader *r, const char *words, const struct layer_spec *attention,
                             const struct layer_spec *other, int32_t full_every, struct model_spec *spec);
/* Mamba 2 of these sizes and biases, whose norm has groups of norm_group_size; what all families share is added. */
struct recurrent_spec family_make_mamba2(struct json_reader *r, const struct recurrent_spec *sizes);
/* The same, of the keys mamba_n_heads and others. The norm is one of all elements, of which there are `size`; 0:
 * mamba_expand * hidden_size. */
struct recurrent_spec family_read_mamba2(struct json_reader *r, int32_t size, const struct model_spec *spec);
/* The names of Mamba 2 in a module. */
void family_set_mamba_names(struct tensor_names *names, const char *module);
/* The names of Bamba, of all modules. */
void family_set_bamba_names(struct tensor_names *names);
/* What a family takes where keys of latent attention are absent. v_head_size 0: hidden_size / num_attention_heads. */
struct latent_sizes {
    int32_t q_rank, rank, rope, nope, v_head_size;
};
/* As family_read_llama, but the layer has latent attention. Yarn's part of its scale is not in it yet. */
struct layer_spec family_read_latent(struct json_reader *r, const struct size_defaults *defaults,
                                     const struct latent_sizes *absent, struct model_spec *spec);
/* DeepSeek V3's and GLM's make_mtp: the layer behind the last one, with what makes its input. */
void family_make_deepseek_mtp(struct json_reader *r, struct model_spec *spec);

/* Makes a head (HEAD_MTP) of one layer, whose tensors are in the module `layers`.first_layer. */
void family_set_mtp(struct model_spec *spec, const struct layer_spec *layer, const char *layers, int32_t first_layer);

/* Every full_every-th layer attends to all tokens, the others to the last `window` ones. */
void family_set_windows(struct model_spec *spec, int32_t window, int32_t full_every);
/* The array of a key, with an element for each layer; after these may be those of layers that predict further tokens
 * (num_nextn_predict_layers), which quire does not use. NULL: there is none. `what` is said of the elements:
 * "strings". */
const json_t *family_get_layer_list(struct json_reader *r, const char *key, const char *what,
                                    const struct model_spec *spec);
/* layer_types: a layer of "sliding_attention" gets the window, one of "full_attention" none. Where the key is absent,
 * layers keep theirs. window 0: the model has none. */
void family_read_layer_types(struct json_reader *r, int32_t window, struct model_spec *spec);
/* no_rope_layers or no_rope_layer_interval: layers rotate where the first has a 1, in spite of its name; without it or
 * with an empty one all rotate but every so many-th, 4 where the file does not say. */
void family_read_rotating_layers(struct json_reader *r, struct model_spec *spec);
/* layer_types: a layer of "chunked_attention" attends to its own chunk of so many tokens, one of "full_attention" to
 * all. Where the key is absent, those have chunks that rotate. chunk 0: the file has null. */
void family_read_chunks(struct json_reader *r, int32_t chunk, struct model_spec *spec);
/* sliding_window; 0: none, which null stands for. */
int32_t family_read_window(struct json_reader *r, int32_t absent);
/* sliding_window, which is `absent` without the key, and layer_types of models that need a window, or
 * family_set_windows without layer_types. */
void family_read_windows(struct json_reader *r, int32_t absent, int32_t full_every, struct model_spec *spec);
/* The same, with 4096 for `absent`. */
void family_read_alternating_windows(struct json_reader *r, int32_t full_every, struct model_spec *spec);
/* Qwen's: use_sliding_window gives the layers from max_window_layers on a window (first_absent where the key is
 * absent), or those that layer_types names. */
void family_read_qwen_windows(struct json_reader *r, int32_t first_absent, struct model_spec *spec);

/* Layers without a window are rotated by the first of two ropes, layers with one by the second. */
void family_set_two_ropes(struct model_spec *spec);

/* Gemma's: gains are stored less 1, embeddings are multiplied by sqrt(hidden_size). */
void family_set_gemma(struct model_spec *spec);
/* What Gemma 2 and 3 share: all but layers and soft caps. Returns their layer, without soft cap, QK norm and window. */
struct layer_spec family_read_gemma2(struct json_reader *r, int32_t max_position, struct model_spec *spec);
/* All of OLMo 2's spec, which OLMo 3 extends. */
void family_read_olmo2(struct json_reader *r, struct model_spec *spec);
/* What a family calls the keys of its experts, and what it takes where they are absent. */
struct experts_keys {
    const char *num_experts[2];                            /* either of the two; the second may be NULL */
    const char *top_k;                                     /* NULL: num_experts_per_tok */
    const char *size;                                      /* of the intermediate size of an expert */
    int32_t absent_num_experts, absent_top_k, absent_size; /* 0: the file must have it */
};
/* Reads these; the router is a softmax over all experts, whose weights are used as they are. */
struct experts_spec family_read_experts(struct json_reader *r, const struct experts_keys *keys);
/* Reads these; the router takes sigmoids, with a bias for the choice, and normalizes weights. */
struct experts_spec family_read_sigmoid_experts(struct json_reader *r, const struct experts_keys *keys);
/* Reads these, with DeepSeek V3's router (DeepSeek-AI, 2024): sigmoids, a bias for the choice, and groups of which
 * those count whose two best experts have the largest sum. normalize: where the file does not say. */
struct experts_spec family_read_deepseek_experts(struct json_reader *r, const struct experts_keys *keys,
                                                 bool normalize);
/* n_group and topk_group, and what they are where they are absent. */
void family_read_expert_groups(struct json_reader *r, int32_t absent_groups, int32_t absent_top,
                               struct experts_spec *experts);
/* Gives a layer experts in place of its MLP, and an MLP of that size beside them; 0: none. */
void family_set_experts(struct model_spec *spec, int32_t layer, const struct experts_spec *experts,
                        int32_t shared_size);
/* Gives the layers from `first` on experts, and beside them an MLP as wide as `shared` of them. */
void family_set_deepseek_experts(struct model_spec *spec, const struct experts_spec *experts, int32_t first,
                                 int32_t shared);
/* Gives the layers that mlp_layer_types calls "sparse" experts; without it, those from `first` on. */
void family_set_listed_experts(struct json_reader *r, struct model_spec *spec, const struct experts_spec *experts,
                               int32_t first, int32_t shared_size);
/* Whether the key is an array of numbers of layers that has this one. */
bool family_list_has_layer(struct json_reader *r, const char *key, int32_t layer);
/* Qwen's: the layers that decoder_sparse_step and mlp_only_layers choose have experts. */
void family_set_qwen_experts(struct json_reader *r, struct model_spec *spec, const struct experts_spec *experts,
                             int32_t shared_size);
/* rotary_dim: how many elements of a head are rotated, as files of MiniMax have it. */
void family_read_rotary_dim(struct json_reader *r, struct attention_spec *attention);
/* Mixtral's names of experts. */
void family_set_mixtral_names(struct model_spec *spec);
/* Granite's: sets their names, too, and those of the MLP beside them. */
struct experts_spec family_read_granite_experts(struct json_reader *r, struct model_spec *spec);
/* Granite's, of layers that are set: scales of attention, residuals, embeddings and logits. */
void family_read_granite_multipliers(struct json_reader *r, struct model_spec *spec);

/* A soft cap; null turns it off. */
float family_read_soft_cap(struct json_reader *r, const char *key, double absent);
/* Fails unless hidden_act is absent or the one that the family's layers compute. */
void family_check_activation(struct json_reader *r, const char *expected);
enum activation family_read_activation(struct json_reader *r, const char *key, enum activation absent);
/* The activation of an MLP without a gate. */
enum activation family_read_plain_activation(struct json_reader *r, const char *key, enum activation absent);

#endif
