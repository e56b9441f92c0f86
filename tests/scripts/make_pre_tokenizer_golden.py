"""Writes tests/data/pre_tokenizer.json and tests/data/normalizer.json: what tokenizers 0.23 makes of texts.

    pip install tokenizers==0.23.3 && python tests/scripts/make_pre_tokenizer_golden.py
"""

import json
import random

from tokenizers import Tokenizer

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
END = r"\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = rf"{CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{END}"
QWEN2 = LLAMA3.replace("{1,3}", "")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|"
          r"\s+(?!\S)|\s")
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"


def words_in_two_cases(suffix, upper=f"[{UPPER}]", lower=f"[{LOWER}]"):
    start = r"[^\r\n\p{L}\p{N}]?"
    return f"{start}{upper}*{lower}+{suffix}|{start}{upper}+{lower}*{suffix}"


O200K = words_in_two_cases(CONTRACTIONS + "?") + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + END
TEKKEN = words_in_two_cases("") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + END
NO_HAN = r"&&[^\p{Han}]]"
KIMI = (r"[\p{Han}]+|" + words_in_two_cases(CONTRACTIONS + "?", f"[{UPPER}{NO_HAN}", f"[{LOWER}{NO_HAN}")
        + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + END)
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
            r" ?[\p{P}\p{S}]+[\r\n]*|" + END)


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def byte_level(add_prefix_space=False, use_regex=False):
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


def metaspace(scheme, do_split=True):
    return {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": do_split}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def pre_tokenizers():
    yield from (byte_level(True, True), byte_level(False, True))
    for pattern in (LLAMA3, QWEN2, CL100K, O200K, TEKKEN, KIMI):
        yield sequence(split(pattern), byte_level())
    yield sequence(split(LLAMA3, "Removed", True), byte_level())
    yield sequence(split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(DEEPSEEK), byte_level())
    yield sequence(split(r"[\r\n]"), split(r"\s?[A-Za-z\u00c0-\u02af\u0400-\u0481]+"), split(r"\s?[!-/:-~\uff01-\uff0f]+"),
                   split(r"\s+$"), split("[\u4e00-\u9fa5\uac00-\ud7a3]+"), digits(True), byte_level())
    yield sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(False, True), digits(False),
                   split("[0-9][0-9][0-9]"))
    yield sequence(digits(True), byte_level(False, True))
    yield split(" ", "MergedWithPrevious", False, "String")
    yield from (metaspace("always"), metaspace("first"), metaspace("never", False), digits(True), digits(False))
    yield from (sequence({"type": "WhitespaceSplit"}, metaspace("first")),
                sequence(sequence({"type": "Punctuation"}), metaspace("first")),
                {"type": "Whitespace"}, {"type": "WhitespaceSplit"})
    for behavior in "Removed Isolated MergedWithPrevious MergedWithNext Contiguous".split():
        yield {"type": "Punctuation", "behavior": behavior}
        for invert in (False, True):
            yield split(r"\s|a*", behavior, invert)
            yield split("a", behavior, invert, "String")
            yield split("", behavior, invert, "String")
    for pattern in (r"\s+$", r"[ab]+$|c", r"^\s*", r"\b", r"\B", r"\w+", r"\W+", r"[^\w]+", r"[^\S\r\n]+", r"[[:punct:]]+",
                    r"\p{Punct}+", r"\p{C}+", r"[^\p{C}a]+", r"[[:alpha:]]+", r"[[:^upper:]]+", r"\p{Cn}", r"\p{^Han}+",
                    r"[\p{L}&&[^a-z]]+", r"(?i:[a-k]+|'s)", r"a(?i)b|c", r"(?m:a.)", r"a.", r"\R", r"a{,2}b?",
                    r"a{2}?", r"a{1,2}+", r"(?:a|b)+?c", r"a+?+", r"(?<=a)b|(?<!\s)c", r"(?>a+)b|\h+", r"\Z", r"\z|a", "$",
                    r"(a)(?<x>b)", r"[\s\S]{3}", r"\O{2}", r"\u4e00|\x{1F600}|\x41", r"[^[^a-c]]+", r"[a-c[x-z]]+", ".*",
                    r"(?=[A-Z])", r"\p{Common}+", r"\p{Mc}+|\p{So}+"):
        yield split(pattern)


def normalizers():
    for form in "NFC NFD NFKC NFKD Lowercase StripAccents".split():
        yield {"type": form}
    for left, right in ((True, True), (True, False), (False, True), (False, False)):
        yield {"type": "Strip", "strip_left": left, "strip_right": right}
    yield {"type": "Sequence", "normalizers": [{"type": "NFKD"}, {"type": "Lowercase"}, {"type": "StripAccents"}]}
    prepend = {"type": "Prepend", "prepend": "\u2581"}
    spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    yield {"type": "Sequence", "normalizers": [prepend, spaces]}
    yield {"type": "Replace", "pattern": {"String": ""}, "content": "x"}
    yield {"type": "Replace", "pattern": {"Regex": r"\s*|a+"}, "content": ""}
    yield {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "\u00e9$1"}
    yield {"type": "Sequence", "normalizers": []}


def texts(count):
    """Texts of random characters, and some that were written for the components above."""
    random.seed(12)
    spaces = [chr(c) for c in (9, 10, 11, 13, 0x1C, 0x20, 0x85, 0xA0, 0x180E, 0x2003, 0x200B, 0x200D, 0x2028, 0x3000)]
    pieces = spaces + ["  ", "\r\n", "\n\n", "\u00e9", "\u00df", "\u0130", "\u65e5\u672c", "\ud55c\uad6d", "\u0e01\u0e47",
                       "\u0928\u092e\u0938\u094d\u0924\u0947", "\u0627\u0644\u0639", "\U0001F469\u200d\U0001F467",
                       "\u2764\ufe0f", "\U0001F1E9\U0001F1EA", "\u00b2", "\u00bd", "\ufb01", "\u1100\u1161\u11a8",
                       "e\u0301\u0316", "\u212b", "'s", "'RE", "'\u017f", "'Ll", "12345", "\U00010D50\U00010D40\U00016EA0",
                       "\U000105D2\u0307", "\U0001CCF0", "\U0001171E", "\u0897\u1AC5\u0301", "\U0001FBF3"]
    pieces += list("abcstdmrevlABCSTDMLK'\"./!_-019")

    def piece():
        block = random.choice([(0x80, 0x800), (0x800, 0xD800), (0x10000, 0x20000), (0x20000, 0x110000)])
        return random.choice(pieces) if random.random() < 0.8 else chr(random.randrange(*block))

    written = ["", " ", "\n", "a", "It's THEY'RE we'Ll  x = 12345678 \u0661\u0662;\r\n\n\tdone!! ", "a  \n b \n\n c  \n  ",
               "HTTPServer\u2019s caf\u00e9 na\u00efve /usr/lib\n/x", "aaab abc aBCac ab\nac", "  \u3000 a\u3000b  "]
    return written + ["".join(piece() for _ in range(random.randrange(1, 14))) for _ in range(count)]


def write(path, key, components, inputs, apply):
    cases = []
    for component in components:
        file = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                "pre_tokenizer": None, "post_processor": None, "decoder": None,
                "model": {"type": "BPE", "vocab": {}, "merges": []}, key: component}
        tokenizer = Tokenizer.from_str(json.dumps(file))
        cases.append({key: component, "expected": [apply(tokenizer, text) for text in inputs]})
    with open(path, "w") as file:
        file.write('{"texts": ' + json.dumps(inputs) + ',\n"cases": [\n')
        file.write(",\n".join(json.dumps(case, ensure_ascii=False) for case in cases) + "]}\n")


def split_text(tokenizer, text):
    """The words, which an input of the library begins with only if it is not empty."""
    return [word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text)] if text else []


if __name__ == "__main__":
    write("tests/data/pre_tokenizer.json", "pre_tokenizer", pre_tokenizers(), texts(20), split_text)
    write("tests/data/normalizer.json", "normalizer", normalizers(), texts(60),
          lambda tokenizer, text: tokenizer.normalizer.normalize_str(text))
