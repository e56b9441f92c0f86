#!/usr/bin/env python3
"""Writes tests/data/golden/NAME/fp8_cache.bin for the checkpoints named, or all: the logits that transformers computes in
float64 if keys and values are rounded to fp8 where they enter its cache. float32 [3 ways][2 prompts][vocab_size], for
the last token of the prompts of 33 and of 100 tokens. The ways: e4m3 with scales that follow from the first prompt as
kernels/kv_scale.h says; e4m3 with the scales 0.011 and 0.007 of K and of V; e5m2 with scales of 1. Of latent attention
transformers caches the latent as K and the rotated key as V; both have one scale, that of K."""
import json
import pathlib
import sys

import numpy
import torch
import transformers
import llama_names
from transformers.cache_utils import DynamicCache
from transformers.models.minimax import modeling_minimax

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def measured_scale(x):
    scale = 2.0 ** -4
    while x.abs().max().item() * 4 > scale * 448:
        scale *= 2
    return scale


def rounded(x, scale, dtype):
    largest = torch.finfo(dtype).max
    return (x / scale).clamp(-largest, largest).to(torch.float32).to(dtype).to(x.dtype) * scale


class Fp8Cache(DynamicCache):
    """scales: of K and of V by layer; those that are missing are measured, those of V before values are scaled."""

    def __init__(self, config, dtype, scales):
        super().__init__(config=config)
        self.dtype, self.scales = dtype, scales
        self.value_scale = getattr(config, "attention_value_scale", 1)
        self.latent = getattr(config, "kv_lora_rank", None) is not None

    def update(self, key_states, value_states, layer_idx, *args, **kwargs):
        v = measured_scale(value_states / self.value_scale) * self.value_scale
        k = max(measured_scale(key_states), v) if self.latent else measured_scale(key_states)
        k, v = self.scales.setdefault(layer_idx, (k, v))
        v = k if self.latent else v
        return super().update(rounded(key_states, k, self.dtype), rounded(value_states, v, self.dtype), layer_idx,
                              *args, **kwargs)


class Fp8MiniMaxCache(Fp8Cache, modeling_minimax.MiniMaxCache):
    """transformers' MiniMax takes only a cache of its own, and none of its makers' arguments."""

    def __init__(self, config, dtype, scales):
        modeling_minimax.MiniMaxCache.__init__(self)
        self.dtype, self.scales, self.value_scale, self.latent = dtype, scales, 1, False


def logits_of(model, prompts, dtype, scales):
    out = []
    cache_class = Fp8MiniMaxCache if model.config.model_type == "minimax" else Fp8Cache
    for prompt in prompts:
        with torch.no_grad():
            cache = cache_class(model.config.get_text_config(), dtype, scales)
            out.append(model(torch.tensor([prompt]), past_key_values=cache, use_cache=True).logits[0, -1])
    return torch.stack(out).to(torch.float32).numpy().astype("<f4")


def main():
    root = pathlib.Path(__file__).resolve().parent.parent / "data" / "golden"
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for folder in sorted(path.parent for path in root.glob("*/golden.json")):
        if len(sys.argv) > 1 and folder.name not in sys.argv[1:]:
            continue
        model = llama_names.load(folder, dtype=torch.float64).eval()
        layers = range(model.config.get_text_config().num_hidden_layers)
        prompts = [case["prompt"] for case in json.loads((folder / "golden.json").read_text())["cases"]
                   if len(case["prompt"]) in (33, 100)]
        measured, given, ones = {}, {i: (0.011, 0.007) for i in layers}, {i: (1.0, 1.0) for i in layers}
        logits = [logits_of(model, prompts, dtype, scales)
                  for dtype, scales in ((E4M3, measured), (E4M3, given), (E5M2, ones))]
        numpy.stack(logits).tofile(folder / "fp8_cache.bin")
        print(folder.name, "measured scales", sorted(set(measured.values())))


if __name__ == "__main__":
    main()
