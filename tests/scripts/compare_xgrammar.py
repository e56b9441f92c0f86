#!/usr/bin/env python3
"""Times quire's grammars beside xgrammar's: the same schemas, answers and vocabulary, in one run, on one thread.

usage: compare_xgrammar.py QUIRE MODEL_FOLDER      (pip install xgrammar transformers)

Schemas and answers are made here, with a fixed seed. For each schema: the time to make it ready, and of the masks
before each token of the answer, the first time the schema is used and the second. Both sides count the processor time
of their thread, because a mask takes less time than a pause that the system makes. Exit status 1 if quire is slower in
a median or in a total.
"""
import argparse
import json
import random
import statistics
import subprocess
import tempfile
import time

WORDS = ("the quick brown fox jumps over a lazy dog and writes \"quoted\" reports about naïve café 日本語 data; "
         "values: 12.5% (approx) http://example.com/path?x=1&y=2 \\ end").split()


def sentence(rng, most=190):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 25)))[:most]


def point(rng):
    return {"x": rng.randint(0, 100) / 4, "y": rng.randint(0, 100)}


POINT = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}},
         "required": ["x", "y"], "additionalProperties": False}
KINDS = [
    ({"type": "string"}, sentence),
    ({"type": "integer"}, lambda rng: rng.randint(-999, 99999)),
    ({"type": "boolean"}, lambda rng: rng.random() < 0.5),
    ({"type": "array", "items": {"type": "string"}}, lambda rng: [sentence(rng) for _ in range(rng.randint(0, 4))]),
    ({"enum": ["red", "green", "blue"]}, lambda rng: rng.choice(["red", "green", "blue"])),
    (POINT, point),
]
BOUNDED = [({"type": "string", "maxLength": 64}, lambda rng: sentence(rng, 60))]


def flat(rng, count, kinds, optional=False):
    """An object of so many properties, and an instance."""
    properties, instance = {}, {}
    for i in range(count):
        schema, draw = kinds[i % len(kinds)]
        properties[f"property_{i}"] = schema
        if not optional or rng.random() < 0.7:
            instance[f"property_{i}"] = draw(rng)
    schema = {"type": "object", "properties": properties, "required": [] if optional else list(properties),
              "additionalProperties": False}
    return schema, instance


def tree(rng):
    """A recursive schema."""
    def node(depth):
        children = [node(depth - 1) for _ in range(rng.randint(0, 3))] if depth else []
        return {"name": sentence(rng, 30), "children": children}

    schema = {"$defs": {"node": {"type": "object", "properties": {"name": {"type": "string"},
                                                                  "children": {"type": "array",
                                                                               "items": {"$ref": "#/$defs/node"}}},
                                 "required": ["name", "children"], "additionalProperties": False}},
              "$ref": "#/$defs/node"}
    return schema, node(4)


def make_cases():
    rng = random.Random(1)
    return [("10 properties", *flat(rng, 10, KINDS)), ("100 properties", *flat(rng, 100, KINDS)),
            ("100, optional", *flat(rng, 100, KINDS, optional=True)), ("tree", *tree(rng)),
            ("2 strings of 64", *flat(rng, 2, BOUNDED))]


def percentile(values, percent):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * percent / 100))]


def run_xgrammar(compiler, bitmask, case, encode, repeats=3):
    """Microseconds: {"compile": median, "mask": [first, second]}, of the fastest of several runs."""
    import xgrammar
    _, schema, instance = case
    ids = encode(json.dumps(instance, ensure_ascii=False))
    compile_us, masks = [], []
    for _ in range(repeats):
        compiler.clear_cache()
        start = time.process_time()
        compiled = compiler.compile_json_schema(json.dumps(schema), any_whitespace=False)
        compile_us.append(1e6 * (time.process_time() - start))
        masks = []
        for _ in range(2):
            matcher, times = xgrammar.GrammarMatcher(compiled), []
            for token in ids:
                start = time.thread_time()
                matcher.fill_next_token_bitmask(bitmask)
                times.append(1e6 * (time.thread_time() - start))
                if not matcher.accept_token(token):
                    raise SystemExit(f"xgrammar refuses an answer of {case[0]}")
            masks.append(times)
    return {"compile": statistics.median(compile_us), "mask": masks}


def run_quire(executable, folder, case):
    name, schema, instance = case
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        json.dump({"json": schema, "disable_any_whitespace": True,
                   "answer": json.dumps(instance, ensure_ascii=False)}, file, ensure_ascii=False)
        file.flush()
        out = subprocess.run([executable, "bench", "grammar", file.name, "-m", folder, "--json", "--num-iters", "3"],
                             stdout=subprocess.PIPE, check=True).stdout
    return {key: statistics.median(run["values"]) for key, run in json.loads(out)["runs"].items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quire")
    parser.add_argument("folder")
    arguments = parser.parse_args()
    import transformers
    import xgrammar
    tokenizer = transformers.AutoTokenizer.from_pretrained(arguments.folder)
    info = xgrammar.TokenizerInfo.from_huggingface(tokenizer, vocab_size=len(tokenizer))
    compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
    bitmask = xgrammar.allocate_token_bitmask(1, info.vocab_size)
    print(f"{info.vocab_size} tokens; microseconds, quire / xgrammar")
    print(f"{'':20} {'ready':>17} {'mask, mean':>17} {'median':>15} {'99.9 %':>17} {'second, median':>17}")
    slower = False
    for case in make_cases():
        other = run_xgrammar(compiler, bitmask, case, lambda text: tokenizer.encode(text, add_special_tokens=False))
        mine = run_quire(arguments.quire, arguments.folder, case)
        first, second = other["mask"]
        pairs = [(mine["compile_median"], other["compile"]), (mine["mask_mean"], statistics.mean(first)),
                 (mine["mask_median"], statistics.median(first)), (mine["mask_p99_9"], percentile(first, 99.9)),
                 (mine["known_mask_median"], statistics.median(second))]
        print(f"{case[0]:20}" + " ".join(f"{a:8.4g} / {b:7.4g}" for a, b in pairs), flush=True)
        slower = slower or any(a > b for a, b in (pairs[0], pairs[1], pairs[2], pairs[4]))
    print("quire is slower somewhere" if slower else "quire is faster in all but perhaps the slowest masks")
    raise SystemExit(slower)


if __name__ == "__main__":
    main()
