#!/usr/bin/env python3
"""Encodes and decodes random texts with random byte-pair encodings, by quire and by the Python library tokenizers.

    python3 tests/scripts/diff_bpe.py [--count N] [--seed N] ENCODE_TOOL

(needs: pip install tokenizers==0.23.*; ENCODE_TOOL is build/PRESET/encode.) Each tokenizer.json has a random small
vocabulary, merges, options of BPE, added tokens and components, and gets 20 texts: the ids with added tokens parsed, with
what the post-processor adds, and the text of the ids, special tokens shown and hidden, decoded at once and id by id, must be
equal, or both fail. A file that quire refuses is counted, with its sentence. Prints the first differences and a line with
the counts; exit status 1 if there are any.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

os.environ["TOKENIZERS_PARALLELISM"] = "false"
import tokenizers

import compare_tokenizers
import tokenizer_strings
import train_tokenizers
from compare_tokenizers import ADD_BOS, DECODE, PARSE_SPECIAL, STREAM

TEXTS, SHOWN = 20, 10  # of one tokenizer; differences printed
LETTERS = ["ab", "abc", "aAbB", "abé", "a日本", "ab1", "lower", "ae\u0301", "x👩‍💻", "ﬁİß"]
MARKS = [" ", " ", "\n", ".", "'", "<", "▁", "Ġ", "1", "  ", "\t", "_"]
REGEXES = [train_tokenizers.LLAMA3, train_tokenizers.QWEN2, train_tokenizers.O200K, train_tokenizers.DEEPSEEK, r"\s+", r"\w+|[^\w\s]+",
           "a+", r"\p{N}", "(?<=a)b", r"(a)\1", "b(?!c)", r"[^a\s]+", "a|ab", r"\b", "é"]


def byte_characters():
    """ByteLevel's table: byte -> character."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


BYTES = byte_characters()


def normalize(normalizer, text):
    empty = {"version": "1.0", "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": None, "post_processor": None, "decoder": None,
             "model": {"type": "BPE", "vocab": {}, "merges": []}}
    return tokenizers.Tokenizer.from_str(json.dumps(empty)).normalizer.normalize_str(text)


class Maker:
    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.letters = list(self.rng.choice(LETTERS)) + self.rng.sample(MARKS, self.rng.randrange(1, 5))

    def pick(self, *choices):
        return self.rng.choice(choices)

    def chance(self, share):
        return self.rng.random() < share

    def word(self, most=4):
        return "".join(self.rng.choices(self.letters, k=self.rng.randrange(1, most + 1)))

    # --- the model

    def pieces(self, symbols):
        """Pieces and merges of a vocabulary that begins with `symbols`."""
        pieces, merges = list(dict.fromkeys(symbols)), []
        for _ in range(self.rng.randrange(25)):
            left, right = self.rng.choice(pieces), self.rng.choice(pieces)
            if len(left + right) > 12 or (left, right) in merges:
                continue
            merges.append((left, right))
            if left + right not in pieces:
                pieces.append(left + right)
        if self.chance(0.3):
            self.rng.shuffle(merges)
        return pieces, merges

    def model(self, byte_level):
        if byte_level:
            spelled = [BYTES[b] for b in "".join(self.letters).encode()]
            symbols = spelled + (list(BYTES.values()) if self.chance(0.7) else [])
        else:
            symbols = self.letters + ["▁"] * self.chance(0.7)
            symbols = self.rng.sample(symbols, max(1, len(symbols) - self.rng.randrange(3)))
        pieces, merges = self.pieces(symbols)
        model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
                 "fuse_unk": self.chance(0.5), "byte_fallback": not byte_level and self.chance(0.4), "ignore_merges": self.chance(0.3)}
        if self.chance(0.5):
            model["unk_token"] = self.pick("<unk>", pieces[0], "nowhere" if self.chance(0.2) else "<unk>")
        pieces += [self.word() for _ in range(self.rng.randrange(3))] if not byte_level else []
        pieces += ["<unk>"] * self.chance(0.8) + [f"<0x{b:02X}>" for b in range(256 if self.chance(0.8) else 128)] * model["byte_fallback"]
        pieces = list(dict.fromkeys(pieces))
        if self.chance(0.3):
            self.rng.shuffle(pieces)
        model["vocab"] = {piece: i for i, piece in enumerate(pieces)}
        model["merges"] = [list(m) for m in merges]
        return model

    # --- components

    def normalizer(self):
        one = lambda: self.pick(
            {"type": self.pick("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents")}, {"type": "Prepend", "prepend": self.pick("▁", "a", " ")},
            train_tokenizers.replace(self.pick(" ", "a", self.word(2)), self.pick("▁", "", "b", " ")),
            train_tokenizers.replace(self.pick(r"\s+", "a+", r"[ab]", r"\p{L}"), self.pick(" ", "", "x"), "Regex"),
            {"type": "Strip", "strip_left": self.chance(0.5), "strip_right": self.chance(0.5)})
        return self.several("normalizers", one, 0.5)

    def several(self, key, one, none):
        if self.chance(none):
            return None
        return one() if self.chance(0.5) else train_tokenizers.sequence(key, *(one() for _ in range(self.rng.randrange(1, 4))))

    def pre_tokenizer(self):
        behaviors = ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
        return self.several("pretokenizers", lambda: self.pick(
            train_tokenizers.split(self.rng.choice(REGEXES), self.rng.choice(behaviors), self.chance(0.3)),
            train_tokenizers.split(self.rng.choice(REGEXES), "Isolated"),
            train_tokenizers.split(self.word(2), self.rng.choice(behaviors), self.chance(0.3), "String"),
            {"type": "Digits", "individual_digits": self.chance(0.5)}, {"type": self.pick("Whitespace", "WhitespaceSplit")},
            {"type": "Punctuation", "behavior": self.rng.choice(behaviors)},
            {"type": "Metaspace", "replacement": "▁", "prepend_scheme": self.pick("always", "first", "never"), "split": self.chance(0.7)}), 0.3)

    def byte_level(self):
        return {"type": "ByteLevel", "add_prefix_space": self.chance(0.3), "trim_offsets": True, "use_regex": self.chance(0.6)}

    def decoder(self, byte_level):
        if byte_level:
            return {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
        llama = train_tokenizers.sequence("decoders", train_tokenizers.replace("▁", " "), {"type": "ByteFallback"}, {"type": "Fuse"},
                                          {"type": "Strip", "content": " ", "start": self.rng.randrange(3), "stop": 0})
        metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": self.pick("always", "first", "never"), "split": True}
        return self.pick(None, llama, metaspace, {"type": "Fuse"}, {"type": "ByteFallback"})

    def added_tokens(self, size):
        # tokenizers shows a special token even where it hides them if a normalizer changes its spelling.
        contents = {self.pick(self.word(3), f"<{self.word(2)}>", "<unk>", "  ", "<s>") for _ in range(self.rng.randrange(5))}
        return [{"id": size + i, "content": content, "single_word": self.chance(0.2), "lstrip": self.chance(0.2), "rstrip": self.chance(0.2),
                 **self.pick({"normalized": False, "special": True}, {"normalized": self.chance(0.5), "special": False})}
                for i, content in enumerate(sorted(contents)) if not (" " in content and "▁" in content)]

    def file(self):
        byte_level = self.chance(0.5)
        model = self.model(byte_level)
        added = self.added_tokens(len(model["vocab"]))
        merged = model["vocab"] if model["ignore_merges"] else {"".join(m) for m in model["merges"]}  # bpe_forbid
        for token in added:
            token["id"] = model["vocab"].get(token["content"], token["id"])
            token["special"] &= token["content"] not in merged
        for i, token in enumerate(t for t in added if t["id"] >= len(model["vocab"])):
            token["id"] = len(model["vocab"]) + i
        normalizer, pre_tokenizer = self.normalizer(), self.pre_tokenizer()
        if "first" in json.dumps(pre_tokenizer):  # goes by the offset before normalization in tokenizers
            normalizer = None
            if json.dumps(pre_tokenizer).count("Metaspace") > 1:  # the second sees the first one's prefix at that offset
                pre_tokenizer = None
        # What a normalizer makes of an added token is left out where that is nothing, which tokenizers finds everywhere; where it is another
        # added token; and where it has a space and a U+2581, which a Metaspace does not tell apart in quire.
        for token in added:
            spelled = normalize(normalizer, token["content"]) if normalizer else token["content"]
            token["normalized"] &= spelled == token["content"] or (bool(spelled.strip(" ▁")) and " " not in spelled and "<" not in spelled)
        if byte_level:
            pre_tokenizer = train_tokenizers.sequence("pretokenizers", *([pre_tokenizer] if pre_tokenizer else []), self.byte_level())
        post = None
        if added and self.chance(0.4):
            token = self.rng.choice(added)
            post = train_tokenizers.bos_first(token["content"])
            post["special_tokens"][token["content"]]["ids"] = [token["id"]]
        return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
                "pre_tokenizer": pre_tokenizer, "post_processor": post, "decoder": self.decoder(byte_level), "model": model}

    def texts(self, file, seed):
        spelled = [token["content"] for token in file["added_tokens"]]
        strings = tokenizer_strings.Strings(seed, spelled)
        for i in range(TEXTS):
            if i % 4 == 0:
                yield strings.of_kind(self.rng.choice(list(strings.kinds)), 20)
            else:
                parts = [self.rng.choice(spelled) if spelled and self.chance(0.15) else self.word() for _ in range(self.rng.randrange(9))]
                yield "".join(parts)


class Refused(Exception):
    pass


class Quire:
    """The tool, started anew after each failure."""

    def __init__(self, tool, folder):
        self.tool, self.folder = tool, folder
        self.open()

    def open(self):
        self.process = subprocess.Popen([self.tool, self.folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.ask = lambda operation, flags, payload: compare_tokenizers.Quire.ask(self, operation, flags, payload)
        try:
            self.answer()
        except RuntimeError:
            raise Refused(self.process.stderr.read().decode().strip().removeprefix("encode: "))

    answer = compare_tokenizers.Quire.answer
    encode = compare_tokenizers.Quire.encode
    text = compare_tokenizers.Quire.text

    def attempt(self, function, *arguments):
        try:
            return function(*arguments)
        except (RuntimeError, BrokenPipeError):
            sentence = self.process.stderr.read().decode().strip()
            if self.process.wait() != 1:
                sys.exit(f"{self.folder}: encode ended with status {self.process.returncode}: {sentence}")
            self.open()
            return None

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        self.process.stderr.close()


class Panic(Exception):
    """tokenizers itself breaks."""


def attempt(function, *arguments, **options):
    try:
        return function(*arguments, **options)
    except Exception:
        return None
    except BaseException as e:
        raise Panic if type(e).__name__ == "PanicException" else e


def compare(theirs, quire, text):
    """The first difference as (what, theirs, ours), or None."""
    for flags, with_special in ((PARSE_SPECIAL, False), (PARSE_SPECIAL | ADD_BOS, True)):
        encoding = attempt(theirs.encode, text, add_special_tokens=with_special)
        ids, ours = None if encoding is None else encoding.ids, quire.attempt(quire.encode, text, flags)
        if ids != ours:
            return f"ids of {text!r}", ids, ours
        if ids is None:
            return None
    for shown in (False, True):
        expected = attempt(theirs.decode, ids, skip_special_tokens=not shown)
        for operation in (DECODE, STREAM):
            ours = quire.attempt(quire.text, operation, ids, shown)
            if expected is not None and expected != ours:
                return f"text of {ids}{', id by id' if operation == STREAM else ''}", expected, ours
    return None


def describe(file):
    """The file without what is null or false, and without a vocabulary of bytes."""
    short = lambda v: {k: short(x) for k, x in v.items() if x not in (None, False, [])} if isinstance(v, dict) else \
        [short(x) for x in v] if isinstance(v, list) else v
    model = {k: v if k != "vocab" else f"{len(v)} pieces" for k, v in file["model"].items()}
    return json.dumps(short({**file, "model": model}), ensure_ascii=False)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100000, help="texts")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("tool")
    arguments = parser.parse_args()
    refused, different, compared, invalid, panics, seed = collections.Counter(), 0, 0, 0, 0, arguments.seed
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "tokenizer.json"
        while compared < arguments.count:
            maker, seed = Maker(seed), seed + 1
            file = maker.file()
            path.write_text(json.dumps(file))
            try:
                theirs = attempt(tokenizers.Tokenizer.from_file, str(path))
            except Panic:
                theirs = None
            if theirs is None:
                invalid += 1
                continue
            try:
                quire = Quire(arguments.tool, folder)
            except Refused as e:
                refused[str(e).replace(str(path), "tokenizer.json")[:110]] += 1
                continue
            for text in maker.texts(file, seed):
                compared += 1
                try:
                    difference = compare(theirs, quire, text)
                except Panic:
                    panics += 1
                    continue
                if difference:
                    different += 1
                    if different <= SHOWN:
                        print(f"seed {seed - 1}: {difference[0]}\n  tokenizers {difference[1]!r}\n  quire      {difference[2]!r}", flush=True)
                        print(f"  {describe(file)}", flush=True)
                    break
            quire.close()
    for sentence, times in refused.most_common(10):
        print(f"refused {times} times: {sentence}")
    print(f"{compared} texts, {seed - arguments.seed} tokenizers, of which tokenizers refuses {invalid} and quire "
          f"{sum(refused.values())}; tokenizers panics {panics} times; {different} different")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
