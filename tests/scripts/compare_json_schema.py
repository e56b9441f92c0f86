#!/usr/bin/env python3
"""usage: compare_json_schema.py build/release/schema [NUM_SCHEMAS] [SEED]

Compares tokenizer/grammar/json_schema.h with the package jsonschema (pip install jsonschema rfc3339-validator), on random
schemas:

- texts that are drawn from the grammar of a schema are instances of it;
- instances that are drawn from the schema by this script, written by json.dumps in the schema's order of properties, are
  in the grammar.

Formats are compared with jsonschema's checks of date, date-time, uuid, ipv4 and ipv6. What is known to differ: jsonschema
searches patterns as Python does, where $ also matches before a last newline and \\W, \\D and \\S know Unicode, so no
pattern here has these; numbers that jsonschema divides as doubles are only divided by powers of 2 and integers."""
import json
import random
import subprocess
import sys

import jsonschema

CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER
NAMES = ["a", "b", "id", "name", "x-1", "x-tag", "n\u00e9", 'q"\n', "", "kind"]
PATTERNS = [  # and texts that they match
    ("^[a-c]+$", ["a", "abc", "cc"]), ("b", ["b", "abd", "\nb"]), ("^x-", ["x-", "x-tag"]),
    (r"^\d{2,3}-[A-Z]?$", ["12-", "123-Q"]), ("^(foo|ba[rz])*$", ["", "foobaz"]), (r"\.(png|jpg)\Z", ["a.png", ".jpg"]),
    ("^[^\"\\\\]{1,3}$", ["'a", "\u00e9\u4e2d"]), ("^.?$", ["", "z"]), ("[\u00e0-\u00ff]", ["\u00e9", "aa\u00fc"])]
FORMATS = {
    "date": ["2024-02-29", "1999-12-31"], "date-time": ["2024-01-02T03:04:05Z", "1985-04-12T23:20:50.52+01:00"],
    "uuid": ["123e4567-e89b-12d3-a456-426614174000"], "ipv4": ["127.0.0.1", "255.0.10.199"],
    "ipv6": ["::1", "2001:db8::1", "::ffff:1.2.3.4"]}


class Unlucky(Exception):
    """No instance was found."""


class Corpus:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.defs = {}

    def chance(self, p):
        return self.random.random() < p

    # A schema, and a function that draws an instance of it.

    def schema(self, depth):
        kinds = ["null", "boolean", "integer", "number", "string", "enum"]
        if depth > 0:
            kinds += ["array", "tuple", "object", "object", "map", "any_of", "one_of", "all_of", "ref", "types"]
        kind = self.random.choice(kinds)
        schema, draw = getattr(self, kind)(depth - 1)
        if isinstance(schema, dict) and self.chance(0.1):
            schema = {"description": "d", **schema, "title": "t"}
        return schema, draw

    def null(self, _):
        return {"type": "null"}, lambda: None

    def boolean(self, _):
        return {"type": "boolean"}, lambda: self.chance(0.5)

    def bounds(self, scale):
        low = self.random.randint(-scale, scale)
        high = low + self.random.randint(2, scale)
        schema = {}
        if self.chance(0.6):
            schema[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.chance(0.6):
            schema[self.random.choice(["maximum", "exclusiveMaximum"])] = high
        return schema, low + 1, high - 1

    def integer(self, _):
        schema, low, high = self.bounds(self.random.choice([5, 200, 10**6]))
        factor = 1
        if self.chance(0.2):
            factor = self.random.randint(2, 12)
            schema["multipleOf"] = factor
            if -(-low // factor) * factor > high:
                return {"type": "integer"}, lambda: 0
        return ({"type": "integer", **schema},
                lambda: self.random.randint(-(-low // factor), high // factor) * factor)

    def number(self, _):
        schema, low, high = self.bounds(self.random.choice([5, 200, 10**6]))
        if self.chance(0.2):
            schema = {key: value + 0.125 for key, value in schema.items()}
            low += 1
            if low > high:
                return {"type": "number"}, lambda: 1e-7
            return {"type": "number", **schema}, lambda: self.random.randint(8 * low, 8 * high) / 8
        if self.chance(0.2):
            schema["multipleOf"] = 0.25
            return {"type": "number", **schema}, lambda: self.random.randint(4 * low, 4 * high) / 4
        if not schema:
            return {"type": "number"}, lambda: self.random.choice([0, -1.5, 1e300, 5e-324, 1e16, 123456.789, -0.0, 12])
        return {"type": "number", **schema}, lambda: self.random.choice([low, high, self.random.uniform(low, high)])

    def text(self, least, most):
        letters = "ab 1\u00e9\u4e2d\U0001f600\"\\\n\t\x01\x7f/"
        return "".join(self.random.choice(letters) for _ in range(self.random.randint(least, most)))

    def string(self, _):
        if self.chance(0.3):
            pattern, texts = self.random.choice(PATTERNS)
            schema = {"type": "string", "pattern": pattern}
            text = self.random.choice(texts)
            if self.chance(0.4):
                schema.update(minLength=len(text), maxLength=len(text) + self.random.randint(0, 5))
            return schema, lambda: text
        if self.chance(0.2):
            name = self.random.choice(list(FORMATS))
            return {"type": "string", "format": name}, lambda: self.random.choice(FORMATS[name])
        least, most = self.random.randint(0, 3), self.random.randint(3, 8)
        schema = {"type": "string"}
        if self.chance(0.3):
            schema["minLength"] = least
        if self.chance(0.3):
            schema["maxLength"] = most
        return schema, lambda: self.text(least, most)

    def enum(self, _):
        values = self.random.sample([None, True, 0, -5, 1.5, "", "a\n\"", "b", [], [1, "x"], {}, {"k": [2]}],
                                    self.random.randint(1, 4))
        if self.chance(0.3):
            return {"const": values[0]}, lambda: values[0]
        return {"enum": values}, lambda: self.random.choice(values)

    def types(self, depth):
        first, draw_first = self.schema(0)
        if "type" not in first:
            return first, draw_first
        return {**first, "type": [first["type"], "null"]}, lambda: draw_first() if self.chance(0.7) else None

    def array(self, depth):
        items, draw = self.schema(depth)
        least, most = self.random.randint(0, 2), self.random.randint(2, 4)
        schema = {"type": "array", "items": items}
        if self.chance(0.4):
            schema["minItems"] = least
        if self.chance(0.4):
            schema["maxItems"] = most
        return schema, lambda: [draw() for _ in range(self.random.randint(least, most))]

    def tuple(self, depth):
        prefix = [self.schema(depth) for _ in range(self.random.randint(1, 3))]
        schema = {"type": "array", "prefixItems": [part[0] for part in prefix]}
        rest = None
        if self.chance(0.4):
            schema["items"] = False
        elif self.chance(0.5):
            schema["items"], rest = self.schema(depth)
        least = self.random.randint(0, len(prefix))
        if self.chance(0.5):
            schema["minItems"] = least

        def draw():
            count = self.random.randint(least, len(prefix))
            value = [part[1]() for part in prefix[:count]]
            if rest and count == len(prefix):
                value += [rest() for _ in range(self.random.randint(0, 2))]
            return value
        return schema, draw

    def object(self, depth):
        names = self.random.sample(NAMES, self.random.randint(0, 5))
        parts = {name: self.schema(depth) for name in names}
        required = [name for name in names if self.chance(0.4)]
        schema = {"type": "object", "properties": {name: part[0] for name, part in parts.items()}}
        if required or self.chance(0.3):
            schema["required"] = self.random.sample(required, len(required))
        others = None
        if self.chance(0.5):
            schema["additionalProperties"] = False
        elif self.chance(0.5):
            schema["additionalProperties"], others = self.schema(depth)
        least, most = len(required), len(names) + (2 if others else 0)
        if self.chance(0.2) and names:
            least = self.random.randint(least, len(names))
            schema["minProperties"] = least
        if self.chance(0.2):
            most = self.random.randint(least, most)
            schema["maxProperties"] = most
        keys = [name for name in NAMES if name not in names]

        def draw():
            optional = [name for name in names if name not in required]
            count = self.random.randint(max(0, least - len(required)), max(0, min(len(optional), most - len(required))))
            chosen = set(required) | set(self.random.sample(optional, count))
            value = {name: parts[name][1]() for name in names if name in chosen}
            for name in keys[:2]:
                if others and len(value) < most and self.chance(0.5):
                    value[name] = others()
            return value
        return schema, draw

    def map(self, depth):
        values, draw_value = self.schema(depth)
        if self.chance(0.5):
            return ({"type": "object", "additionalProperties": values},
                    lambda: {name: draw_value() for name in self.random.sample(NAMES, self.random.randint(0, 3))})
        pattern, texts = self.random.choice(PATTERNS)
        if self.chance(0.5):
            schema = {"type": "object", "patternProperties": {pattern: values}, "additionalProperties": False}
        else:
            schema = {"type": "object", "propertyNames": {"pattern": pattern}, "additionalProperties": values}
        return schema, lambda: {name: draw_value() for name in texts if self.chance(0.6)}

    def any_of(self, depth):
        parts = [self.schema(depth) for _ in range(self.random.randint(1, 3))]
        return {"anyOf": [part[0] for part in parts]}, lambda: self.random.choice(parts)[1]()

    def one_of(self, depth):
        if self.chance(0.5):
            first, second = self.schema(depth), {"type": "null"}
            if first[0].get("type") in (None, "null") or "null" in first[0]["type"]:
                return first
            return {"oneOf": [first[0], second]}, lambda: first[1]() if self.chance(0.7) else None
        branches = []
        for kind in ["p", "q", "r"][:self.random.randint(2, 3)]:
            part, draw = self.schema(depth)
            branches.append(({"type": "object", "properties": {"kind": {"const": kind}, "v": part},
                              "required": ["kind", "v"], "additionalProperties": False},
                             lambda kind=kind, draw=draw: {"kind": kind, "v": draw()}))
        return {"oneOf": [branch[0] for branch in branches]}, lambda: self.random.choice(branches)[1]()

    def all_of(self, depth):
        first, draw_first = self.schema(depth)
        second, draw_second = self.schema(depth)
        schema = {"allOf": [first, second]}
        validator = jsonschema.Draft202012Validator({**schema, "$defs": self.defs}, format_checker=CHECKER)

        def draw():
            for _ in range(10):
                value = self.random.choice([draw_first, draw_second])()
                if validator.is_valid(value):
                    return value
            raise Unlucky
        return schema, draw

    def ref(self, depth):
        name = f"d{len(self.defs)}"
        self.defs[name] = {}
        self.defs[name], draw = self.schema(depth)
        if self.chance(0.3):  # a list of itself
            inner = self.defs[name]
            self.defs[name] = {"anyOf": [inner, {"type": "array", "items": {"$ref": f"#/$defs/{name}"}, "maxItems": 2}]}
            return ({"$ref": f"#/$defs/{name}"},
                    lambda: draw() if self.chance(0.6) else [draw() for _ in range(self.random.randint(0, 2))])
        return {"$ref": f"#/$defs/{name}"}, draw

    def root(self):
        self.defs = {}
        schema, draw = self.schema(3)
        if self.defs:
            schema = {**schema, "$defs": self.defs}
        return schema, draw


def canonical(value):
    """An integer has no fraction."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [canonical(element) for element in value]
    if isinstance(value, dict):
        return {name: canonical(element) for name, element in value.items()}
    return value


def has_repeated_names(text):
    def pairs(items):
        if len(dict(items)) < len(items):
            raise KeyError
        return dict(items)
    try:
        json.loads(text, object_pairs_hook=pairs)
        return False
    except KeyError:
        return True


def main():
    program, count = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    corpus = Corpus(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    counts = dict.fromkeys(["schemas", "refused", "without instance", "drawn texts", "instances"], 0)
    reasons, failures = {}, 0
    for index in range(count):
        schema, draw = corpus.root()
        instances = []
        for _ in range(8):
            try:
                instances.append(draw())
            except Unlucky:
                pass
        validator = jsonschema.Draft202012Validator(schema, format_checker=CHECKER)
        instances = [value for value in instances if validator.is_valid(value)]
        line = {"schema": schema, "draw": 8, "any_whitespace": index % 3 == 0,
                "texts": [json.dumps(canonical(value), ensure_ascii=False) for value in instances]}
        process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
        answer = json.loads(process.stdout.readline())
        counts["schemas"] += 1
        if "error" in answer:
            empty = "no text" in answer["error"]
            counts["without instance" if empty else "refused"] += 1
            reason = answer["error"].split(": ", 1)[-1]
            if not empty:
                reasons[reason] = reasons.get(reason, 0) + 1
            if empty and instances:
                failures += 1
                print(f"no text, but an instance {line['texts'][0]}: {json.dumps(schema)}")
            continue
        for text, accepted in zip(line["texts"], answer["accepted"]):
            counts["instances"] += 1
            if not accepted:
                failures += 1
                print(f"not in the grammar: {text}\n  of {json.dumps(schema)}")
        for text in answer["drawn"]:
            counts["drawn texts"] += 1
            if not validator.is_valid(json.loads(text)) and not has_repeated_names(text):
                failures += 1
                print(f"no instance: {text}\n  of {json.dumps(schema)}")
    process.stdin.close()
    print(", ".join(f"{name}: {number}" for name, number in counts.items()))
    for reason, number in sorted(reasons.items(), key=lambda item: -item[1])[:10]:
        print(f"  refused {number}: {reason}")
    print("no difference" if failures == 0 else f"{failures} differences")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
