#!/usr/bin/env python3
"""The log-probabilities of prompts by transformers with the tiny checkpoints of tests/data/golden, for
tests/test_prompt_logprobs.c.

    python3 tests/scripts/make_prompt_logprobs_golden.py        writes tests/data/prompt_logprobs.json

(needs: pip install torch transformers==5.17.*). A case is a prompt and, of each of its tokens but the first, the
log-probability and the rank, in float32 on the CPU, and the ids and log-probabilities of the five most probable tokens.
Every other prompt is half the model's own greedy text, so that some tokens are probable. A prompt is taken only if no
two log-probabilities that decide a rank or an order are close, so that rounding decides nothing.
"""
import json
import pathlib
import random

import torch
import transformers

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
CHECKPOINTS = ("gqa", "qwen3", "gemma2", "gemma3", "phi3")  # three have windows, one caps its logits, one has longrope
VOCAB = 320
TOP = 5
LENGTHS = (1, 2, 17, 33, 70)
CLOSE = 1e-4


def make_prompt(r, model, length, greedy):
    prompt = [r.randrange(VOCAB) for _ in range((length + 1) // 2 if greedy else length)]
    while len(prompt) < length:
        prompt.append(model(torch.tensor([prompt])).logits[0, -1].argmax().item())
    return prompt


def rows_of(model, prompt):
    """[logprob, rank, top ids, top logprobs] of each token; None if rounding could decide one."""
    logprobs = torch.log_softmax(model(torch.tensor([prompt])).logits[0].float(), dim=-1)
    rows = []
    for row, token in zip(logprobs[:-1], prompt[1:]):
        own = row[token]
        others = torch.cat([row[:token], row[token + 1:]])
        best = row.topk(TOP + 1)
        if (others - own).abs().min() < CLOSE or (best.values[:-1] - best.values[1:]).min() < CLOSE:
            return None
        rows.append([round(own.item(), 6), 1 + (row > own).sum().item(), best.indices[:TOP].tolist(),
                     [round(v, 6) for v in best.values[:TOP].tolist()]])
    return rows


def main():
    r, cases = random.Random(7), []
    for name in CHECKPOINTS:
        model = transformers.AutoModelForCausalLM.from_pretrained(
            DATA / "golden" / name, dtype=torch.float32, attn_implementation="eager").eval()  # others skip soft caps
        for length in LENGTHS:
            rows = None
            while rows is None:
                with torch.no_grad():
                    prompt = make_prompt(r, model, length, len(cases) % 2 == 1)
                    rows = rows_of(model, prompt)
            cases.append(dict(checkpoint=name, prompt=prompt, rows=rows))
    (DATA / "prompt_logprobs.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


main()
