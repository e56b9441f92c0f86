#!/usr/bin/env python3
"""Compares the gated delta rule's kernels with those of flash-linear-attention, on one GPU in one run.

    python3 tests/scripts/compare_recurrence.py QUIRE [--config FILE]        (needs torch and flash-linear-attention)

The shape is that of Qwen3.5-9B, or of another config.json with a gated delta net. `quire bench kernels` times the
operation recurrence. Here chunk_gated_delta_rule (prompts) and fused_recurrent_gated_delta_rule (decodes) get inputs of
the same sizes, types and distribution, norm q and k, make the gates in their kernels, and read and write a float32
state, as quire does. They take turns on inputs that exceed the caches together, and are timed in a CUDA graph, without
the time that Python needs to launch them; the last column is with it. Exits with 1 if quire is slower anywhere.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

import torch
from fla.ops.gated_delta_rule import chunk_gated_delta_rule, fused_recurrent_gated_delta_rule

QWEN = dict(
    architectures=["Qwen3_5ForCausalLM"], model_type="qwen3_5_text", hidden_size=4096, intermediate_size=12288,
    num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=4, head_dim=256, linear_conv_kernel_dim=4,
    linear_key_head_dim=128, linear_value_head_dim=128, linear_num_key_heads=16, linear_num_value_heads=32,
    vocab_size=248320, rms_norm_eps=1e-6, max_position_embeddings=262144, tie_word_embeddings=False, dtype="bfloat16",
    hidden_act="silu", rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25))
BEYOND_CACHES, MAX_SETS, REPEATS = 256 << 20, 64, 7


def of_quire(quire, config):
    """(what, count) -> microseconds."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        out = subprocess.run([quire, "bench", "kernels", "--model", folder, "--device", "cuda", "--dtype", "bfloat16",
                              "--filter", "recurrence", "--json"], check=True, capture_output=True, text=True).stdout
    rows = [row for row in json.loads(out)["kernels"] if row["kernel"] == "recurrence"]
    return {("token" if "token" in row["shape"] else "sequence", row["count"]): row["microseconds"] for row in rows}


class Inputs:
    """Of `sequences` sequences with `tokens` tokens each."""

    def __init__(self, config, sequences, tokens):
        k_heads, v_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
        k_size, v_size = config["linear_key_head_dim"], config["linear_value_head_dim"]

        def random(*shape, dtype=torch.bfloat16):
            return 0.3 * torch.randn(*shape, device="cuda", dtype=dtype)

        self.arguments = dict(
            q=random(sequences, tokens, k_heads, k_size), k=random(sequences, tokens, k_heads, k_size),
            v=random(sequences, tokens, v_heads, v_size), g=random(sequences, tokens, v_heads),
            beta=random(sequences, tokens, v_heads), A_log=random(v_heads, dtype=torch.float32),
            dt_bias=random(v_heads, dtype=torch.float32),
            initial_state=random(sequences, v_heads, k_size, v_size, dtype=torch.float32), output_final_state=True,
            use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True)

    def bytes(self):
        return sum(x.nbytes for x in self.arguments.values() if torch.is_tensor(x))


def microseconds(f, calls):
    times = []
    for _ in range(REPEATS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        f()
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(end) / calls)
    return statistics.median(times)


def of_library(config, what, count):
    """In a CUDA graph, and as Python calls it."""
    function = chunk_gated_delta_rule if what == "token" else fused_recurrent_gated_delta_rule
    sizes = (1, count) if what == "token" else (count, 1)
    sets = [Inputs(config, *sizes)]
    while len(sets) < min(MAX_SETS, math.ceil(BEYOND_CACHES / sets[0].bytes())):
        sets.append(Inputs(config, *sizes))

    def call_all():
        for inputs in sets:
            function(**inputs.arguments)

    with torch.no_grad():
        for _ in range(3):
            call_all()
        torch.cuda.synchronize()
        called = microseconds(call_all, len(sets))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call_all()
        graph.replay()
        torch.cuda.synchronize()
        return microseconds(graph.replay, len(sets)), called


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("quire")
    parser.add_argument("--config", type=pathlib.Path)
    options = parser.parse_args()
    config = json.loads(options.config.read_text()) if options.config else QWEN
    slower = 0
    print(f"{torch.cuda.get_device_name()}, microseconds of a layer")
    print(f"{'':>18} {'quire':>9} {'library':>9} {'times':>6} {'called':>9}")
    for (what, count), ours in sorted(of_quire(options.quire, config).items()):
        library, called = of_library(config, what, count)
        slower += ours > library
        print(f"{count:>8} {what + 's':<9} {ours:9.1f} {library:9.1f} {library / ours:6.2f} {called:9.1f}", flush=True)
    print(f"quire is slower in {slower} rows" if slower else "quire is faster in all rows")
    sys.exit(slower > 0)


if __name__ == "__main__":
    main()
