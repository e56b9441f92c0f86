#!/usr/bin/env python3
"""Beam searches by transformers over a toy model, for tests/test_beam_search.c.

    python3 tests/scripts/make_beam_golden.py        writes tests/data/beams/cases.json

(needs: pip install torch transformers==5.17.*). The toy model's logits are a hash of the last two tokens and the next
one, which the test computes, too. A case is the parameters and, best first, transformers' answers and scores.
"""
import json
import pathlib
import random

import torch
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

OUT = pathlib.Path(__file__).resolve().parent.parent / "data" / "beams" / "cases.json"
MASK = 0xFFFFFFFF


def logit(seed, before, last, token):
    h = (seed * 2654435761 + before * 40503 + last * 2246822519 + token * 3266489917) & MASK
    h ^= h >> 15
    h = h * 2246822519 & MASK
    h ^= h >> 13
    h = h * 3266489917 & MASK
    h ^= h >> 16
    return (h % 65536) / 65536 * 6


class ToyConfig(PretrainedConfig):
    model_type = "toy"

    def __init__(self, vocab_size=8, seed=0, **kwargs):
        self.vocab_size, self.seed = vocab_size, seed
        super().__init__(**kwargs)


class Toy(PreTrainedModel, GenerationMixin):
    config_class = ToyConfig

    def __init__(self, config):
        super().__init__(config)
        self.unused = torch.nn.Parameter(torch.zeros(1))
        self.post_init()

    def forward(self, input_ids, **kwargs):
        rows = []
        for row in input_ids.tolist():
            before, last = row[-2:]
            rows.append([[logit(self.config.seed, before, last, t) for t in range(self.config.vocab_size)]])
        return CausalLMOutput(logits=torch.tensor(rows))

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        return {"input_ids": input_ids}


def main():
    r, cases = random.Random(1), []
    while len(cases) < 200:
        width, vocab = r.choice([1, 2, 3, 4, 8]), r.choice([40, 50, 100])
        stop = sorted(r.sample(range(vocab), r.choice([0, 1, 1, 2, 3, 4])))
        case = dict(seed=r.randrange(1 << 30), vocab_size=vocab, width=width, stop_ids=stop,
                    length_penalty=r.choice([0.0, 0.5, 1.0, 1.0, 2.0, -1.0]),
                    early_stopping=r.choice([True, False, "never"]), max_tokens=r.choice([1, 2, 5, 20, 40]),
                    min_tokens=r.choice([0, 0, 0, 3]))
        if width == 1 or case["min_tokens"] > case["max_tokens"]:
            continue
        prompt = [r.randrange(vocab), r.randrange(vocab)]
        model = Toy(ToyConfig(vocab, case["seed"]))
        out = model.generate(torch.tensor([prompt]), num_beams=width, num_return_sequences=width, do_sample=False,
                             use_cache=False, length_penalty=case["length_penalty"],
                             early_stopping=case["early_stopping"], max_new_tokens=case["max_tokens"],
                             min_new_tokens=case["min_tokens"] or None, eos_token_id=stop or None, pad_token_id=vocab - 1,
                             return_dict_in_generate=True, output_scores=True)
        lengths = ((out.beam_indices + 1).bool()).sum(dim=1).tolist()
        answers = [row[2:2 + n] for row, n in zip(out.sequences.tolist(), lengths)]
        scores = [round(s, 6) for s in out.sequences_scores.tolist()]
        if min(abs(a - b) for a, b in zip(scores, scores[1:])) < 1e-5:
            continue  # a tie
        cases.append(dict(case, prompt=prompt, answers=answers, scores=scores))
    OUT.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


main()
