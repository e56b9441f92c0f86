"""Strings that tokenizers disagree on, to compare one tokenizer with another. The same seed gives the same strings."""
import itertools
import random

import tokenizer_text

PLANES = [(0x00, 0x7F), (0x80, 0x2FF), (0x300, 0x1FFF), (0x2000, 0x2FFF), (0x3000, 0xD7FF), (0xE000, 0xFFFF),
          (0x10000, 0x1FFFF), (0x20000, 0x2FFFF), (0x30000, 0x3FFFF), (0xE0000, 0xEFFFF), (0x100000, 0x10FFFF)]
WHITESPACE = list(" \t\n\r\v\f\x1c\x1f\x85\xa0\u1680\u2002\u2003\u2009\u200b\u2028\u2029\u202f\u205f\u3000\ufeff")
COMBINING = [chr(c) for c in itertools.chain(range(0x300, 0x370), range(0x483, 0x488), range(0x591, 0x5BE),
                                             range(0x64B, 0x660), range(0x1DC0, 0x1DD0), range(0x20D0, 0x20E5))]
DIGITS = list("0123456789" * 4 + "٠١٢٣۴۵६७৮௧๑０１²³¹½¼Ⅷ①㊿𝟘𝟡〇一")
# letters whose case, normal form or category surprises
ODD = list("ßẞıİſKÅΩμµǅǈ\u0345ΣςﬁﬃŉǰΐⅣⓐª°ʰ־׳ـ᠋\u00ad\u200c\u200d\u200e\u2060￼�Ġ▁Ċĉ£¬¤€'’‘`´\"\\/_^~|{}[]()<>#@&*+-=.,;:!?$%") \
    + ["\u1100\u1161\u11a8", "각", "e\u0301\u0323", "ề", "\u0958", "\u0f73", "\ufb2a", "\ufa1e", "\u2126", "\U0001d15e"]
EMOJI = tokenizer_text.EMOJI + ["\U0001f1fa\U0001f1f8\U0001f1e9", "\u200d", "\ufe0f", "\U0001f3fd", "👩‍❤️‍💋‍👨", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "#️⃣", "🀄", "⌚︎"]
STEMS = "I you he we they it don can't y'all o'clock DON L'été rock'n'roll '' ' 'a X1 ı K".split()
SUFFIXES = [mark + "".join(case) + end for mark in "'’" for word in ("s", "t", "re", "ve", "m", "ll", "d")
            for case in itertools.product(*((c, c.upper()) for c in word)) for end in ("", "x")] + ["'ſ", "'ſx", "'İ"]
# as added tokens of many families are spelled, also cut short
SPELLINGS = ["<s>", "</s>", "<unk>", "<pad>", "<bos>", "<|endoftext|>", "<|im_start|>", "<|im_end", "<|eot_id|>", "[INST]",
             "[/INST]", "<think>", "</think>", "<0x0A>", "<0xE2>", "<|begin_of_text|>", "<|", "|>", "<start_of_turn>", "[MASK]"]


class Strings:
    """`specials`: texts of the added tokens. of_kind(name, n) makes a string of about n elements."""

    def __init__(self, seed, specials=()):
        self.rng = random.Random(seed)
        self.text = tokenizer_text.Text(seed, 0.02)
        self.specials = list(specials) * 2 + SPELLINGS
        self.kinds = {
            "planes": self.planes, "text": self.prose, "code": self.code, "emoji": lambda n: self.some(EMOJI, n),
            "odd": lambda n: self.some(ODD + WHITESPACE, n), "combining": self.combining, "whitespace": self.whitespace,
            "specials": self.special, "digits": self.digits, "contractions": self.contractions, "mixed": self.mixed,
            "repeated": self.repeated}
        for name in ("han", "kana", "hangul", "arabic", "devanagari", "thai", "accents"):
            self.kinds[name] = lambda n, name=name: self.words(name, n)
        self.kinds["more specials"] = self.special

    def some(self, items, n):
        return "".join(self.rng.choices(items, k=self.rng.randrange(1, n + 1)))

    def planes(self, n):
        first, last = self.rng.choice(PLANES)
        if self.rng.random() < 0.5:  # neighbours, hence of one script
            first = self.rng.randrange(first, last)
            last = min(last, first + 100)
        points = (self.rng.randint(first, last) for _ in range(self.rng.randrange(1, n + 1)))
        return "".join(chr(p) for p in points if not 0xD800 <= p < 0xE000)

    def prose(self, n):
        start = self.rng.randrange(8)
        return self.text.paragraph()[start:start + 4 * n]

    def code(self, n):
        return "".join(self.text.code() for _ in range(3))[:4 * n]

    def words(self, name, n):
        language = self.text.languages[name]
        words = language.draw(self.rng, self.rng.randrange(1, n // 2 + 2))
        return "".join(w + self.rng.choice([language.joiner, language.joiner, "", language.stops[0]]) for w in words)

    def combining(self, n):
        return "".join(self.rng.choice("aeoAZßгक가 1.") + self.some(COMBINING + [""] * 100, 3)
                       for _ in range(self.rng.randrange(1, n // 2 + 2)))

    def whitespace(self, n):
        parts = []
        for _ in range(self.rng.randrange(1, n // 3 + 2)):
            space = self.rng.choice(WHITESPACE[:4] * 6 + WHITESPACE)
            parts.append(space * self.rng.choice([1, 1, 2, 3, 4, 7, 8, 17]))
            parts.append(self.rng.choice(["", "", "a", "word", "1", ".", "\n", "\r\n", "é", "中"]))
        return "".join(parts)

    def digits(self, n):
        return "".join(self.some(DIGITS, 9) + self.rng.choice(["", " ", ".", ",", "a", "\n", "-", " 0x"])
                       for _ in range(self.rng.randrange(1, n // 4 + 2)))

    def contractions(self, n):
        return "".join(self.rng.choice(STEMS) + self.rng.choice(SUFFIXES) + self.rng.choice(["", " ", "  ", "\n", "."])
                       for _ in range(self.rng.randrange(1, n // 4 + 2)))

    def special(self, n):
        between = ["", "", " ", "  ", "\n", "a", "word ", "é", "<", "|", "\t", "1", "_", "▁", "你"]
        return "".join(self.rng.choice(between) + self.rng.choice(self.specials) + self.rng.choice(between)
                       for _ in range(self.rng.randrange(1, n // 5 + 2)))

    def repeated(self, n):
        return self.rng.choice([" ", "\n", "a", "é", "ab", "0", "=", "-", "中", "😀", "\u0301", "'", "\t", "<", "▁", "\x00"]) \
            * self.rng.randrange(1, 2 * n)

    def mixed(self, n):
        simple = ["specials"] * 4 + [k for k in self.kinds if k != "mixed"]
        return "".join(self.kinds[self.rng.choice(simple)](n // 3 + 1) for _ in range(3))

    def of_kind(self, name, n):
        return self.kinds[name](n)

    def generate(self, count, n=40):
        """`count` strings, kinds in turn, of up to about n characters; the first are the empty string and a space."""
        yield from ["", " "][:count]
        for kind in itertools.islice(itertools.cycle(self.kinds), max(0, count - 2)):
            yield self.of_kind(kind, n)


def long_strings(seed, size=1 << 20):
    """(name, text) without a space, each of `size` bytes of UTF-8 or a little less."""
    make = Strings(seed)
    for name in ("planes", "text", "code", "han", "kana", "arabic", "digits", "emoji"):
        parts, left = [], size
        while left > 0:
            part = "".join(make.of_kind(name, 200).split())
            left -= len(part.encode())
            parts.append(part)
        yield name, "".join(parts[:-1])
    for name, unit in (("one letter", "a"), ("line feeds", "\n"), ("digits", "7"), ("punctuation", "!"), ("ideographs", "好")):
        yield name, unit * (size // len(unit.encode()))
