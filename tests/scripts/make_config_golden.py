#!/usr/bin/env python3
"""Makes tests/data/config_golden.json: what transformers computes from each file in tests/data/configs, and from files
with hardly any keys.

    python3 tests/scripts/make_config_golden.py       (needs torch and transformers)

Each file is the config.json of a well-known checkpoint; only longrope's short_factor and long_factor hold numbers that
are made up. Files with hardly any keys show what transformers takes for absent ones. The model is built without memory for
its weights, and what is written is what its modules are, not what its config says:

    {"name", "config" (unless it is a file), sizes, "norm_eps", "tied", "activation", "multipliers", "windows" and "rotary_dims" and "ropes": [layers],
     "scale", "soft_cap", "logits_soft_cap", "frequencies": [ropes][rotary_dim / 2], "rope_scale": [ropes],
     "num_tensors", "tensors": {name: shape} of no layer, of the first and of the last,
     "experts": [layers] of [experts, experts of a token, size of one, size of the MLP beside them or in their place]}

Of models with experts "experts" are the MLPs, and their tensors, which transformers has under other names than files,
are not among the others; other models have no such key.

A file of a family that transformers does not have is built as the Llama or Qwen2 that it is (llama_names.py). The
frequencies of dynamic ropes are those of the longest context.

A window of 0 and a rotary_dim of 0 mean none. The shape of a scalar is [1].
"""

import copy
import json
import pathlib
import re
import sys
import tempfile

import torch
import transformers
import llama_names

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"


# Keys that a family cannot do without.
SIZES = dict(hidden_size=2048, intermediate_size=96, num_hidden_layers=8, num_attention_heads=32, vocab_size=300000)
NEEDED = {
    "exaone": dict(num_layers=8),
    "granitemoehybrid": dict(num_local_experts=0, layer_types=["attention"] * 8),
    "helium": dict(hidden_size=2560, num_attention_heads=20),
    "hunyuan_v1_dense": dict(head_dim=64),
    "ministral": dict(head_dim=64),
    "nemotron": dict(num_key_value_heads=32),
    "opt": dict(ffn_dim=96),
    "stablelm": dict(num_attention_heads=64),
}
FAMILIES = ("apertus arcee bloom cohere cohere2 cwm ernie4_5 exaone exaone4 falcon gemma gemma2 gemma3_text gemma4_text "
            "glm glm4 gpt2 gpt_bigcode gpt_neox gptj granite granite_swa granitemoehybrid helium hunyuan_v1_dense "
            "hyperclovax internlm3 iquestcoder jais2 llama mimo ministral mistral mpt nanochat nemotron olmo olmo2 olmo3 opt "
            "persimmon phi phi3 qwen2 qwen3 seed_oss smollm3 stablelm starcoder2 vaultgemma").split()

FULL, SLIDING = "full_attention", "sliding_attention"
LINEAR = dict(rope_type="linear", factor=8.0)
MULTIPLIERS = dict(attention_multiplier=0.015625, embedding_multiplier=12.0, residual_multiplier=0.22, logits_scaling=8.0)

# Further keys: biases, multipliers, null, empty objects, and combinations that no published file has.
FURTHER = (
    ("apertus", dict(attention_bias=True)),
    ("apertus", dict(rope_parameters={})),
    ("apertus", dict(rope_scaling={}, rope_theta=500.0)),
    ("arcee", dict(attention_bias=True, mlp_bias=True)),
    ("cohere", dict(attention_bias=True, layer_norm_eps=0.01)),
    ("cohere2", dict(sliding_window=24, sliding_window_pattern=3)),
    ("cohere2", dict(sliding_window=24, layer_types=[FULL, SLIDING] * 4)),
    ("cwm", dict(mlp_bias=True, sliding_window=24, layer_types=[FULL, SLIDING] * 4, rope_theta=500.0)),
    ("ernie4_5", dict(use_bias=True)),
    ("ernie4_5", dict(head_dim=None, num_key_value_heads=None)),
    ("exaone", dict(num_key_value_heads=None, layer_norm_epsilon=0.01, tie_word_embeddings=False)),
    ("exaone4", dict(sliding_window=None, layer_types=[FULL] * 8)),
    ("exaone4", dict(sliding_window=24, sliding_window_pattern=3, use_sliding_window=False)),
    ("falcon", dict(new_decoder_architecture=True, num_kv_heads=8, activation="gelu_new")),
    ("falcon", dict(new_decoder_architecture=True, num_ln_in_parallel_attn=1, tie_word_embeddings=False)),
    ("gemma", dict(attention_bias=True, hidden_act="gelu")),
    ("gemma2", dict(attn_logit_softcapping=None, final_logit_softcapping=None, use_sliding_window=True)),
    ("gemma2", dict(hidden_activation="silu", query_pre_attn_scalar=144, layer_types=[FULL, SLIDING] * 4)),
    ("gemma3_text", dict(final_logit_softcapping=9.0, layer_types=[FULL, SLIDING] * 4)),
    ("gemma3_text", dict(rope_scaling={}, rope_parameters=dict(full_attention=LINEAR))),
    ("gemma3_text", dict(rope_scaling=dict(factor=4.0), sliding_window_pattern=3,
                         rope_parameters=dict(full_attention=LINEAR))),
    ("gemma4_text", dict(attention_k_eq_v=True, num_global_key_value_heads=2, hidden_size_per_layer_input=0,
                         final_logit_softcapping=30.0, use_bidirectional_attention="vision")),
    ("gemma4_text", dict(num_kv_shared_layers=2, use_double_wide_mlp=True, global_head_dim=128, attention_bias=True,
                         layer_types=[SLIDING, FULL] * 4)),
    ("glm", dict(partial_rotary_factor=0.25, rope_parameters=dict(rope_type="default", rope_theta=500.0))),
    ("glm4", dict(attention_bias=False, partial_rotary_factor=0.25,
                  rope_parameters=dict(rope_type="default", partial_rotary_factor=0.75))),
    ("gpt2", dict(n_embd=1024, n_layer=3, n_head=16, n_positions=64, n_inner=80, activation_function="relu")),
    ("gpt2", dict(scale_attn_weights=False)),
    ("gpt_neox", dict(rotary_pct=0.5, rotary_emb_base=500.0, attention_bias=False, use_parallel_residual=False)),
    ("gpt_neox", dict(rope_scaling=dict(type="linear", factor=2.0), hidden_act="gelu_fast")),
    ("gptj", dict(rotary_dim=32, n_inner=80)),
    ("granite", dict(attention_bias=True, mlp_bias=True, **MULTIPLIERS)),
    ("granite_swa", dict(attention_bias=True, mlp_bias=True, sliding_window=24, layer_types=[FULL, SLIDING] * 4,
                         layer_rope_theta=[0, 500.0, 0, 1e6] * 2, rope_scaling=LINEAR, **MULTIPLIERS)),
    ("granitemoehybrid", dict(attention_bias=True, position_embedding_type="rope", shared_intermediate_size=80,
                              **MULTIPLIERS)),
    ("helium", dict(attention_bias=True, mlp_bias=True)),
    ("hunyuan_v1_dense", dict(attention_bias=True, head_dim=128, use_qk_norm=True, rope_theta=500.0, rope_scaling=dict(
        alpha=1000.0, beta_fast=32, beta_slow=1, factor=1.0, mscale=1.0, mscale_all_dim=1.0, type="dynamic"))),
    ("hunyuan_v1_dense", dict(rope_scaling=dict(factor=2.0, type="dynamic"))),
    ("hyperclovax", dict(attention_bias=True, mlp_bias=True, use_post_norm=False, **MULTIPLIERS)),
    ("hyperclovax", dict(attention_multiplier=None, head_dim=128, rope_theta=1e8)),
    ("internlm3", dict(qkv_bias=True, bias=True, head_dim=128)),
    ("iquestcoder", dict(attention_bias=True, mlp_bias=True, head_dim=None)),
    ("jais2", dict(attention_bias=False, mlp_bias=False, num_key_value_heads=8)),
    ("llama", dict(attention_bias=True, mlp_bias=True)),
    ("ministral", dict(sliding_window=24, use_sliding_window=True, layer_types=[SLIDING, FULL] * 4)),
    ("ministral", dict(sliding_window=None)),
    ("mistral", dict(sliding_window=None)),
    ("mistral", dict(head_dim=64, sliding_window=24, layer_types=[SLIDING, FULL] * 4)),
    ("mistral", dict(head_dim=64, sliding_window=24, layer_types=None)),
    ("mistral", dict(head_dim=64, layer_types=[FULL] * 8, architectures=["MistralForCausalLM"])),
    ("mpt", dict(attn_config=dict(softmax_scale=0.25), max_seq_len=65536)),
    ("nanochat", dict(attention_bias=True, final_logit_softcapping=None, rope_theta=500.0)),
    ("nemotron", dict(attention_bias=True, mlp_bias=True, partial_rotary_factor=0.25, head_dim=128)),
    ("olmo", dict(attention_bias=True, clip_qkv=8.0, rope_theta=500.0)),
    ("olmo2", dict(attention_bias=True)),
    ("olmo3", dict(rope_theta=500.0, rope_scaling=LINEAR)),
    ("opt", dict(enable_bias=False, activation_function="gelu", word_embed_proj_dim=2048)),
    ("persimmon", dict(qk_layernorm=False, rope_theta=25000.0)),
    ("phi", dict(qk_layernorm=True, num_key_value_heads=8, partial_rotary_factor=0.25)),
    ("phi3", dict(attention_bias=True, sliding_window=24, partial_rotary_factor=0.5)),
    ("qwen2", dict(attention_bias=False, use_sliding_window=True, sliding_window=24, max_window_layers=5)),
    ("qwen3", dict(attention_bias=True, use_sliding_window=True, max_window_layers=5, head_dim=64)),
    ("seed_oss", dict(attention_bias=False, attention_out_bias=True, mlp_bias=True, head_dim=64)),
    ("seed_oss", dict(head_dim=None, num_key_value_heads=None)),
    ("smollm3", dict(use_sliding_window=True, sliding_window=24, no_rope_layer_interval=3)),
    ("stablelm", dict(use_qkv_bias=True, use_parallel_residual=True, hidden_act="gelu")),
    ("starcoder2", dict(use_bias=False, sliding_window=24, hidden_act="relu")),
    ("smollm3", dict(mlp_bias=True, num_key_value_heads=None, no_rope_layers=[0, 1, 1, 0, 1, 1, 0, 1])),
)


def build(path):
    config = json.loads(path.read_text())
    family = config["model_type"] if config["model_type"] in llama_names.FAMILIES else None
    if family:
        llama = llama_names.llama_config_of(config)
        config = transformers.CONFIG_MAPPING[llama["model_type"]](**llama)
    else:
        config = transformers.AutoConfig.from_pretrained(path)
    with torch.device("meta"):
        if config.model_type == "step3p5":
            model = text_of_step3p7(config)
        else:
            model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    return config, model, family


def text_of_step3p7(config):
    """transformers has no causal language model of this text alone."""
    outer = transformers.Step3p7Config(text_config=config.to_dict())
    model = transformers.Step3p7ForConditionalGeneration._from_config(outer, attn_implementation="eager")
    model.model, model.config = model.model.language_model, config
    return model


def first_of(module, *names):
    """The first of these attributes that there is."""
    return next(getattr(module, name) for name in names if getattr(module, name, None) is not None)


def base_of(model):
    base = model.base_model
    return getattr(base, "decoder", base)


def blocks_of(model):
    return first_of(base_of(model), "layers", "h", "blocks")


def attention_of(layer):
    return first_of(layer, "self_attn", "attention", "attn", "self_attention")


def window_of(config, attention):
    if config.model_type in ("mistral", "phi3", "phimoe", "starcoder2"):  # their attention asks the config
        return config.sliding_window or 0
    if config.model_type == "exaone4" and not attention.is_sliding:
        return 0
    return getattr(attention, "sliding_window", None) or 0


def rope_of(config, i):
    """What stands for the rope of a layer: its theta, or its type."""
    return config.layer_rope_theta[i] if hasattr(config, "layer_rope_theta") else config.layer_types[i]


def rotates(config, attention, i):
    if hasattr(config, "layer_rope_theta"):
        return config.layer_rope_theta[i] != 0
    if config.model_type == "cohere2":
        return attention.sliding_window is not None
    if config.model_type == "exaone4":
        return attention.sliding_window is None or attention.is_sliding
    return getattr(attention, "use_rope", True)


def ropes_of(config, model):
    """(frequencies, scale) by rope_of; the key None stands for all layers."""
    meta = None if getattr(config, "alibi", False) else getattr(base_of(model), "rotary_emb", None)
    if config.model_type == "gptj":  # whose layers have tables of their own
        return {None: (1.0 / 10000 ** (torch.arange(0, config.rotary_dim, 2) / config.rotary_dim), 1.0)}
    if meta is None:
        return {}
    if hasattr(config, "layer_rope_theta"):
        ropes = {}
        for theta in config.layer_rope_theta:
            if theta:
                own = copy.deepcopy(config)
                own.rope_parameters["rope_theta"] = theta
                rope = type(meta)(own)
                ropes[theta] = rope.inv_freq, rope.attention_scaling
        return ropes
    rope = type(meta)(config)
    if getattr(rope, "rope_type", None) == "dynamic" and not config.rope_parameters.get("alpha"):
        longest = int(config.max_position_embeddings * config.rope_parameters["factor"])
        rope.inv_freq, _ = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["dynamic"](config, seq_len=longest)
    if config.model_type == "phimoe":  # whose attention_scaling is not used
        return {None: (rope.inv_freq, config.rope_parameters["short_mscale"])}
    if hasattr(rope, "inv_freq"):
        return {None: (rope.inv_freq, rope.attention_scaling)}
    return {name: (getattr(rope, f"{name}_inv_freq"), getattr(rope, f"{name}_attention_scaling"))
            for name in ("full_attention", "sliding_attention") if hasattr(rope, f"{name}_inv_freq")}


def layers_of(config, model, ropes):
    names = list(ropes)
    windows, dims, used = [], [], []
    for i, layer in enumerate(blocks_of(model)):
        attention = attention_of(layer)
        rotated = bool(ropes) and rotates(config, attention, i)
        rope = names.index(rope_of(config, i)) if rotated and None not in ropes else 0
        windows.append(window_of(config, attention))
        dims.append(2 * len(ropes[names[rope]][0]) if rotated else 0)
        used.append(rope)
    return windows, dims, used


def first_size(module, names):
    return next((getattr(module, name).gate_proj.out_features for name in names if getattr(module, name, None)), 0)


def experts_of(mlp, hidden_size):
    experts = getattr(mlp, "experts", None)
    if experts is None:
        return [0, 0, 0, mlp.gate_proj.out_features]
    count, rows, columns = experts.gate_up_proj.shape
    top_k = next(module.top_k for module in mlp.modules() if hasattr(module, "top_k"))
    return [count, top_k, rows * columns // hidden_size // 2, first_size(mlp, ("shared_experts", "shared_expert"))]


def tensors_of(model, family, last, has_experts):
    state = model.state_dict()
    if has_experts:
        state = {name: tensor for name, tensor in state.items() if ".mlp." not in name}
    if model.config.tie_word_embeddings:
        del state["lm_head.weight"]
    if model.config.model_type == "gpt_neox":  # as it is saved
        state["embed_out.weight"] = state.pop("lm_head.weight")
    kept = {name: list(tensor.shape) or [1] for name, tensor in state.items()
            if (re.search(r"\.(\d+)\.", name) or [0, "0"])[1] in ("0", str(last))}
    return len(state), {llama_names.tensor_name(name, family) if family else name: kept[name] for name in kept}


def multipliers_of(config, model):
    granite = config.model_type.startswith("granite") or config.model_type == "hyperclovax"
    scaling = getattr(config, "logits_scaling", 1.0)
    logits = 1 / scaling if granite else getattr(config, "logit_scale", None) or 1.0
    embedding = getattr(model.get_input_embeddings(), "scalar_embed_scale", 1.0)
    return {"embedding": config.embedding_multiplier if granite else embedding,
            "residual": config.residual_multiplier if granite else 1.0,
            "logits": scaling if config.model_type == "hyperclovax" else logits}


def activation_of(mlp):
    name = type(first_of(mlp, "act_fn", "activation_fn", "activation", "act", "gelu_impl")).__name__
    return {"GELU": "GELUActivation", "BloomGelu": "GELUTanh", "NewGELUActivation": "GELUTanh",
            "FastGELUActivation": "GELUTanh"}.get(name, name)


def scale_of(config, attention):
    if config.model_type == "gptj":
        return 1 / float(attention.scale_attn)
    return first_of(attention, "scaling", "inv_norm_factor", "softmax_scale")


def kv_heads_of(config, attention):
    if config.model_type == "gemma4_text":
        return attention.k_proj.out_features // attention.head_dim
    heads = getattr(config, "num_key_value_heads", None) or getattr(attention, "num_kv_heads", None)
    return heads or config.num_attention_heads


def describe(path):
    config, model, family = build(path)
    layer = blocks_of(model)[0]
    attention = attention_of(layer)
    mlp = next((getattr(layer, name) for name in ("mlp", "shared_mlp", "ffn") if hasattr(layer, name)), layer)
    norm = first_of(base_of(model), "norm", "final_layer_norm", "final_layernorm", "ln_f", "norm_f")
    ropes = ropes_of(config, model)
    windows, dims, used = layers_of(config, model, ropes)
    mlps = [getattr(block, "mlp", None) for block in blocks_of(model)]
    has_experts = any(hasattr(mlp, "experts") for mlp in mlps)
    num_tensors, tensors = tensors_of(model, family, config.num_hidden_layers - 1, has_experts)
    experts = {"experts": [experts_of(mlp, config.hidden_size) for mlp in mlps]} if has_experts else {}
    return {
        "hidden_size": config.hidden_size, "vocab_size": config.vocab_size, "num_layers": len(blocks_of(model)),
        "num_heads": getattr(attention, "num_heads", None) or config.num_attention_heads,
        "num_kv_heads": kv_heads_of(config, attention),
        "head_size": first_of(attention, "head_dim", "head_size"),
        "max_position": next((getattr(config, key) for key in ("max_position_embeddings", "max_seq_len", "seq_length")
                              if hasattr(config, key)), 2048),
        "norm_eps": getattr(norm, "variance_epsilon", None) or getattr(norm, "eps", 1e-5),  # OLMo's is a constant
        "tied": model.config.tie_word_embeddings,
        "activation": None if has_experts else activation_of(mlp),
        "multipliers": multipliers_of(config, model),
        "windows": windows, "rotary_dims": dims, "ropes": used,
        "scale": scale_of(config, attention),
        "soft_cap": (config.attn_logit_softcapping or 0) if config.model_type in ("gemma2", "vaultgemma") else 0,
        "logits_soft_cap": getattr(config, "final_logit_softcapping", None) or 0,
        "frequencies": [[float(f"{value:.9g}") for value in frequencies.tolist()]
                        for frequencies, _ in ropes.values()],
        "rope_scale": [scale for _, scale in ropes.values()],
        "num_tensors": num_tensors, "tensors": tensors, **experts,
    }


def describe_keys(config):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        return describe(path)


def main():
    transformers.logging.set_verbosity_error()
    cases = [{"name": path.stem, **describe(path)} for path in sorted((DATA / "configs").glob("*.json"))]
    for model_type, keys in (*((name, {}) for name in FAMILIES), *FURTHER):
        config = {"model_type": model_type, **SIZES, **NEEDED.get(model_type, {}), **keys}
        cases.append({"name": f"{model_type} {json.dumps(keys)}", "config": config, **describe_keys(config)})
    lines = ",\n".join(json.dumps(case) for case in cases)
    (DATA / "config_golden.json").write_text(f"[\n{lines}\n]\n")
    print(f"config_golden.json: {len(cases)} configs, {(DATA / 'config_golden.json').stat().st_size} bytes")


if __name__ == "__main__":
    sys.exit(main())
