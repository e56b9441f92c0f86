#!/usr/bin/env python3
"""Compares quire's model types with those of the installed transformers.

    python3 tests/scripts/list_model_types.py       (needs transformers)

Prints, and fails if there are any: model types that transformers knows, but that are neither a family of quire nor in
the table of model/families/unsupported.c; types that are in both or twice in the table; types that transformers does
not know, except those of llama_names.py.
"""

import pathlib
import re
import sys

import llama_names
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

FAMILIES = pathlib.Path(__file__).resolve().parent.parent.parent / "model" / "families"


def supported_types():
    text = "".join(path.read_text() for path in FAMILIES.glob("*.c"))
    kinds = re.search(r"} kinds\[\] = \{(.*?)\n\};", text, re.S).group(1)
    multimodal = [name for words in re.findall(r'^    \{"([^"]+)"', kinds, re.M) for name in words.split()]
    return re.findall(r'\.model_type = "([^"]+)"', text) + multimodal


def unsupported_types():
    text = (FAMILIES / "unsupported.c").read_text()
    table = text[text.index("} table[] = {"):]
    table = table[:table.index("};")]
    rows = re.findall(r'\{[A-Z_| ]+,((?:\s*"[^"]*")+)\}', table)
    return [name for row in rows for name in "".join(re.findall(r'"([^"]*)"', row)).split()]


def main():
    supported, unsupported, known = supported_types(), unsupported_types(), set(CONFIG_MAPPING_NAMES)
    problems = {
        "neither a family nor in the table": known - set(supported) - set(unsupported),
        "a family and in the table": set(supported) & set(unsupported),
        "twice in the table": {name for name in unsupported if unsupported.count(name) > 1},
        "unknown to transformers": (set(supported) | set(unsupported)) - known - set(llama_names.FAMILIES),
    }
    for what, names in problems.items():
        if names:
            print(f"{what}: {', '.join(sorted(names))}")
    print(f"{len(supported)} families, {len(unsupported)} types in the table, {len(known)} in transformers")
    sys.exit(any(problems.values()))


if __name__ == "__main__":
    main()
