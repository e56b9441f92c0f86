#!/usr/bin/env python3
"""Compares quire with transformers at the shapes of published mixtures of experts, with few layers and random weights.

    python3 tests/scripts/compare_shapes.py QUIRE [cpu|cuda] [--small]       (needs torch and transformers)

For prompts of 17 and 2,000 tokens it prints how far the log-probabilities of the prompt's tokens are from those that
transformers computes in float32: of quire in bfloat16 and float32, and of transformers in bfloat16. Exits with 1 if
quire's are further off than 1.5 times transformers' in bfloat16, or than 1e-4 in float32. --small: shapes that a CPU
computes in seconds, and 300 tokens.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers

FLOAT32_BOUND, BFLOAT16_RATIO = 1e-4, 1.5
SMALL = dict(hidden_size=256, num_attention_heads=4, num_key_value_heads=2, vocab_size=2000)
SHAPES = {  # Qwen3-30B-A3B, gpt-oss-20b
    "qwen3_moe": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM, dict(
        hidden_size=2048, intermediate_size=6144, num_attention_heads=32, num_key_value_heads=4, head_dim=128,
        vocab_size=151936, num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768, norm_topk_prob=True,
        rope_theta=1e6, max_position_embeddings=40960), dict(num_experts=16, moe_intermediate_size=64)),
    "gpt_oss": (transformers.GptOssConfig, transformers.GptOssForCausalLM, {},
                dict(num_local_experts=8, intermediate_size=64)),
}


def randomize(model):
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn_like(p)
            stacked = name.endswith(("gate_up_proj", "down_proj")) and p.dim() == 3
            if "norm" in name:
                p.copy_(1 + 0.1 * noise)
            elif "bias" in name or name.endswith("sinks"):
                p.copy_(0.1 * noise)
            elif "embed" in name or "lm_head" in name:
                p.copy_(noise * (1 if "embed" in name else 0.03))
            else:
                p.copy_(noise * 1.5 / math.sqrt(p.shape[-2 if stacked else -1]))


def of_transformers(model_class, folder, dtype, prompts, device):
    """Loaded from the folder: a model that is converted has rounded rotation frequencies, too."""
    model = model_class.from_pretrained(folder, dtype=dtype, attn_implementation="eager").to(device).eval()
    out = []
    for ids in prompts:
        with torch.no_grad():
            logits = model(torch.tensor([ids], device=device), use_cache=False).logits[0].float()
        out.append(torch.log_softmax(logits[:-1], -1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])].cpu())
    return out


def of_quire(quire, folder, dtype, prompts, device):
    (folder / "prompts.jsonl").write_text("".join(json.dumps({"prompt": ids}) + "\n" for ids in prompts))
    command = [quire, "generate", "--model", folder, "--input", folder / "prompts.jsonl", "--dtype", dtype, "--device",
               device, "--prompt-logprobs", "0", "--max-tokens", "1", "--temperature", "0", "--max-model-len", "4096",
               "--skip-tokenizer-init"]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    rows = sorted((json.loads(line) for line in lines), key=lambda row: row["index"])
    return [torch.tensor([token["logprob"] for token in row["prompt_logprobs"][1:]]) for row in rows]


def compare(name, quire, device, small):
    config_class, model_class, keys, small_keys = SHAPES[name]
    keys = {**keys, **(dict(**SMALL, **small_keys, num_hidden_layers=2) if small else dict(num_hidden_layers=4))}
    config = config_class(**keys, dtype="bfloat16")
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-"))
    torch.manual_seed(0)
    with torch.device(device):
        model = model_class(config)
    randomize(model)
    model.bfloat16().save_pretrained(folder)
    del model
    prompts = [torch.randint(3, config.vocab_size, (n,)).tolist() for n in (17, 300 if small else 2000)]
    rough = of_transformers(model_class, folder, torch.bfloat16, prompts, device)
    exact = of_transformers(model_class, folder, torch.float32, prompts, device)
    if device == "cuda":
        torch.cuda.empty_cache()
    good = True
    for dtype in "bfloat16", "float32":
        for ids, e, r, q in zip(prompts, exact, rough, of_quire(quire, folder, dtype, prompts, device)):
            error, theirs = [((x - e) ** 2).mean().sqrt().item() for x in (q, r)]
            good &= error < (BFLOAT16_RATIO * theirs if dtype == "bfloat16" else FLOAT32_BOUND)
            print(f"{name}, {len(ids)} tokens: quire in {dtype} {error:.2g}, transformers in bfloat16 {theirs:.2g}",
                  flush=True)
    return good


def main():
    small = "--small" in sys.argv
    arguments = [a for a in sys.argv[1:] if a != "--small"]
    device = arguments[1] if len(arguments) > 1 else "cuda"
    sys.exit(not all([compare(name, arguments[0], device, small) for name in SHAPES]))


main()
