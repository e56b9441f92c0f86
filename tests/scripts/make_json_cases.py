#!/usr/bin/env python3
"""Writes tests/data/json_cases.jsonl: texts, and what Python's json module reads from them.

usage: tests/scripts/make_json_cases.py

A line is {"hex": the bytes of the text, "python": what json.dumps writes of it}; "python" is absent where json.loads
refuses the text. The text is decoded as utf-8-sig, which skips a byte order mark. tests/test_json.c reads the file.
"""
import json
import pathlib
import random
import sys

SCALARS = [
    "0", "-0", "-0.0", "7", "-7", "01", "1.", ".5", "+1", "-", "--1", "1e", "1e+", "1e5", "1E-5", "1.5e3", "0x10", "1_000",
    "9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809", "18446744073709551616",
    "1000000000000000019884624838656", "99999999999999999999", "1e308", "1e309", "-1e309", "1e999", "1e-999", "1.0e400",
    "123456789012345678901234567890.5", "5.0", "1e20", "4" * 400, "0." + "3" * 400,
    "NaN", "-NaN", "nan", "Infinity", "-Infinity", "+Infinity", "inf", "Inf", "-", "Infinit", "-Infinit", "NaNs",
    "true", "false", "null", "True", "None", "undefined", "tru", "nulll", "",
    '""', '"a"', '"\\u0000"', '"a\\u0000b"', '"\\ud800"', '"\\udc00"', '"\\ud83d\\ude00"', '"\\ud800\\ud800"',
    '"\\udc00\\ud800"', '"\\ud800x"', '"\\ud800\\n"', '"\\ud800\\u0041"', '"\\uD83D\\uDE00"', '"\\u00e9"', '"é"', '"😀"',
    '"\\x"', '"\\u12"', '"\\u12g4"', '"\\u"', '"\\', '"\\"', '"\t"', '"\n"', '"\x7f"', '"a', "'a'", '"\\/\\b\\f\\n\\r\\t\\"\\\\"',
]
FORMS = ["{}", " {}\n", "[{}]", "[1, {}]", '{{"k": {}}}', '{{"k": {}, "k": 2}}', '{{"a": 1, "k": [{}, {{}}]}}', "[{},]", "{} x",
         "\ufeff[{}]", '{{"k" {}}}']
MORE = [
    "[]", "{}", "[", "]", "{", "}", "[}", "{]", "[1 2]", "[1,,2]", "[,1]", '{"a"}', '{"a":}', '{"a":1,}', '{,"a":1}', "{a:1}",
    '{1:2}', '{"a":1 "b":2}', '{"a":1;"b":2}', '{"a":1}{"a":1}', "// c\n1", "[1]// c", "[1, /* c */ 2]", "\ufeff", "\ufeff\ufeff1",
    " \ufeff1", "\ufeff{\"a\": 1}", "[1]\ufeff", "\v1", "\f1", "\u00a01", "[1\x00]", '{"\\ud800": 1, "\\ud800": 2}',
    '{"\\u0000": 1, "": 2}', '{"a\\u0000b": 1, "a": 2}', '{"a": 1, "b": 2, "a": 3}', "[" * 100 + "]" * 100, "[" * 100,
]
BYTES = [b'"\xff"', b'"\xed\xa0\x80"', b'"\xc0\x80"', b'"\xf4\x90\x80\x80"', b'"\xe2\x82"', b"\xff", b"[1]\xc3", b'{"\xe9": 1}']


def mutated(rng, text):
    """The text with a few bytes changed, taken away or put in."""
    data = bytearray(text.encode())
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randint(0, 2)] = rng.choice(b'{}[]",:\\u0deE.-+ \tNIat\xed\x80').to_bytes(1, "little")
    return bytes(data)


def read(data):
    case = {"hex": data.hex()}
    try:
        case["python"] = json.dumps(json.loads(data.decode("utf-8-sig")))
    except ValueError:
        pass
    return case


def main():
    sys.set_int_max_str_digits(0)
    rng = random.Random(1)
    texts = [form.format(scalar) for scalar in SCALARS for form in FORMS] + MORE
    data = [text.encode() for text in texts] + BYTES + [mutated(rng, rng.choice(texts)) for _ in range(500)]
    path = pathlib.Path(__file__).parent.parent / "data" / "json_cases.jsonl"
    path.write_text("".join(json.dumps(read(text)) + "\n" for text in dict.fromkeys(data)))


main()
