#include "runtime/inspect/inspection.h"

#include <math.h>

#include "base/json.h"
#include "model/kv_cache.h"
#include "model/quantization.h"
#include "runtime/options/command.h"
#include "runtime/profile/memory_report.h"

/* null where nothing is wrong */
static void set_error(json_t *json, const char *key, const struct error *err)
{
    json_put_string(json, key, err->text[0] ? command_sentence(err).text : NULL);
}

/* How many tensors the files hold in each type, by its name in safetensors. */
static json_t *stored_dtypes(const struct tensor_file *file)
{
    json_t *json = json_object();
    for (int64_t t = 0; file && t < tensor_file_count(file); t++) {
        const char *name = tensor_file_at(file, t)->type->name;
        json_put_integer(json, name, json_integer_value(json_object_get(json, name)) + 1);
    }
    return json;
}

static void set_checkpoint(json_t *json, const struct inspection *i)
{
    const struct model_config *config = i->info.config;
    json_put_string(json, "model", i->options->model);
    json_put_string(json, "model_type", config->model_type);
    json_object_set_new(json, "architectures", json_pack("[s]", config->architecture));
    json_put_integer(json, "num_parameters", i->num_parameters);
    json_put_integer(json, "num_embedding_parameters", i->num_embedding_parameters);
    json_put_integer(json, "num_active_parameters", i->num_active_parameters);
    json_put_integer(json, "token_bytes", i->token_bytes);
    json_object_set_new(json, "tie_word_embeddings", json_boolean(i->tied));
    json_put_string(json, "dtype", dtype_name(config->spec.dtype));
    const struct quantization_words quantization = quantization_words(&config->spec);
    json_put_string(json, "quantization", quantization.text[0] ? quantization.text : NULL);
    json_put_integer(json, "weights_bytes", i->info.weights->bytes);
    json_put_integer(json, "unquantized_weights_bytes", i->float_bytes);
    json_object_set_new(json, "stored_dtypes", stored_dtypes(i->info.weights->file));
    json_put_integer(json, "num_files", i->num_files);
    json_put_integer(json, "file_bytes", i->file_bytes);
    const char *other = model_spec_other_parts(&config->spec);
    json_put_string(json, "other_parts", *other ? other : NULL);
    json_put_integer(json, "other_tensors", i->info.weights->other_tensors);
    json_put_integer(json, "other_bytes", i->info.weights->other_bytes);
    json_put_integer(json, "num_nextn_predict_layers", config->spec.num_next_layers);
    json_put_integer(json, "mtp_tensors", i->info.weights->next_tensors);
    json_put_integer(json, "mtp_bytes", i->info.weights->next_bytes);
    json_put_integer(json, "num_draft_parameters", i->num_draft_parameters);
    json_put_integer(json, "draft_weights_bytes", i->info.draft_weights ? i->info.draft_weights->bytes : 0);
    set_error(json, "weights_error", &i->weights_error);
}

static void set_latent(json_t *json, const struct latent_spec *l)
{
    json_object_set_new(json, "q_lora_rank", l->q_rank > 0 ? json_integer(l->q_rank) : json_null());
    json_put_integer(json, "kv_lora_rank", l->rank);
    json_put_integer(json, "qk_nope_head_dim", l->nope);
    json_put_integer(json, "qk_rope_head_dim", l->rope);
    json_put_integer(json, "v_head_dim", l->v_head_size);
    json_put_integer(json, "rotary_dim", l->no_rotation ? 0 : l->rope);
    json_put_real(json, "scaling", (double)l->scale);
    json_object_set_new(json, "qkv_bias", json_boolean(l->bias));
    json_object_set_new(json, "o_bias", json_boolean(l->bias));
    if (l->query_scaling.length) json_put_integer(json, "floor_scale", l->query_scaling.length);
}

static void set_recurrent(json_t *json, const struct recurrent_spec *r)
{
    static const char *const kinds[] = {[RECURRENCE_DELTA] = "gated_delta_net",
                                        [RECURRENCE_DELTA_CHANNELS] = "gated_delta_net_by_channel",
                                        [RECURRENCE_SSD] = "mamba2",
                                        [RECURRENCE_FIXED] = "lightning_attention"};
    json_put_string(json, "recurrence", kinds[r->kind]);
    json_put_integer(json, "linear_num_key_heads", r->num_k_heads);
    json_put_integer(json, "linear_num_value_heads", r->num_v_heads);
    json_put_integer(json, "linear_key_head_dim", r->k_head_size);
    json_put_integer(json, "linear_value_head_dim", r->v_head_size);
    json_put_integer(json, "linear_conv_kernel_dim", r->conv_width);
}

/* As transformers 5 calls them; "hybrid": attention and a recurrent mixer beside it. */
static const char *layer_type(const struct layer_spec *l)
{
    if (l->recurrent_beside) return "hybrid";
    if (l->mixer == MIXER_RECURRENT) return "linear_attention";
    if (l->mixer == MIXER_CONV) return "conv";
    if (l->mixer == MIXER_NONE) return l->experts.router.num_experts > 0 ? "moe" : "mlp";
    if (l->attention.window) return "sliding_attention";
    return l->attention.chunk ? "chunked_attention" : "full_attention";
}

static json_t *layer_json(const struct layer_spec *l)
{
    json_t *json = json_object();
    json_put_string(json, "layer_type", layer_type(l));
    if (layer_is_recurrent(l)) set_recurrent(json, &l->recurrent);
    if (l->mixer == MIXER_CONV) json_put_integer(json, "conv_L_cache", l->conv.width);
    json_object_set_new(json, "sliding_window", l->attention.window ? json_integer(l->attention.window) : json_null());
    if (l->attention.chunk) json_put_integer(json, "attention_chunk_size", l->attention.chunk);
    if (l->attention.query_scaling.length) json_put_integer(json, "floor_scale", l->attention.query_scaling.length);
    json_object_set_new(json, "sinks", json_boolean(l->attention.sinks));
    json_put_integer(json, "rotary_dim", l->attention.rotary_dim);
    json_put_integer(json, "rope", l->attention.rope);
    json_put_real(json, "scaling", (double)l->attention.scale);
    json_object_set_new(json, "attn_logit_softcapping",
                        l->attention.soft_cap > 0 ? json_real((double)l->attention.soft_cap) : json_null());
    if (l->attention.v_head_size) json_put_integer(json, "v_head_dim", l->attention.v_head_size);
    if (l->mixer == MIXER_ATTENTION && l->attention.v_multiplier != 1)
        json_put_real(json, "attention_value_scale", (double)l->attention.v_multiplier);
    json_object_set_new(json, "qkv_bias", json_boolean(l->attention.qkv_bias));
    json_object_set_new(json, "o_bias", json_boolean(l->attention.o_bias));
    if (l->mixer == MIXER_LATENT) set_latent(json, &l->latent);
    json_object_set_new(json, "mlp_bias", json_boolean(l->mlp.bias));
    json_object_set_new(json, "clip_qkv", l->attention.clip > 0 ? json_real((double)l->attention.clip) : json_null());
    json_put_integer(json, "num_experts", l->experts.router.num_experts);
    json_put_integer(json, "num_experts_per_tok", l->experts.router.top_k);
    if (l->experts.latent_size > 0) json_put_integer(json, "moe_latent_size", l->experts.latent_size);
    json_put_string(json, "qk_norm", inspect_qk_norm(l->attention.qk_norm));
    json_object_set_new(json, "qk_norm_after_rotation", json_boolean(l->attention.norm_after_rotation));
    json_put_string(json, "norm_placement", inspect_norm_placement(l->norm_placement));
    json_put_string(json, "hidden_act", inspect_activation(l));
    json_put_real(json, "residual_multiplier", (double)l->residual_multiplier);
    return json;
}

/* layer_types has an entry for each layer; layer_kinds one for each different layer, with the numbers of its layers. */
static void set_layers(json_t *json, const struct model_spec *spec)
{
    json_t *types = json_array(), *kinds = json_array(), *numbers = json_array();
    for (int32_t i = 0; i < spec->num_layers; i++) {
        json_t *layer = layer_json(&spec->layers[i]);
        size_t k = 0;
        json_array_append(types, json_object_get(layer, "layer_type"));
        while (k < json_array_size(kinds) && !json_equal(json_array_get(kinds, k), layer)) k++;
        if (k == json_array_size(kinds)) {
            json_array_append(kinds, layer);
            json_array_append_new(numbers, json_array());
        }
        json_array_append_new(json_array_get(numbers, k), json_integer(i));
        json_decref(layer);
    }
    for (size_t k = 0; k < json_array_size(kinds); k++)
        json_object_set(json_array_get(kinds, k), "layers", json_array_get(numbers, k));
    json_decref(numbers);
    json_put_integer(json, "num_hidden_layers", spec->num_layers);
    json_object_set_new(json, "layer_types", types);
    json_object_set_new(json, "layer_kinds", kinds);
}

/* The ropes that "rope" of a layer kind counts from 0. */
static void set_ropes(json_t *json, const struct model_spec *spec)
{
    json_t *ropes = json_array();
    for (int32_t r = 0; r < spec->num_ropes; r++) {
        const struct rope_config *rope = &spec->ropes[r];
        json_t *out = json_object();
        json_put_string(out, "rope_type", rope_type_names[rope->type]);
        json_put_real(out, "rope_theta", rope->theta);
        if (inspect_rope_has_factor(rope)) json_put_real(out, "factor", rope->factor);
        if (inspect_rope_has_original(rope))
            json_put_integer(out, "original_max_position_embeddings", rope->original_max_position);
        json_array_append_new(ropes, out);
    }
    json_object_set_new(json, "ropes", ropes);
    json_object_set_new(json, "rope_interleaved", json_boolean(spec->rope_interleaved));
    json_object_set_new(json, "rope_reversed", json_boolean(spec->rope_reversed));
}

/* What is the same in all layers, or in none of them. */
static void set_arithmetic(json_t *json, const struct model_spec *spec)
{
    json_put_string(json, "norm_type", inspect_norm_type(spec->norm_type));
    json_put_real(json, "norm_eps", spec->norm_eps);
    json_object_set_new(json, "norm_gains", json_boolean(!spec->no_gains));
    json_put_real(json, "embedding_multiplier", spec->embedding_multiplier);
    json_put_real(json, "logits_multiplier", spec->logits_multiplier);
    json_object_set_new(json, "final_logit_softcapping",
                        spec->logits_soft_cap > 0 ? json_real(spec->logits_soft_cap) : json_null());
    json_put_string(json, "qkv_tensor", spec->names.qkv);
    json_put_string(json, "gate_up_tensor", spec->names.gate_up);
}

static void set_sizes(json_t *json, const struct inspection *i)
{
    const struct model_spec *spec = &i->info.config->spec;
    const struct layer_sizes largest = model_spec_largest(spec);
    const struct memory_profile *p = i->info.memory;
    json_put_integer(json, "hidden_size", spec->hidden_size);
    json_put_integer(json, "intermediate_size", largest.intermediate_size);
    json_put_integer(json, "moe_intermediate_size", largest.expert_size);
    json_put_integer(json, "num_experts", largest.num_experts);
    json_put_integer(json, "num_attention_heads", largest.num_heads);
    json_put_integer(json, "num_key_value_heads", largest.num_kv_heads);
    json_put_integer(json, "head_dim", largest.head_size);
    json_put_integer(json, "vocab_size", spec->vocab_size);
    json_put_integer(json, "max_position_embeddings", spec->max_position_embeddings);
    json_put_integer(json, "model_max_len", model_spec_max_length(spec));
    set_ropes(json, spec);
    set_arithmetic(json, spec);
    json_put_integer(json, "kv_bytes_per_token", kv_cache_token_bytes(spec, p->cache_dtype));
    json_put_integer(json, "state_bytes_per_sequence", p->slot_bytes);
}

static void set_tokenizer(json_t *json, const struct inspection *i)
{
    const int32_t bos = inspect_bos(i);
    int32_t eos[CONFIG_MAX_EOS];
    const int32_t num_eos = inspect_eos(i, eos);
    json_t *ids = json_array(), *texts = json_array();
    for (int32_t k = 0; k < num_eos; k++) {
        json_array_append_new(ids, json_integer(eos[k]));
        json_array_append_new(texts, json_string(inspect_token(i, eos[k]).text));
    }
    json_t *templates = json_array();
    for (size_t k = 0; k < i->tokenizer_config.num_templates; k++)
        json_array_append_new(templates, json_string(i->tokenizer_config.templates[k].name));
    json_put_string(json, "tokenizer", i->info.tokenizer ? tokenizer_file(i->info.tokenizer) : NULL);
    set_error(json, "tokenizer_error", &i->tokenizer_error);
    json_object_set_new(json, "tokenizer_size",
                        i->info.tokenizer ? json_integer(tokenizer_size(i->info.tokenizer)) : json_null());
    json_object_set_new(json, "bos_token_id", bos >= 0 ? json_integer(bos) : json_null());
    json_put_string(json, "bos_token", bos >= 0 ? inspect_token(i, bos).text : NULL);
    json_object_set_new(json, "eos_token_id", ids);
    json_object_set_new(json, "eos_token", texts);
    json_object_set_new(json, "chat_templates", templates);
    set_error(json, "chat_template_error", &i->template_error);
}

static void set_given(json_t *json, const char *key, double value)
{
    if (!isnan(value)) json_put_real(json, key, value);
}

/* null without the file; what the file does not give is left out. */
static void set_generation(json_t *json, const struct generation_config *g)
{
    json_t *out = g->present ? json_object() : json_null();
    if (g->do_sample_given) json_object_set_new(out, "do_sample", json_boolean(g->do_sample));
    set_given(out, "temperature", g->temperature);
    set_given(out, "top_p", g->top_p);
    set_given(out, "min_p", g->min_p);
    set_given(out, "repetition_penalty", g->repetition_penalty);
    if (g->top_k >= 0) json_put_integer(out, "top_k", g->top_k);
    if (g->max_new_tokens >= 0) json_put_integer(out, "max_new_tokens", g->max_new_tokens);
    json_object_set_new(json, "generation_config", out);
}

/* How many requests of each length run at once. */
static json_t *requests_json(const struct inspection *i)
{
    json_t *list = json_array();
    for (int32_t k = 0, tokens; (tokens = inspect_length(i, k)) > 0; k++) {
        json_t *entry = json_object();
        json_put_integer(entry, "num_tokens", tokens);
        json_put_integer(entry, "max_requests", memory_profile_requests(i->info.memory, i->info.limits, tokens));
        json_array_append_new(list, entry);
    }
    return list;
}

json_t *inspection_json(const struct inspection *i)
{
    json_t *json = json_object(), *memory = json_object();
    set_checkpoint(json, i);
    set_layers(json, &i->info.config->spec);
    set_sizes(json, i);
    set_tokenizer(json, i);
    set_generation(json, &i->info.config->generation);
    memory_report_add(memory, &i->info);
    json_put_string(memory, "device_description", i->info.device_description);
    json_object_set_new(memory, "requests_by_length", requests_json(i));
    json_object_set_new(memory, "fits", json_boolean(!i->memory_error.text[0]));
    set_error(memory, "error", &i->memory_error);
    json_object_set_new(json, "memory", memory);
    return json;
}
