#!/usr/bin/env python3
"""Makes tests/data/tokenizers/kimi: a small vocabulary in tiktoken's form as Moonshot's TikTokenTokenizer reads it, and
cases.json with what the library tiktoken gives for strings of tokenizer_strings.py.

    python3 tests/scripts/make_tiktoken_golden.py       (needs: pip install tiktoken regex tokenizers==0.23.*)

Some tokens are made of the letters a and b alone, so that neighbours can be merged to one token in more ways than one.
"""

import base64
import collections
import json
import random

import regex
import tiktoken

import tokenizer_strings
import tokenizer_text
from train_tokenizers import CASES, DATA, write_cases

SEED = 77
HAN, NOT_HAN = r"[\p{Han}]+", r"&&[^\p{Han}]]"
BEFORE, AFTER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}" + NOT_HAN, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}" + NOT_HAN
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
PATTERN = "|".join((HAN, rf"[^\r\n\p{{L}}\p{{N}}]?{BEFORE}*{AFTER}+{CONTRACTION}",
                    rf"[^\r\n\p{{L}}\p{{N}}]?{BEFORE}+{AFTER}*{CONTRACTION}", r"\p{N}{1,3}",
                    r" ?[^\s\p{L}\p{N}]+[\r\n]*", r"\s*[\r\n]+", r"\s+(?!\S)", r"\s+"))
SPECIAL = ("[BOS]", "[EOS]", "<|im_end|>", "<|im_user|>", "<|im_assistant|>", None, "<|im_system|>", "<|im_middle|>",
           "[UNK]", "[PAD]")  # None: an id without a token


def learn(words, size):
    """The tokens of byte-pair encoding, by rank."""
    tokens, parts = [bytes([byte]) for byte in range(256)], {word: [bytes([b]) for b in word] for word in words}
    while len(tokens) < size:
        pairs = collections.Counter()
        for word, count in words.items():
            for pair in zip(parts[word], parts[word][1:]):
                pairs[pair] += count
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        tokens.append(best[0] + best[1])
        for word, symbols in parts.items():
            i = 0
            while i + 1 < len(symbols):
                if (symbols[i], symbols[i + 1]) == best:
                    symbols[i:i + 2] = [tokens[-1]]
                i += 1
    return list(dict.fromkeys(tokens))


def ambiguous(rng, tokens, count):
    """Tokens of two letters, each of two earlier ones."""
    of_letters = [b"a", b"b"]
    while count > 0:
        token = rng.choice(of_letters) + rng.choice(of_letters)
        if len(token) < 9 and token not in tokens:
            tokens.append(token)
            of_letters.append(token)
            count -= 1


def main():
    rng, folder = random.Random(SEED), DATA / "kimi"
    text = " ".join(tokenizer_text.Text(SEED, 0.02).paragraphs(1 << 16))
    words = collections.Counter(word.encode() for word in regex.findall("(?V1)" + PATTERN, text))
    tokens = learn(words, 600)
    ambiguous(rng, tokens, 60)
    ranks = {token: rank for rank, token in enumerate(tokens)}
    added = {len(tokens) + i: name for i, name in enumerate(SPECIAL) if name}
    library = tiktoken.Encoding("kimi", pat_str=PATTERN, mergeable_ranks=ranks,
                                special_tokens={name: id for id, name in added.items()})
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tiktoken.model").write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n"
                                                   for token, rank in ranks.items()))
    entry = lambda name: dict(content=name, lstrip=False, normalized=False, rstrip=False, single_word=False,
                              special=True)
    config = dict(added_tokens_decoder={str(id): entry(name) for id, name in added.items()}, bos_token="[BOS]",
                  eos_token="[EOS]", pad_token="[PAD]", unk_token="[UNK]", tokenizer_class="TikTokenTokenizer")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
    write_cases(folder, cases(library, rng, added))


def cases(library, rng, added):
    def decode(ids, skip):
        return b"".join(library.decode_single_token_bytes(id) for id in ids if not (skip and id in added)).decode(
            errors="replace")
    strings = list(tokenizer_strings.Strings(SEED, list(added.values())).generate(CASES, 24))
    strings += ["".join(rng.choice("ab") for _ in range(rng.randrange(2, 40))) for _ in range(60)]
    encode = []
    for text in strings:
        ids = library.encode(text, allowed_special="all")
        case = {"text": text, "ids": ids}
        if (plain := library.encode(text, disallowed_special=())) != ids:
            case["plain"] = plain
        for key, skip in (("decoded", False), ("skipped", True)):
            if (decoded := decode(ids, skip)) != text:
                case[key] = decoded
        encode.append(case)
    known = list(range(min(added))) + list(added)
    lists = [[rng.choice(known) for _ in range(rng.randrange(1, 24))] for _ in range(CASES // 6)]
    return {"before": [], "encode": encode,
            "decode": [dict(ids=ids, decoded=decode(ids, False), skipped=decode(ids, True)) for ids in lists]}


if __name__ == "__main__":
    main()
