#!/usr/bin/env python3
"""Compares tests/data/quantization_configs.json with the library compressed-tensors: which matrix of a Llama gets which
weights. Cases of other formats, those of other families and those that are refused are left out.

Needs torch, transformers and compressed-tensors (0.20)."""
import json
import pathlib

import torch
from compressed_tensors.quantization import QuantizationConfig
from compressed_tensors.utils.match import match_named_modules, match_targets
from transformers import LlamaConfig, LlamaForCausalLM

CASES = pathlib.Path(__file__).parent.parent / "data" / "quantization_configs.json"
SIZES = dict(hidden_size=256, intermediate_size=384, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             vocab_size=320)
UNKNOWN = ("sparsity_config", "transform_config", "version")  # keys that this version of the library refuses


def read_config(case):
    config = case["config"].get("quantization_config") or case["config"].get("compression_config")
    if "expected" not in case or not config or "model_type" in case.get("model", {}):
        return None
    if config.get("quant_method", "compressed-tensors") != "compressed-tensors":
        return None
    for group in config["config_groups"].values():
        for part in ("weights", "input_activations"):
            (group.get(part) or {}).pop("actorder", None)  # the library has dropped "group"
    return QuantizationConfig(**{key: value for key, value in config.items() if key not in UNKNOWN})


def weights_of_modules(model, config):
    schemes = {target: group for group in config.config_groups.values() for target in group.targets}
    return {name: schemes[match_targets(name, module, schemes)[0]].weights
            for name, module in match_named_modules(model, schemes, config.ignore)
            if isinstance(module, (torch.nn.Linear, torch.nn.Embedding))}


def words(weights):
    """As weight_scheme_words begins."""
    if weights is None:
        return "not quantized"
    scales = {"tensor": "per tensor", "channel": "per channel", "group": f"groups of {weights.group_size}",
              "block": "128 x 128 blocks"}
    return f"{'fp8' if weights.type == 'float' else f'int{weights.num_bits}'}, {scales[weights.strategy]}"


def main():
    compared = differ = 0
    for case in json.loads(CASES.read_text()):
        config = read_config(case)
        if not config:
            continue
        with torch.device("meta"):
            model = LlamaForCausalLM(LlamaConfig(**SIZES, **case.get("model", {})))
        found = weights_of_modules(model, config)
        for name, expected in case["expected"].items():
            weights = found.get(name)
            same = expected.startswith(words(weights))
            same = same and ("asymmetric" in expected) == (weights is not None and not weights.symmetric)
            compared += 1
            differ += not same
            if not same:
                print(f"{case['name']}: {name} is \"{words(weights)}\", not \"{expected}\"")
    print(f"{compared} matrices, {differ} differ")
    raise SystemExit(differ > 0)


main()
