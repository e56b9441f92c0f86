"""Makes tokenizer/jinja/character_tables.h, what Python's str methods know of Unicode and utf8proc does not, and
tests/data/case_mappings.json, the upper case and title case of characters for which one of them has several.

    python3 tests/scripts/make_jinja_character_tables.py > tokenizer/jinja/character_tables.h
"""
import json
import unicodedata

CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def print_ranges(comment, name, belongs):
    ranges = []
    for c in filter(belongs, CHARACTERS):
        if ranges and ranges[-1][1] == ord(c) - 1:
            ranges[-1][1] = ord(c)
        else:
            ranges.append([ord(c), ord(c)])
    print(f"\n/* {comment} */\nstatic const struct character_range {name}[] = {{")
    for i in range(0, len(ranges), 5):
        print("    " + " ".join(f"{{{first:#x}, {last:#x}}}," for first, last in ranges[i:i + 5]))
    print("};")


def write_case_mappings(path):
    cases = {c: [c.upper(), c.title()] for c in CHARACTERS if len(c.upper()) > 1 or len(c.title()) > 1}
    with open(path, "w") as file:
        file.write("{" + ",\n".join(f"{json.dumps(c)}: {json.dumps(both)}" for c, both in cases.items()) + "}\n")


print(f"/* Made by tests/scripts/make_jinja_character_tables.py (Unicode {unicodedata.unidata_version}). */")
print("#ifndef QUIRE_TOKENIZER_JINJA_CHARACTER_TABLES_H\n#define QUIRE_TOKENIZER_JINJA_CHARACTER_TABLES_H")
print("\n#include <stdint.h>\n\nstruct character_range {\n    uint32_t first, last;\n};")
category = unicodedata.category
print_ranges("Lower case, but not of category Ll.", "other_lower", lambda c: c.islower() and category(c) != "Ll")
print_ranges("Upper case, but not of category Lu.", "other_upper", lambda c: c.isupper() and category(c) != "Lu")
print_ranges("Digits that are not decimal.", "other_digits", lambda c: c.isdigit() and not c.isdecimal())
print_ranges("Numbers of other categories than Nd, Nl and No.", "other_numeric",
             lambda c: c.isnumeric() and category(c) not in ("Nd", "Nl", "No"))
print("\n#endif")
write_case_mappings("tests/data/case_mappings.json")
