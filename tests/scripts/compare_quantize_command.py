"""Compares folders that quire quantize writes with what transformers and compressed-tensors read from them.

usage: python3 tests/scripts/compare_quantize_command.py QUIRE FOLDER...     (torch, transformers, compressed-tensors)

Each folder, a small checkpoint of floats, is quantized to fp8, int8 and int4, as one file and as several. transformers
must load the result without a missing or unexpected tensor, with every linear layer quantized that can be, but for lm_head.
With activations in floats, the greedy tokens of both must be the same. Prints a line each; exit status 1 if one differs.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import safetensors.torch
import torch
import transformers

PROMPT = [1, 5, 9, 33, 7, 2, 60]
NUM_TOKENS = 32


def load(folder):
    """The model of floats that the folder stands for, and what of it is missing or unexpected. Stored scales are made
    float32 first, because compressed-tensors computes weights in their type."""
    for path in folder.glob("*.safetensors"):
        tensors = safetensors.torch.load_file(path)
        scales = {name: tensor.float() for name, tensor in tensors.items() if name.endswith("weight_scale")}
        safetensors.torch.save_file({**tensors, **scales}, path, metadata={"format": "pt"})
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    for module in model.modules():
        if getattr(module, "quantization_scheme", None) is not None:
            module.quantization_enabled = False  # of activations: the weights are decompressed
    for parameter in model.parameters():  # of routers and of fp8's experts, which stay in 16 bits
        if parameter.dtype in (torch.bfloat16, torch.float16):
            parameter.data = parameter.data.float()
    return model.eval(), [name for names in loading.values() for name in names]


def generate(model):
    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        out = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NUM_TOKENS, min_new_tokens=NUM_TOKENS,
            do_sample=False, pad_token_id=0,
        )  # fmt: skip
    return out[0, len(PROMPT) :].tolist()


def of_transformers(folder, quantization):
    as_users_do = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    generate(as_users_do)
    model, wrong = load(folder)
    quantized = sum(getattr(m, "quantization_scheme", None) is not None for m in model.modules())
    step = 32 if quantization == "int4" else 1
    linear = sum(
        isinstance(m, torch.nn.Linear) and m.in_features % step == 0 and not re.search(r"\b(\w*gate|router)\b", name)
        for name, m in model.named_modules()
    )
    return generate(model), quantized, linear, wrong


def of_quire(quire, folder):
    """The plain C kernels compute with activations in floats."""
    line = json.dumps({"prompt": PROMPT})
    command = [quire, "generate", "--model", str(folder), "--device", "cpu", "--cpu-isa", "scalar", "--temperature", "0"]
    command += ["--skip-tokenizer-init", "--return-token-ids", "--ignore-eos", "--max-tokens", str(NUM_TOKENS)]
    out = subprocess.run(command, input=line, text=True, check=True, capture_output=True).stdout
    return json.loads(out)["token_ids"]


def compare(quire, folder, quantization, shard_size):
    with tempfile.TemporaryDirectory() as work:
        output = pathlib.Path(work) / "quantized"
        command = [quire, "quantize", "--model", folder, "--output", output, "--quantization", quantization]
        subprocess.run(command + ["--max-shard-size", shard_size, "--quiet"], check=True)
        files = len(list(output.glob("*.safetensors")))
        expected = of_quire(quire, output)
        tokens, quantized, linear, wrong = of_transformers(output, quantization)
        same = tokens == expected
        ok = same and not wrong and quantized == linear - 1  # lm_head
        print(
            f"{folder.name:12} {quantization:5} {files:3} files: {quantized} of {linear} possible linear layers quantized, "
            f"tokens {'same' if same else 'DIFFERENT'} {wrong or ''}"
        )
        return ok


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("quire")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    results = [
        compare(args.quire, folder, quantization, shard_size)
        for folder in args.folders
        for quantization in ("fp8", "int8", "int4")
        for shard_size in ("5", "0.00002")
    ]
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
