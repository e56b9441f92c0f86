#!/usr/bin/env python3
"""Compares grammars in Lark's form with the library lark: texts that quire draws must be parsed, and texts that are
changed at random must be parsed if and only if quire takes them. lark parses with Earley's algorithm and all readings of
terminals ("dynamic_complete"), as quire does.

usage: compare_lark.py GRAMMAR_TOOL [--texts N] [--seed N]     (build/release/grammar; pip install lark)
"""
import argparse
import json
import random
import subprocess
import sys

import lark

COMMON = "%import common (INT, SIGNED_NUMBER, CNAME, ESCAPED_STRING, WS, WS_INLINE, WORD, NEWLINE)\n"
GRAMMARS = {
    "json": "?start: value\n?value: object | array | ESCAPED_STRING | SIGNED_NUMBER -> number\n"
            '      | "true" | "false" | "null"\narray: "[" [value ("," value)*] "]"\n'
            'object: "{" [pair ("," pair)*] "}"\npair: ESCAPED_STRING ":" value\n%ignore WS\n' + COMMON,
    "sums": '?start: sum\n?sum: product | sum "+" product -> add | sum "-" product -> sub\n'
            '?product: atom | product "*" atom | product "/" atom\n'
            '?atom: SIGNED_NUMBER | "-" atom | CNAME | "(" sum ")"\n%ignore WS_INLINE\n' + COMMON,
    "select": 'start: "select"i columns "from"i CNAME [where] ";"?\ncolumns: "*" | CNAME ("," CNAME)~0..2\n'
              'where: "where"i CNAME OP (INT | ESCAPED_STRING)\nOP: "=" | "<" "="? | ">" "="?\n%ignore /[ \\t]+/\n'
              + COMMON,
    "counts": 'start: "a"~2 B~1..3 (C | "d")~2\nB: "b" | "B"i\nC: /c[0-9]?/\n',
    "lines": 'start: (line NEWLINE)+\nline: WORD ("," WORD)* | \n' + COMMON,
    "palindromes": 'start: "a" start "a" | "b" start "b" | "a" | "b" | \n',
    "left": 'start: start "x" | start "y" start | "z"\n',
    "hidden": 'start: e start "x" | "y"\ne: "w"? \n',
    "ranges": 'start: ("a".."c" | "\\u00e0".."\\u00e9")+ /[^\\x00-\\x60\\x7b-\\uffff]/ "\\t\\"\\\\"?\n',
    "flags": "start: /a.b/s /[x-z]+/i /q|r/ui\n",
    "nested": 'start: ["x" ["y" ["z"]]] ("(" start ")")* (("a" | "b")+ "c")?\n',
    "priority": "start: (KEY | NAME)+\nKEY.2: /if|else/\nNAME.-1: /[a-z]+/\n%ignore \" \"\n",
}
CHARACTERS = "abcdefqrxyzABXY0129+-*/=<>(),;:.\"\\ \t\n[]{}\u00e0\u00e9_"


def mutate(rng, text):
    text = list(text)
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(text))
        kind = rng.randint(0, 3)
        if kind == 0:
            text.insert(at, rng.choice(CHARACTERS))
        elif kind == 1 and at < len(text):
            del text[at]
        elif kind == 2 and at < len(text):
            text[at] = rng.choice(CHARACTERS)
        elif len(text) > 1:
            other = rng.randrange(len(text))
            text[other], text[min(at, len(text) - 1)] = text[min(at, len(text) - 1)], text[other]
    return "".join(text)


def ask(tool, line):
    tool.stdin.write(json.dumps(line) + "\n")
    tool.stdin.flush()
    answer = json.loads(tool.stdout.readline())
    if "error" in answer:
        sys.exit(f"{line['value']}\n{answer['error']}")
    return answer


def parses(parser, text):
    try:
        parser.parse(text)
        return True
    except lark.exceptions.LarkError:
        return False


def main():
    options = argparse.ArgumentParser()
    options.add_argument("tool")
    options.add_argument("--texts", type=int, default=150)
    options.add_argument("--seed", type=int, default=1)
    options = options.parse_args()
    rng = random.Random(options.seed)
    tool = subprocess.Popen([options.tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    num_texts = num_taken = num_wrong = 0
    for name, grammar in GRAMMARS.items():
        parser = lark.Lark(grammar, parser="earley", lexer="dynamic_complete")
        line = {"kind": "grammar", "value": grammar}
        texts = ask(tool, {**line, "draw": options.texts})["drawn"]
        texts += [mutate(rng, text) for text in texts]
        accepted = ask(tool, {**line, "texts": texts})["accepted"]
        for text, taken in zip(texts, accepted):
            num_texts += 1
            num_taken += taken
            if parses(parser, text) != taken:
                num_wrong += 1
                print(f"{name}: {text!r}: quire {'takes' if taken else 'refuses'} it, lark does not")
    print(f"{len(GRAMMARS)} grammars, {num_texts} texts, {num_taken} of them taken: {num_wrong} differ")
    sys.exit(num_wrong > 0)


if __name__ == "__main__":
    main()
