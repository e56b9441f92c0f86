#!/usr/bin/env python3
"""What quantizing costs, as tables in Markdown: right answers of models/guide, or the error of a checkpoint's logits.

    python3 tests/scripts/quantization_error.py guide QUIRE [--device cpu|cuda]
    python3 tests/scripts/quantization_error.py logits TOOL FOLDER [--device cpu|cuda] [--dtype float32] [--lengths 16,256]

guide: QUIRE generate answers the questions of heldout.jsonl and fresh.jsonl (models/guide/train), greedy, with each
--quantization and --kv-cache-dtype; models/guide/train/evaluate.py counts the right ones.

logits: TOOL is the program tests/tools/logits. FOLDER holds a checkpoint of floats, such as random_checkpoint.py
makes. The error is |logits - exact logits| / |exact logits| after prompts of random tokens; exact are those of weights as
they are stored and float32 activations. Prompts of up to 16 tokens go through the kernels of decode steps.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy

ROOT = pathlib.Path(__file__).resolve().parents[2]
TRAIN = ROOT / "models" / "guide" / "train"
FORMATS = ("none", "fp8", "int8", "int4")
ROWS = [(name, "auto") for name in FORMATS] + [("none", "fp8_e4m3"), ("none", "fp8_e5m2"), ("fp8", "fp8_e4m3"),
                                              ("int4", "fp8_e4m3")]


def words(quantization, cache):
    weights = "as stored" if quantization == "none" else quantization
    return f"{weights} | {'as the activations' if cache == 'auto' else cache}"


def guide_answers(quire, device, quantization, cache, items, work):
    prompts, out = work / "prompts.jsonl", work / "out.jsonl"
    prompts.write_text("".join(json.dumps(dict(id=item["id"], messages=item["messages"])) + "\n" for item in items))
    subprocess.run([quire, "generate", "--quiet", "--overwrite", "--model", ROOT / "models" / "guide", "--device", device,
                    "--quantization", quantization, "--kv-cache-dtype", cache, "--temperature", "0", "--max-tokens",
                    "200", "--input", prompts, "--output", out], check=True)
    return out


def guide(args):
    sys.path.insert(0, str(TRAIN))
    import evaluate

    print("| weights | KV cache | held-out test | second test |\n|---|---|---|---|")
    for quantization, cache in ROWS:
        cells = []
        for name in ("heldout.jsonl", "fresh.jsonl"):
            items = evaluate.read(TRAIN / name)
            with tempfile.TemporaryDirectory() as work:
                out = guide_answers(args.quire, args.device, quantization, cache, items, pathlib.Path(work))
                answers = {line["id"]: line["texts"][0] if "texts" in line else line["text"]
                           for line in evaluate.read(out)}
            total = evaluate.score(items, answers, False)["total"]
            cells.append(f"{total['right']} of {total['of']}, {100 * total['accuracy']:.1f} %")
        print(f"| {words(quantization, cache)} | {' | '.join(cells)} |", flush=True)


def logits_of(args, dtype, quantization, cache, prompts, vocab_size):
    with tempfile.TemporaryDirectory() as work:
        path, out = pathlib.Path(work) / "prompts.json", pathlib.Path(work) / "out.bin"
        path.write_text(json.dumps(prompts))
        subprocess.run([args.tool, args.folder, args.device, dtype, path, out, quantization, cache], check=True)
        return numpy.fromfile(out, "<f4").reshape(len(prompts), vocab_size).astype("f8")


def logits(args):
    vocab_size = json.loads((args.folder / "config.json").read_text())["vocab_size"]
    random = numpy.random.default_rng(1)
    lengths = [int(n) for n in args.lengths.split(",")]
    prompts = [random.integers(3, vocab_size, n).tolist() for n in lengths for _ in range(args.repeat)]
    exact = logits_of(args, "float32", "none", "float32", prompts, vocab_size).reshape(len(lengths), -1)
    print(f"| weights | activations | KV cache | {' | '.join(f'{n} tokens' for n in lengths)} |\n|---|---|---|{'---|' * len(lengths)}")
    for quantization, dtype, cache in [("none", "bfloat16", "bfloat16"),
                                       *((name, args.dtype, args.dtype) for name in FORMATS[1:]),
                                       *(("none", "bfloat16", name) for name in ("fp8_e4m3", "fp8_e5m2"))]:
        found = logits_of(args, dtype, quantization, cache, prompts, vocab_size).reshape(len(lengths), -1)
        errors = numpy.linalg.norm(found - exact, axis=1) / numpy.linalg.norm(exact, axis=1)
        cells = " | ".join(f"{100 * error:.2f} %" for error in errors)
        print(f"| {'as stored' if quantization == 'none' else quantization} | {dtype} | {cache} | {cells} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("guide")
    command.add_argument("quire")
    command.add_argument("--device", default="cpu")
    command.set_defaults(run=guide)
    command = commands.add_parser("logits")
    command.add_argument("tool")
    command.add_argument("folder", type=pathlib.Path)
    command.add_argument("--device", default="cpu")
    command.add_argument("--dtype", default="float32")
    command.add_argument("--lengths", default="16,256")
    command.add_argument("--repeat", type=int, default=2, help="prompts of each length")
    command.set_defaults(run=logits)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
