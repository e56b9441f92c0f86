#!/usr/bin/env python3
"""Makes tests/data/bpe_golden.json: small BPE models with every option, words, and the ids of Python's tokenizers.

    python3 tests/scripts/make_bpe_golden.py        (needs: pip install tokenizers==0.23.*)

"byte_level" says that the model's pieces are written in ByteLevel's characters; words are always plain text.
"""
import json
import os
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "bpe_golden.json")
BYTE_LEVEL = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
OPTIONS = {
    "unk_token": None,
    "continuing_subword_prefix": None,
    "end_of_word_suffix": None,
    "fuse_unk": False,
    "byte_fallback": False,
    "ignore_merges": False,
}
SUBJECTS = "the river|a stone|my neighbour|every sailor|the old clock|the café|an über-long train|日本の駅".split("|")
VERBS = "carries|forgets|repairs|watches|paints|follows|remembers|breaks|opens|measures".split("|")
OBJECTS = "the harbour|seven letters|a wooden door|the morning|its own shadow|a naïve plan|the keys|    return 0;".split("|")


def sentences(rng, count):
    return [" ".join(rng.choice(part) for part in (SUBJECTS, VERBS, OBJECTS)) for _ in range(count)]


def train(texts, pre_tokenizer, size, **options):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, **options)
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())["model"]


def numbered(pieces, merges):
    return {"vocab": {piece: id for id, piece in enumerate(pieces)}, "merges": merges}


def with_suffix(model, suffix):
    """Each piece, and each merge, also at the end of a word. (The trainer's own order is not the same in each run.)"""
    pieces = [piece + end for piece in model["vocab"] for end in ("", suffix)]
    return numbered(pieces, [[left, right + end] for left, right in model["merges"] for end in (suffix, "")])


def with_prefix(model, prefix):
    """Each piece, and each merge, also inside of a word."""
    pieces = [begin + piece for piece in model["vocab"] for begin in ("", prefix)]
    return numbered(pieces, [[begin + left, prefix + right] for left, right in model["merges"] for begin in (prefix, "")])


def case(name, model, words, byte_level=False, **options):
    """A model with only the options that are given; tokenizers' ids for each word."""
    model = {"type": "BPE", "vocab": model["vocab"], "merges": model["merges"], **OPTIONS, **options}
    tokenizer = Tokenizer.from_str(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    ids = []
    for word in words:
        spelled = "".join(piece for piece, _ in BYTE_LEVEL.pre_tokenize_str(word)) if byte_level else word
        ids.append([token.id for token in tokenizer.model.tokenize(spelled)])
    return {"name": name, "byte_level": byte_level, "model": model, "words": words, "ids": ids}


def byte_level_cases(rng):
    texts = sentences(rng, 300)
    words = sorted({word for text in texts[:20] for word in text.replace(" ", "| ").split("|")})
    words += ["", " ", "\0", "\xad\x7f", "é", "日", "\U0001f600" * 20, "the" * 15, "a" * 40, " " * 100, texts[0] * 30]
    plain = train(texts, pre_tokenizers.ByteLevel(add_prefix_space=False), 400,
                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    yield case("byte level", plain, words, byte_level=True)
    # Pieces that no merge makes, one of them not in ByteLevel's characters.
    extra = {**plain["vocab"], "Ġthe": plain["vocab"].get("Ġthe", 400), "harbourriver": 401, "日": 402}
    more = {"vocab": extra, "merges": plain["merges"]}
    words = words[-12:] + ["harbourriver", " the", "日本"]
    yield case("ignore_merges", more, words, byte_level=True, ignore_merges=True)
    yield case("not ignore_merges", more, words, byte_level=True)
    suffixed = with_suffix(plain, "</w>")
    yield case("end_of_word_suffix", suffixed, words, byte_level=True, end_of_word_suffix="</w>")


def character_cases(rng):
    texts = ["▁" + text.replace(" ", "▁") for text in sentences(rng, 300)]
    bytes_ = ["<0x%02X>" % byte for byte in range(256)]
    words = texts[:10] + ["▁", "x", "▁▁▁▁the", "\n\n", "the▁\U0001f600▁QQ日Q", "▁é\u0301", "a▁" * 40, "\0<0x41>"]
    words.append(texts[0] * 40)
    split = pre_tokenizers.Split("▁", "merged_with_next")
    model = train(texts, split, 600, special_tokens=["<unk>", "<s>", "</s>"] + bytes_)
    merges = model["merges"] + [["▁", "▁"]]
    like = {"vocab": {**model["vocab"], "▁▁": 1000}, "merges": merges}
    yield case("byte_fallback", like, words, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    some = {piece: id for piece, id in like["vocab"].items() if piece not in ("<0x51>", "<0x9F>")}
    for fuse in (False, True):
        yield case("byte pieces missing", {"vocab": some, "merges": merges}, words, byte_fallback=True,
                   unk_token="<unk>", fuse_unk=fuse)
        yield case("unknown characters", like, words, unk_token="<unk>", fuse_unk=fuse)
    yield case("no unk_token", like, words)
    across = merges[:5] + [["e", "▁"], ["e▁", "e"]] + merges[5:]
    joined = {"vocab": {**like["vocab"], "e▁": 1001, "e▁e": 1002}, "merges": across}
    yield case("a merge across spaces", joined, words + ["e▁e▁e", "the▁end"], unk_token="<unk>")
    prefixed = with_prefix(like, "##")
    yield case("continuing_subword_prefix", prefixed, words, continuing_subword_prefix="##")


def random_case(number):
    """Merges in no order: a pair may come up whose rank is lower than that of the merge that made it."""
    rng = random.Random(number)
    alphabet = rng.choice(["ab", "abc", "▁abé"])
    pieces, merges = list(alphabet), []
    for _ in range(rng.choice([5, 20, 80])):
        left, right = rng.choice(pieces), rng.choice(pieces)
        if len(left + right) <= 16 and [left, right] not in merges:
            merges.append([left, right])
            if left + right not in pieces:
                pieces.append(left + right)
    rng.shuffle(merges)
    words = ["".join(rng.choice(alphabet) for _ in range(rng.choice([2, 5, 10, 31, 32, 33, 100]))) for _ in range(12)]
    words.append("".join(rng.choice(alphabet) for _ in range(1200)))
    vocab = {piece: id for id, piece in enumerate(pieces)}
    return case("random %d" % number, {"vocab": vocab, "merges": merges}, words)


def main():
    rng = random.Random(1)
    cases = [*byte_level_cases(rng), *character_cases(rng), *(random_case(number) for number in range(16))]
    with open(OUT, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases) + "\n]\n")


if __name__ == "__main__":
    main()
