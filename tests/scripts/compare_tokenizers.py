#!/usr/bin/env python3
"""Compares quire's tokenizer with the Python libraries: tokenizers for a folder with tokenizer.json, sentencepiece for
one with tokenizer.model alone.

    python3 tests/scripts/compare_tokenizers.py [--count N] ENCODE_TOOL FOLDER...
    python3 tests/scripts/compare_tokenizers.py --time [--megabytes N] ENCODE_TOOL FOLDER...

(needs: pip install tokenizers==0.23.* sentencepiece; ENCODE_TOOL is build/PRESET/encode.) For N strings of
tokenizer_strings.py and a dozen of 1 MB, these must be equal: the ids with added tokens parsed, with bos too, and with no
added token matched; for these ids and for random ones the text, special tokens shown and hidden, decoded at once and id
by id. (A tokenizer.model with user-defined symbols differs: quire finds none in plain text.) Prints the first
differences and a line a folder; exit status 1 if there are any. --time instead encodes the same text with both, in turns,
each on one thread, and opens the files.
"""
import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import time

os.environ["TOKENIZERS_PARALLELISM"], os.environ["RAYON_NUM_THREADS"] = "false", "1"
import sentencepiece
import tokenizers

import tokenizer_strings
import tokenizer_text
import train_tokenizers

ENCODE, DECODE, STREAM = 0, 1, 2  # tests/tools/encode.c
ADD_BOS, PARSE_SPECIAL = 1, 2     # tokenizer.h
SHOWN = 8                         # differences of one folder


class Quire:
    def __init__(self, tool, folder):
        self.process = subprocess.Popen([tool, folder], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.seconds, _ = self.answer()  # of the last operation; at first, of opening

    def answer(self):
        header = self.process.stdout.read(12)
        if len(header) < 12:
            raise RuntimeError(f"encode ended with status {self.process.wait()}")
        seconds, length = struct.unpack("=dI", header)
        return seconds, self.process.stdout.read(length)

    def ask(self, operation, flags, payload):
        self.process.stdin.write(struct.pack("=III", operation, flags, len(payload)) + payload)
        self.process.stdin.flush()
        self.seconds, result = self.answer()
        return result

    def encode(self, text, flags):
        result = self.ask(ENCODE, flags, text.encode())
        return list(struct.unpack(f"={len(result) // 4}i", result))

    def text(self, operation, ids, with_special):
        return self.ask(operation, with_special, struct.pack(f"={len(ids)}i", *ids)).decode()

    def peak_memory(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) * 1024

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Tokenizers:
    """A folder with tokenizer.json."""

    def __init__(self, folder):
        self.path = folder / "tokenizer.json"
        self.tokenizer, self.plain = tokenizers.Tokenizer.from_file(str(self.path)), train_tokenizers.without_special(folder)
        self.size = self.tokenizer.get_vocab_size()
        self.specials = [t.content for t in self.tokenizer.get_added_tokens_decoder().values()]
        self.encoders = [("parsed", PARSE_SPECIAL, lambda text: self.tokenizer.encode(text, add_special_tokens=False).ids),
                         ("with bos", PARSE_SPECIAL | ADD_BOS, lambda text: self.tokenizer.encode(text).ids),
                         ("plain", 0, lambda text: self.plain.encode(text, add_special_tokens=False).ids)]
        self.decoders = [("shown", 1, lambda ids: self.tokenizer.decode(ids, skip_special_tokens=False)),
                         ("hidden", 0, lambda ids: self.tokenizer.decode(ids, skip_special_tokens=True))]

    def open(self):
        tokenizers.Tokenizer.from_file(str(self.path))

    def encode(self, text):
        """The faster way: without offsets."""
        self.tokenizer.encode_batch_fast([text], add_special_tokens=False)


class SentencePiece:
    """A folder with tokenizer.model alone: the library parses no special tokens, and never shows them."""

    def __init__(self, folder):
        self.path = folder / "tokenizer.model"
        self.model = sentencepiece.SentencePieceProcessor(model_file=str(self.path))
        self.size = self.model.get_piece_size()
        self.specials = [self.model.id_to_piece(i) for i in range(self.size) if self.model.is_control(i)]
        self.encoders = [("plain", 0, self.model.encode)]
        self.decoders = [("hidden", 0, self.model.decode)]

    def open(self):
        sentencepiece.SentencePieceProcessor(model_file=str(self.path))

    def encode(self, text):
        self.model.encode(text)


def open_reference(folder):
    return Tokenizers(folder) if (folder / "tokenizer.json").exists() else SentencePiece(folder)


# --- equality

def shorten(value):
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "..."


def first_difference(ours, expected):
    """What follows the place where two strings or lists part."""
    at = next((i for i, (a, b) in enumerate(zip(ours, expected)) if a != b), min(len(ours), len(expected)))
    return f"at {at}: quire {shorten(ours[at:at + 12])}, expected {shorten(expected[at:at + 12])}"


class Comparison:
    def __init__(self, quire, reference):
        self.quire, self.reference = quire, reference
        self.strings = self.checks = self.differences = 0

    def check(self, what, given, ours, expected):
        self.checks += 1
        if ours == expected:
            return
        self.differences += 1
        if self.differences <= SHOWN:
            print(f"  {what} of {shorten(given)}\n    {first_difference(ours, expected)}", flush=True)

    def ids(self, ids):
        for name, flags, decode in self.reference.decoders:
            expected = decode(ids)
            self.check(f"decode, specials {name},", ids, self.quire.text(DECODE, ids, flags), expected)
            self.check(f"stream, specials {name},", ids, self.quire.text(STREAM, ids, flags), expected)

    def string(self, text):
        self.strings += 1
        expected = []
        for name, flags, encode in self.reference.encoders:
            ids = encode(text)
            self.check(f"ids, {name},", text, self.quire.encode(text, flags), ids)
            if ids not in expected:
                self.ids(ids)
            expected.append(ids)

    def run(self, count, seed):
        rng = random.Random(seed)
        for i, text in enumerate(tokenizer_strings.Strings(seed, self.reference.specials).generate(count, 60)):
            self.string(text)
            if i % 4 == 0:
                self.ids([rng.randrange(self.reference.size) for _ in range(rng.randrange(1, 30))])
        for _, text in tokenizer_strings.long_strings(seed):
            self.string(text)


def compare(tool, folder, args):
    quire, start = Quire(tool, folder), time.time()
    comparison = Comparison(quire, open_reference(folder))
    comparison.run(args.count, args.seed)
    quire.close()
    print(f"{folder.name}: {comparison.strings} strings, {comparison.checks} comparisons, {comparison.differences} "
          f"differences ({time.time() - start:.0f} s)", flush=True)
    return comparison.differences


# --- time

def seconds_of(function, *arguments):
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def documents(megabytes):
    """Mixed text, in documents of about 10 kB."""
    parts, size, out = [], 0, []
    for paragraph in tokenizer_text.Text(99, 0.5).paragraphs(int(megabytes * 1e6)):
        parts.append(paragraph)
        size += len(paragraph.encode())
        if size > 10000:
            out.append("".join(parts))
            parts, size = [], 0
    return out


def quire_seconds(quire, text):
    quire.encode(text, PARSE_SPECIAL)
    return quire.seconds


def measure(tool, folder, args):
    """The best of three turns each."""
    reference, texts, ours, theirs, opened, reference_opened = open_reference(folder), documents(args.megabytes), [], [], [], []
    megabytes = sum(len(t.encode()) for t in texts) / 1e6
    for _ in range(3):
        quire = Quire(tool, folder)
        opened.append(quire.seconds)
        memory = quire.peak_memory()
        reference_opened.append(seconds_of(reference.open))
        ours.append(sum(quire_seconds(quire, t) for t in texts))
        theirs.append(sum(seconds_of(reference.encode, t) for t in texts))
    size = reference.path.stat().st_size
    print(f"{folder.name}: encode {megabytes:.1f} MB: {megabytes / min(ours):.1f} MB/s, reference {megabytes / min(theirs):.1f} "
          f"MB/s, {min(theirs) / min(ours):.2f} times as fast; open {1000 * min(opened):.0f} ms, reference "
          f"{1000 * min(reference_opened):.0f} ms; memory {memory / 1e6:.0f} MB, {memory / size:.1f} times the file", flush=True)
    for name, unit in (("one letter", "a"), ("spaces", " "), ("emoji", "😀")):
        seconds = quire_seconds(quire, unit * int(args.megabytes * 1e6 / len(unit.encode())))
        print(f"{folder.name}: {args.megabytes:g} MB of {name}: {seconds:.3f} s", flush=True)
    quire.close()
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("tool")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    failed = 0
    for folder in args.folders:
        try:
            failed += (measure if args.time else compare)(args.tool, folder, args) > 0
        except Exception as error:  # the other folders are still compared
            print(f"{folder.name}: {error}", flush=True)
            failed += 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
