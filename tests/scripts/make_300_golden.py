#!/usr/bin/env python3
"""Makes tests/data/golden/prompts_300.json: what transformers computes in float32 on the CPU of a prompt of 300 tokens
with the checkpoints of tests/data/golden that have recurrent layers or convolutions.

    python3 tests/scripts/make_300_golden.py [NAME...]       (needs torch, transformers and safetensors)

    {name: {"prompt": 300 ids, "logits": [vocab_size] of the last token}}

Entries of other names stay as they are.
"""

import json
import pathlib
import sys

import torch
import transformers
import llama_names
from make_golden import logits_of

LENGTH = 300
NAMES = ("bamba falcon_h1 granite4_h granite4_h_moe kimi_linear lfm2 lfm2_moe minimax nemotron_h nemotron_h_latent "
         "nemotron_h_moe olmo_hybrid qwen3_5 qwen3_5_moe qwen3_next").split()


def compute(folder):
    model = llama_names.load(folder, dtype=torch.float32, attn_implementation="eager").eval()
    vocab_size = model.config.get_text_config().vocab_size
    generator = torch.Generator().manual_seed(300)
    prompt = torch.randint(3, vocab_size, (LENGTH,), generator=generator).tolist()
    return dict(prompt=prompt, logits=[float(f"{value:.9g}") for value in logits_of(model, prompt)[-1].tolist()])


def main():
    root = pathlib.Path(__file__).resolve().parent.parent / "data" / "golden"
    path = root / "prompts_300.json"
    out = json.loads(path.read_text()) if path.exists() else {}
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in sys.argv[1:] or NAMES:
        if (root / name).exists():
            out[name] = compute(root / name)
            print(name, flush=True)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(out[name])}" for name in sorted(out))
    path.write_text("{\n%s\n}\n" % lines)


if __name__ == "__main__":
    main()
