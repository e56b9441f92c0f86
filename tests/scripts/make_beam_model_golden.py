#!/usr/bin/env python3
"""Beam searches by transformers with the tiny checkpoints of tests/data/golden, for tests/test_beams.c.

    python3 tests/scripts/make_beam_model_golden.py        writes tests/data/beams/models.json

(needs: pip install torch transformers==5.17.*). A case is the parameters and, best first, transformers' answers and
scores in float32 on the CPU. Stop ids are tokens of the answers that the search without them gives. A case is taken
only if the search in float64 gives the same answers, so that rounding decides nothing, and if no two scores are close.
"""
import json
import pathlib
import random

import torch
import transformers

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
CHECKPOINTS = ("gqa", "qwen3")
VOCAB = 320
# width, n, length_penalty, early_stopping, max_tokens, min_tokens, number of stop ids
SETTINGS = (
    (2, 1, 1.0, False, 30, 0, 0),
    (4, 4, 1.0, False, 40, 0, 1),
    (4, 2, 0.0, True, 40, 6, 3),
    (3, 3, 2.0, "never", 24, 0, 2),
    (8, 5, -1.0, False, 40, 0, 2),
    (16, 16, 0.5, True, 20, 0, 1),
)


def search(model, prompt, setting, stop):
    width, n, penalty, early, most, least, _ = setting
    out = model.generate(torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
                         num_beams=width, num_return_sequences=n, do_sample=False, length_penalty=penalty,
                         early_stopping=early, max_new_tokens=most, min_new_tokens=least or None,
                         eos_token_id=stop or None, pad_token_id=0, return_dict_in_generate=True, output_scores=True)
    lengths = (out.beam_indices + 1).bool().sum(dim=1).tolist()
    answers = [row[len(prompt):len(prompt) + length] for row, length in zip(out.sequences.tolist(), lengths)]
    return answers, [round(s, 6) for s in out.sequences_scores.tolist()]


def make_case(r, name, models, setting):
    while True:
        prompt = [r.randrange(VOCAB) for _ in range(r.choice([1, 9, 20, 37]))]
        free, _ = search(models[0], prompt, setting, [])
        tokens = sorted({t for answer in free for t in answer[3:]})
        stop = sorted(r.sample(tokens, setting[6]))
        answers, scores = search(models[0], prompt, setting, stop)
        if search(models[1], prompt, setting, stop)[0] != answers:
            continue
        if any(a - b < 1e-4 for a, b in zip(scores, scores[1:])):
            continue
        if stop and not any(a[-1] in stop for a in answers):
            continue
        width, n, penalty, early, most, least, _ = setting
        return dict(checkpoint=name, beam_width=width, n=n, length_penalty=penalty, early_stopping=early,
                    max_tokens=most, min_tokens=least, stop_token_ids=stop, prompt=prompt, answers=answers,
                    scores=scores)


def main():
    r, cases = random.Random(3), []
    for name in CHECKPOINTS:
        models = []
        for dtype in (torch.float32, torch.float64):
            model = transformers.AutoModelForCausalLM.from_pretrained(DATA / "golden" / name, dtype=dtype)
            model.generation_config = transformers.GenerationConfig()
            models.append(model.eval())
        for setting in SETTINGS:
            cases.append(make_case(r, name, models, setting))
            print(name, setting, cases[-1]["stop_token_ids"], [len(a) for a in cases[-1]["answers"]])
    (DATA / "beams" / "models.json").write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


main()
