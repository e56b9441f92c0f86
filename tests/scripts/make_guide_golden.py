"""What transformers computes with models/guide, for tests/test_guide.c.

usage: python3 tests/scripts/make_guide_golden.py     (torch and transformers on the CPU; run it when the weights change)

Reads models/guide/train/questions.jsonl and writes tests/data/guide/golden.json and golden.bin in the format of
make_golden.py, with the question's messages beside the ids: its prompt as transformers' own tokenizer and chat template
give it, the logits after its last token in float32, and the whole greedy answer, the end token included.
"""

import json
import pathlib

import numpy
import torch
import transformers

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE = ROOT / "models" / "guide"
OUT = ROOT / "tests" / "data" / "guide"
LONGEST = 160


def answer(model, prompt, ends):
    ids, gaps = list(prompt), []
    while len(gaps) < LONGEST and (not gaps or ids[-1] not in ends):
        with torch.no_grad():
            values, indices = model(torch.tensor([ids]), use_cache=False).logits[0, -1].topk(2)
        gaps.append(float(f"{(values[0] - values[1]).item():.6g}"))
        ids.append(indices[0].item())
    return ids[len(prompt):], gaps


def main():
    tokenizer = transformers.AutoTokenizer.from_pretrained(GUIDE)
    model = transformers.AutoModelForCausalLM.from_pretrained(GUIDE, dtype=torch.float32).eval()
    ends = json.loads((GUIDE / "generation_config.json").read_text())["eos_token_id"]
    cases, logits, offset = [], [], 0
    for line in (GUIDE / "train" / "questions.jsonl").read_text().splitlines():
        messages = json.loads(line)["messages"]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
        greedy, gaps = answer(model, prompt, ends)
        with torch.no_grad():
            last = model(torch.tensor([prompt]), use_cache=False).logits[0, -1].numpy().astype("<f4")
        cases.append(dict(messages=messages, prompt=prompt, positions=[len(prompt) - 1], logits_offset=offset,
                          greedy=greedy, gaps=gaps))
        logits.append(last)
        offset += last.size
    OUT.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(case) for case in cases)
    (OUT / "golden.json").write_text('{"vocab_size": %d, "cases": [\n%s\n]}\n' % (model.config.vocab_size, lines))
    (OUT / "golden.bin").write_bytes(numpy.concatenate(logits).tobytes())


main()
