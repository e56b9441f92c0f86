"""Writes tokenizer/unicode_tables.h and tokenizer/unicode_classes.h: which characters are what, as the library
tokenizers 0.23 says. It uses Unicode data of several versions, so the tables are made by asking it about every character.

    pip install tokenizers==0.23.3 unicodedata2
    python tests/scripts/make_unicode_tables.py       (a minute; needs libpcre2-8 10.42, which has Unicode 14)
"""

import ctypes
import ctypes.util
import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

ALL = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co").split()
LONG_NAMES = {
    "L": "letter", "Lu": "uppercase_letter", "Ll": "lowercase_letter", "Lt": "titlecase_letter",
    "Lm": "modifier_letter", "Lo": "other_letter", "M": "mark", "Mn": "nonspacing_mark", "Mc": "spacing_mark",
    "Me": "enclosing_mark", "N": "number", "Nd": "decimal_number", "Nl": "letter_number", "No": "other_number",
    "P": "punctuation", "Pc": "connector_punctuation", "Pd": "dash_punctuation", "Ps": "open_punctuation",
    "Pe": "close_punctuation", "Pi": "initial_punctuation", "Pf": "final_punctuation", "Po": "other_punctuation",
    "S": "symbol", "Sm": "math_symbol", "Sc": "currency_symbol", "Sk": "modifier_symbol", "So": "other_symbol",
    "Z": "separator", "Zs": "space_separator", "Zl": "line_separator", "Zp": "paragraph_separator", "C": "other",
    "Cc": "control", "Cf": "format", "Co": "private_use", "Cn": "unassigned"}
SCRIPTS = ("Arabic Armenian Bengali Bopomofo Common Cyrillic Devanagari Ethiopic Georgian Greek Gujarati Gurmukhi Han "
           "Hangul Hebrew Hiragana Kannada Katakana Khmer Lao Latin Malayalam Mongolian Myanmar Sinhala Tamil Telugu "
           "Thai Tibetan").split()


def ranges(characters):
    result = []
    for c in sorted(characters):
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def oniguruma(pattern):
    split = pre_tokenizers.Split(Regex(pattern), "removed", invert=True)
    return {ord(c) for word, _ in split.pre_tokenize_str("".join(map(chr, ALL))) for c in word}


class Pcre2:
    def __init__(self):
        self.library = library = ctypes.CDLL(ctypes.util.find_library("pcre2-8"))
        for name in ("compile", "match_data_create", "get_ovector_pointer"):
            getattr(library, f"pcre2_{name}_8").restype = ctypes.c_void_p
        self.data = ctypes.c_void_p(library.pcre2_match_data_create_8(1, None))

    def __call__(self, pattern):
        """The characters that match: the text is all characters, and a match is a run of them."""
        number, offset = ctypes.c_int(), ctypes.c_size_t()
        utf_ucp = 0x00080000 | 0x00020000
        code = ctypes.c_void_p(self.library.pcre2_compile_8(f"(?:{pattern})+".encode(), ctypes.c_size_t(2**64 - 1),
                                                            utf_ucp, ctypes.byref(number), ctypes.byref(offset), None))
        assert code.value, pattern
        text = "".join(map(chr, ALL)).encode()
        vector = ctypes.cast(self.library.pcre2_get_ovector_pointer_8(self.data), ctypes.POINTER(ctypes.c_size_t))
        found, start = set(), 0
        while self.library.pcre2_match_8(code, text, ctypes.c_size_t(len(text)), ctypes.c_size_t(start), 0, self.data,
                                         None) > 0:
            found.update(map(ord, text[vector[0]:vector[1]].decode()))
            start = vector[1]
        return found


def class_text(characters):
    return "".join(f"\\x{{{a:x}}}" if a == b else f"\\x{{{a:x}}}-\\x{{{b:x}}}" for a, b in ranges(characters))


def class_rows():
    """(names, complement, text): the text is the inside of a PCRE2 class, property first and then what it lacks."""
    pcre2 = Pcre2()

    def row(names, pattern, properties, complement=False):
        here, there = pcre2(f"[{properties}]") if properties else set(), oniguruma(pattern)
        if complement:
            there = set(ALL) - there
        if here - there:
            print(names, "has too much in PCRE2:", ranges(here - there))
        return names, complement, properties + class_text(there - here)

    for group in "LMNPSZ":
        names = ["punct"] if group == "P" else []
        yield row([group, LONG_NAMES[group], *names], rf"\p{{{group}}}", rf"\p{{{group}}}")
    yield row(["C", LONG_NAMES["C"]], r"\p{C}", r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}", True)
    yield row(["Cn", LONG_NAMES["Cn"]], r"\p{Cn}",
              r"\p{L}\p{M}\p{N}\p{P}\p{S}\p{Z}\p{Cc}\p{Cf}\p{Co}", True)
    for category in CATEGORIES:
        names = ["cntrl"] if category == "Cc" else []
        yield row([category, LONG_NAMES[category], *names], rf"\p{{{category}}}", rf"\p{{{category}}}")
        if category == "Nd":
            yield row(["digit"], r"\p{Nd}", r"\p{Nd}")  # which (?i) allows
    for script in SCRIPTS:
        yield row([script], rf"\p{{{script}}}", rf"\p{{sc:{script}}}")
    # Oniguruma's \p{Punct} is \p{P}, and its [[:punct:]] has the symbols, too.
    yield row(["[:punct:]"], "[[:punct:]]", r"\p{P}\p{S}")
    yield row(["alpha", "alphabetic"], "[[:alpha:]]", r"\p{Alphabetic}")
    yield row(["alnum"], "[[:alnum:]]", r"\p{Alphabetic}\p{Nd}")
    yield row(["upper", "uppercase"], "[[:upper:]]", r"\p{Uppercase}")
    yield row(["lower", "lowercase"], "[[:lower:]]", r"\p{Lowercase}")
    yield row(["word"], "[[:word:]]", r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}")
    # Its \w has superscripts and fractions of Latin-1, which its [[:word:]] lacks.
    yield row(["\\w"], r"\w", r"\p{Alphabetic}\p{M}\p{Nd}\p{Pc}")
    yield row(["space"], r"\s", "")  # which (?i) allows
    yield row(["whitespace"], r"\s", "")
    yield row(["nonspace"], r"\S", "")
    yield row(["blank"], "[[:blank:]]", "")
    yield row(["xdigit"], r"\h", "")


def write_classes(path):
    with open(path, "w") as file:
        file.write("/* Made by tests/scripts/make_unicode_tables.py: Oniguruma's classes as the inside of a PCRE2 class, with the\n"
                   " * characters of Unicode 16 that PCRE2's own Unicode (14 and later) may lack. */\n\n"
                   "static const struct unicode_class unicode_classes[] = {\n")
        for names, complement, text in class_rows():
            name = " ".join(names).replace("\\", "\\\\").lower().replace("_", "")
            lines = [text[i:i + 100] for i in range(0, len(text), 100)]
            quoted = "\n     ".join('"' + line.replace("\\", "\\\\") + '"' for line in lines)
            file.write(f'    {{"{name}", {str(complement).lower()},\n     {quoted}}},\n')
        file.write("};\n")


def words_of_one(pre_tokenizer):
    """The characters that pre_tokenizer makes a word of, between others."""
    found = set()
    for i in range(0, len(ALL), 2000):
        text = "".join(f"\u4e00{chr(c)}\u4e00" for c in ALL[i:i + 2000])
        found.update(ord(w) for w, _ in pre_tokenizer.pre_tokenize_str(text) if len(w) == 1 and w != "\u4e00")
    return found


def newer_than_normalization():
    """Characters that another Unicode decomposes, composes or reorders, and tokenizers' normal forms do not."""
    found = set()
    nfd = normalizers.NFD()
    for form in "NFC NFD NFKC NFKD".split():
        normalizer = getattr(normalizers, form)()
        for c in map(chr, ALL):
            if normalizer.normalize_str(c) != unicodedata2.normalize(form, c):
                found.add(ord(c))
                if form == "NFD":
                    found.add(ord(unicodedata2.normalize("NFD", c)[0]))  # would begin a composition
    for c in map(chr, ALL):
        for mark in "\u0334\u0345\u0316":
            text = f"a{mark}{c}\u0334"
            if nfd.normalize_str(text) != unicodedata2.normalize("NFD", text):
                found.add(ord(c))
    return found


def write_ranges(path):
    tables = {"numeric": words_of_one(pre_tokenizers.Digits(individual_digits=True)),
              "punctuation": words_of_one(pre_tokenizers.Punctuation()),
              "mark": {c for c in ALL if normalizers.StripAccents().normalize_str(chr(c)) == ""},
              "newer": newer_than_normalization()}
    with open(path, "w") as file:
        file.write("/* Made by tests/scripts/make_unicode_tables.py: what the characters are for tokenizers 0.23. Sorted. */\n")
        for name, characters in tables.items():
            items = [f"{{0x{a:x}, 0x{b:x}}}," for a, b in ranges(characters)]
            file.write(f"\nstatic const struct range {name}_ranges[] = {{\n")
            for i in range(0, len(items), 5):
                file.write("    " + " ".join(items[i:i + 5]) + "\n")
            file.write("};\n")


if __name__ == "__main__":
    write_classes("tokenizer/unicode_classes.h")
    write_ranges("tokenizer/unicode_tables.h")
