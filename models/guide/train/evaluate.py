"""Scores the guide on heldout.jsonl.

    python evaluate.py                        runs ../ with transformers, greedy, and writes result.json
    python evaluate.py --items fresh.jsonl    the same for the second set, which nothing was tuned on: result-fresh.json
    python evaluate.py --outputs FILE         scores a JSONL of outputs instead: {"id": ..., "text": ... or "texts": [...]}
    options: --dtype float32|bfloat16         the arithmetic; the weights are the exported bfloat16 ones
             --errors                         prints what was wrong

Right is: the same text as the answer, apart from white space; for a story, that it names its hero and ends.
"""
import argparse
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = os.path.join(HERE, "..")


def read(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.strip()]


def right(item, text):
    text = " ".join(text.split())
    if "contains" in item:
        return all(part.lower() in text.lower() for part in item["contains"]) and text.endswith(item["contains"][-1])
    return text == " ".join(item["answer"].split())


def generate(items, dtype):
    """Greedy answers of the exported folder as token ids, {id: (prompt, answer)}; <|end|> is part of the answer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    device, batch = ("cuda", 200) if torch.cuda.is_available() else ("cpu", 16)
    tokenizer = AutoTokenizer.from_pretrained(MODEL, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=getattr(torch, dtype)).to(device).eval()
    prompts = {item["id"]: tokenizer.apply_chat_template(item["messages"], add_generation_prompt=True, tokenize=False) for item in items}
    answers, ids = {}, sorted(prompts, key=lambda i: len(prompts[i]))
    for at in range(0, len(ids), batch):
        part = ids[at:at + batch]
        inputs = tokenizer([prompts[i] for i in part], add_special_tokens=False, padding=True, return_tensors="pt").to(device)
        with torch.no_grad():
            out = model.generate(**inputs, max_new_tokens=200, do_sample=False)
        start = inputs["input_ids"].shape[1]
        for i, row, real in zip(part, out.tolist(), inputs["attention_mask"].sum(1).tolist()):
            answer = [t for t in row[start:] if t != tokenizer.pad_token_id]
            answers[i] = row[start - real:start], answer
    return answers, tokenizer


def run(items, dtype):
    """The same as text, {id: text}."""
    answers, tokenizer = generate(items, dtype)
    return {i: tokenizer.decode(answer, skip_special_tokens=True).strip() for i, (_, answer) in answers.items()}


def score(items, answers, show_errors):
    kinds = {}
    for item in items:
        ok = item["id"] in answers and right(item, answers[item["id"]])
        entry = kinds.setdefault(item["kind"], {"right": 0, "of": 0})
        entry["right"] += ok
        entry["of"] += 1
        if show_errors and not ok:
            print(f"{item['id']}: {item['messages'][-1]['content']!r}\n   expected {item.get('answer', item.get('contains'))!r}\n"
                  f"   got      {answers.get(item['id'])!r}")
    for entry in kinds.values():
        entry["accuracy"] = round(entry["right"] / entry["of"], 4)
    got, of = sum(e["right"] for e in kinds.values()), sum(e["of"] for e in kinds.values())
    return {"total": {"right": got, "of": of, "accuracy": round(got / of, 4)}, "kinds": kinds}


def result_path(items, dtype):
    """result.json for heldout.jsonl in float32; result-fresh.json, result-bfloat16.json and so on for the rest."""
    name = os.path.basename(items).rsplit(".", 1)[0]
    parts = ["result"] + ([name] if name != "heldout" else []) + ([dtype] if dtype != "float32" else [])
    return os.path.join(HERE, "-".join(parts) + ".json")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--outputs")
    parser.add_argument("--items", default=os.path.join(HERE, "heldout.jsonl"))
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--errors", action="store_true")
    args = parser.parse_args()
    items = read(args.items)
    if args.outputs:
        answers = {o["id"]: o["texts"][0] if "texts" in o else o["text"] for o in read(args.outputs)}
    else:
        answers = run(items, args.dtype)
    result = score(items, answers, args.errors)
    if not args.outputs:
        result = {"weights": "bfloat16", "arithmetic": args.dtype, "decoding": "greedy", **result}
        with open(result_path(args.items, args.dtype), "w", encoding="utf-8") as file:
            json.dump(result, file, indent=2)
            file.write("\n")
    print(json.dumps(result["total"]), *(f"{k}: {v['right']}/{v['of']}" for k, v in result["kinds"].items()), sep="\n")


if __name__ == "__main__":
    main()
