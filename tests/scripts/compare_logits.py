"""Compares quire's last-token logits with transformers' on a GPU.

usage: python3 tests/scripts/compare_logits.py FOLDER LOGITS_TOOL     (torch, transformers; a GPU)

For prompts of 1, 17, 512, 2048 and 8000 random tokens: quire in bfloat16 must be no further from transformers' float32
logits than 1.5 times transformers' own bfloat16 error. Prints a line a prompt; exit status 1 if one is further.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import numpy
import torch
import transformers

LENGTHS = (1, 17, 512, 2048, 8000)


def last_logits(folder, dtype, prompts):
    torch.backends.cuda.matmul.allow_tf32 = False
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map="cuda").eval()
    with torch.no_grad():
        rows = [model(torch.tensor([p], device="cuda"), use_cache=False, logits_to_keep=1).logits[0, -1].float().cpu()
                for p in prompts]
    del model
    torch.cuda.empty_cache()
    return torch.stack(rows).numpy()


def main():
    folder, tool = sys.argv[1:3]
    vocab = json.loads((pathlib.Path(folder) / "config.json").read_text())["vocab_size"]
    generator = torch.Generator().manual_seed(1)
    prompts = [torch.randint(0, vocab, (n,), generator=generator).tolist() for n in LENGTHS]
    with tempfile.TemporaryDirectory() as work:
        (pathlib.Path(work) / "prompts.json").write_text(json.dumps(prompts))
        subprocess.run([tool, folder, "cuda", "bfloat16", f"{work}/prompts.json", f"{work}/out.bin"], check=True)
        ours = numpy.fromfile(f"{work}/out.bin", "<f4").reshape(len(prompts), vocab)
    exact = last_logits(folder, torch.float32, prompts)
    theirs = last_logits(folder, torch.bfloat16, prompts)
    worst = 0
    for n, o, t, e in zip(LENGTHS, ours, theirs, exact):
        error, own = (float(numpy.linalg.norm(x - e) / numpy.linalg.norm(e)) for x in (o, t))
        worst = max(worst, error / own)
        print(f"{n:5d} tokens: quire {error:.4f}, transformers {own:.4f}, ratio {error / own:.2f}", flush=True)
    sys.exit(0 if worst <= 1.5 else 1)


main()
