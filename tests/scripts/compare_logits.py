"""Compares quire's last-token logits with transformers' on a GPU.

usage: python3 tests/scripts/compare_logits.py [--lengths 17,2000] LOGITS_TOOL FOLDER...     (torch, transformers; a GPU)

A folder with weights is compared as it is. For one that has a config.json alone, a checkpoint of that shape with random
weights is written to a temporary folder first. For prompts of random tokens of these lengths, quire in bfloat16 must be
no further from transformers' float32 logits than 1.5 times transformers' own bfloat16 error. Prints a line a prompt;
exit status 1 if one is further.
"""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import transformers

BOUND = 1.5


def randomize(model, generator):
    """Gains near 1, whatever is added to them; matrices that keep the size of what they multiply."""
    offset = 1 if model.config.model_type.startswith("gemma") else 0
    with torch.no_grad():
        for name, tensor in model.named_parameters():
            tensor.normal_(generator=generator)
            if tensor.dim() > 1:
                tensor.mul_(1 if "embed" in name else tensor.shape[-1] ** -0.5)
            else:
                tensor.mul_(0.1).add_(1 - offset if "norm" in name else 0)


@contextlib.contextmanager
def checkpoint(folder):
    """The folder, or a temporary one with random weights."""
    if list(folder.glob("*.safetensors")):
        yield folder
        return
    config = transformers.AutoConfig.from_pretrained(folder)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    randomize(model, torch.Generator("cuda").manual_seed(0))
    with tempfile.TemporaryDirectory() as work:
        model.save_pretrained(work, max_shard_size="4GB")
        del model
        torch.cuda.empty_cache()
        # what was published, not what transformers makes of it
        (pathlib.Path(work) / "config.json").write_text((folder / "config.json").read_text())
        yield pathlib.Path(work)


def last_logits(folder, dtype, prompts):
    torch.backends.cuda.matmul.allow_tf32 = False
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, device_map="cuda",
                                                              attn_implementation="eager").eval()
    with torch.no_grad():
        rows = [model(torch.tensor([p], device="cuda"), use_cache=False, logits_to_keep=1).logits[0, -1].float().cpu()
                for p in prompts]
    del model
    torch.cuda.empty_cache()
    return torch.stack(rows).numpy()


def run_quire(tool, folder, prompts, vocab):
    with tempfile.TemporaryDirectory() as work:
        (pathlib.Path(work) / "prompts.json").write_text(json.dumps(prompts))
        subprocess.run([tool, folder, "cuda", "bfloat16", f"{work}/prompts.json", f"{work}/out.bin"], check=True)
        return numpy.fromfile(f"{work}/out.bin", "<f4").reshape(len(prompts), vocab)


def compare(tool, folder, lengths):
    """The largest ratio of quire's error to transformers' own."""
    start, worst = time.time(), 0
    with checkpoint(folder) as path:
        vocab = json.loads((path / "config.json").read_text())["vocab_size"]
        generator = torch.Generator().manual_seed(1)
        prompts = [torch.randint(0, vocab, (n,), generator=generator).tolist() for n in lengths]
        ours = run_quire(tool, path, prompts, vocab)
        exact = last_logits(path, torch.float32, prompts)
        theirs = last_logits(path, torch.bfloat16, prompts)
    for n, o, t, e in zip(lengths, ours, theirs, exact):
        error, own = (float(numpy.linalg.norm(x - e) / numpy.linalg.norm(e)) for x in (o, t))
        worst = max(worst, error / own)
        print(f"{folder.name}, {n} tokens: quire {error:.4f}, transformers {own:.4f}, ratio {error / own:.2f}", flush=True)
    print(f"{folder.name}: {time.time() - start:.0f} s", file=sys.stderr, flush=True)
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lengths", default="1,17,512,2048,8000")
    parser.add_argument("tool")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    lengths = [int(n) for n in args.lengths.split(",")]
    failed = 0
    for folder in args.folders:
        try:
            failed += not compare(args.tool, folder, lengths) <= BOUND
        except Exception as error:  # the other folders are still compared
            print(f"{folder.name}: {error}", flush=True)
            failed += 1
    sys.exit(1 if failed else 0)


main()
