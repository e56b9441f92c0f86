#!/usr/bin/env python3
"""Makes tests/data/quantize: tiny random mixtures of experts in bfloat16, and the greedy tokens that transformers
computes from what quire quantize makes of them.

    python3 tests/scripts/make_quantize_golden.py QUIRE     (torch, transformers, compressed-tensors)

Each folder holds config.json, the weights, and golden.json:

    {"prompt": [ids], "tokens": {"int8": [ids], "int4": [ids]}}

tokens are computed in float32 with the weights that compressed-tensors decompresses.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

import compare_quantize_command
import make_golden
import make_quantized_golden
import quantized_formats

SIZES = dict(hidden_size=64, num_hidden_layers=1, vocab_size=96, num_experts_per_tok=2, num_attention_heads=1,
             tie_word_embeddings=True, head_dim=32)
CHECKPOINTS = {
    "qwen3_moe": dict(SIZES, moe_intermediate_size=32, num_experts=3, norm_topk_prob=True),
    "mixtral": dict(SIZES, intermediate_size=32, num_local_experts=3),
}
FORMATS = ("int8", "int4")
PROMPT = [1, 5, 9, 33, 7, 2, 60]
STEPS = 32
FEWEST_DISTINCT = 12


def quantized_model(quire, folder, quantization):
    """What transformers reads from the folder that quire writes."""
    with tempfile.TemporaryDirectory() as work:
        output = pathlib.Path(work) / "quantized"
        subprocess.run([quire, "quantize", "--model", folder, "--output", output, "--quantization", quantization,
                        "--quiet"], check=True)
        model, wrong = compare_quantize_command.load(output)
    if wrong:
        sys.exit(f"{folder}, {quantization}: {wrong}")
    return model


def make_checkpoint(quire, folder, family, seed):
    """The greedy tokens by format; None if a text is dull or has near ties."""
    make_quantized_golden.save_floats(folder, family, "bfloat16", CHECKPOINTS[family], seed)
    quantized_formats.keep_what_counts(folder)
    tokens = {}
    for quantization in FORMATS:
        ids, gaps = make_golden.greedy(quantized_model(quire, folder, quantization), PROMPT)
        if len(ids) < STEPS or min(gaps) < make_golden.SMALLEST_GAP or len(set(ids)) < FEWEST_DISTINCT:
            return None
        tokens[quantization] = ids
    return tokens if len({tuple(ids) for ids in tokens.values()}) == len(FORMATS) else None


def main():
    root = pathlib.Path(__file__).resolve().parent.parent / "data" / "quantize"
    (quire,) = sys.argv[1:]
    make_golden.STEPS = STEPS
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for family in CHECKPOINTS:
        folder = root / family
        folder.mkdir(parents=True, exist_ok=True)
        for seed in range(100):
            tokens = make_checkpoint(quire, folder, family, seed)
            if tokens:
                break
        else:
            sys.exit(f"{family}: no seed gives varied text without near ties")
        (folder / "golden.json").write_text(json.dumps(dict(prompt=PROMPT, tokens=tokens)) + "\n")
        print(f"{family}: seed {seed}, {sum(path.stat().st_size for path in folder.iterdir())} bytes", flush=True)


if __name__ == "__main__":
    main()
