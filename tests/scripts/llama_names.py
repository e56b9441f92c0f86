"""Families that transformers 5.17 does not have, because each is Llama under other names: how config.json calls Llama's
keys, and, of EXAONE, how the files call Llama's tensors. The names are those of the published checkpoints. transformers
computes such a checkpoint as Llama, with Llama's names. MiMo is Qwen2 under other names: "Llama" below is Qwen2 there.
"""

import json
import pathlib
import re
import tempfile

import transformers
from safetensors.torch import load_file, save_file

EXAONE_TENSORS = {
    "model.embed_tokens": "transformer.wte", "model.layers": "transformer.h", "model.norm": "transformer.ln_f",
    "input_layernorm": "ln_1", "self_attn.o_proj": "attn.attention.out_proj", "self_attn": "attn.attention",
    "post_attention_layernorm": "ln_2", "mlp.gate_proj": "mlp.c_fc_0", "mlp.up_proj": "mlp.c_fc_1",
    "mlp.down_proj": "mlp.c_proj",
}
# model_type: the architecture; {Llama's key: the family's, or None: it has none}; what it takes for Llama's keys that
# are absent; {part of Llama's name: of the family's}
FAMILIES = {
    "exaone": ("ExaoneForCausalLM",
               {"num_hidden_layers": "num_layers", "rms_norm_eps": "layer_norm_epsilon",
                "hidden_act": "activation_function", "attention_bias": None, "mlp_bias": None},
               dict(rms_norm_eps=1e-5, tie_word_embeddings=True), EXAONE_TENSORS),
    "internlm3": ("InternLM3ForCausalLM", {"attention_bias": "qkv_bias", "mlp_bias": "bias"},
                  dict(max_position_embeddings=32768, num_key_value_heads=32), {}),
    "iquestcoder": ("IQuestCoderForCausalLM", {},
                    dict(max_position_embeddings=16384, num_key_value_heads=8, head_dim=128, rope_theta=500000.0,
                         rms_norm_eps=1e-5), {}),
    "mimo": ("MiMoForCausalLM", {}, {}, {}),
}
BASES = {"mimo": ("Qwen2ForCausalLM", "qwen2")}  # of those that are not Llama: its architecture and model_type


def config_of(llama, model_type):
    """Llama's config.json as the family has it."""
    architecture, keys, _, _ = FAMILIES[model_type]
    config = {keys.get(key, key): value for key, value in llama.items() if keys.get(key, key)}
    config.pop("pretraining_tp", None)
    return {**config, "architectures": [architecture], "model_type": model_type}


def llama_config_of(config):
    """The family's config.json as Llama has it. A bias in q, k, v alone, or without it, is not Llama's."""
    _, keys, absent, _ = FAMILIES[config["model_type"]]
    names = {theirs: ours for ours, theirs in keys.items()}
    llama = {**absent, **{names.get(key, key): value for key, value in config.items()}}
    if config["model_type"] == "internlm3":
        assert config.get("qkv_bias", False) == config.get("bias", False)
    architecture, model_type = BASES.get(config["model_type"], ("LlamaForCausalLM", "llama"))
    return {**llama, "architectures": [architecture], "model_type": model_type}


def tensor_name(name, model_type):
    """Of Llama's."""
    for ours, theirs in FAMILIES[model_type][3].items():
        name = re.sub(rf"(^|\.){re.escape(ours)}\.", rf"\g<1>{theirs}.", name)
    return name


def rename(folder, model_type):
    """Makes a saved Llama the family's."""
    path = folder / "config.json"
    path.write_text(json.dumps(config_of(json.loads(path.read_text()), model_type), indent=2) + "\n")
    tensors = load_file(folder / "model.safetensors")
    save_file({tensor_name(name, model_type): tensor for name, tensor in tensors.items()}, folder / "model.safetensors",
              metadata={"format": "pt"})


def load(folder, **options):
    """transformers' model of a checkpoint of these families, or of any other. Experts are computed one by one, which is
    all that transformers can do in float64. Attention is, too, but for Falcon's with ALiBi, which transformers adds twice
    there."""
    options["experts_implementation"] = "eager"
    config = json.loads((folder / "config.json").read_text())
    options["attn_implementation"] = "sdpa" if config.get("alibi") else "eager"
    if config["model_type"] not in FAMILIES:
        auto = transformers.AutoModelForImageTextToText if "vision_config" in config else transformers.AutoModelForCausalLM
        if config["model_type"] == "mistral4":  # which AutoModelForCausalLM does not know
            auto = transformers.Mistral4ForCausalLM
        return auto.from_pretrained(folder, **options)
    with tempfile.TemporaryDirectory() as name:
        llama = pathlib.Path(name)
        (llama / "config.json").write_text(json.dumps(llama_config_of(config)))
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(llama))
        tensors = load_file(folder / "model.safetensors")
        renamed = {ours: tensors[tensor_name(ours, config["model_type"])] for ours in model.state_dict()
                   if tensor_name(ours, config["model_type"]) in tensors}
        save_file(renamed, llama / "model.safetensors", metadata={"format": "pt"})
        return transformers.AutoModelForCausalLM.from_pretrained(llama, **options)
