#!/usr/bin/env python3
"""Renders random Jinja templates with quire and with jinja2, in the environment that transformers makes.

    python3 tests/scripts/diff_jinja.py [--count N] [--seed N] RENDER_TOOL

(needs: pip install transformers jinja2; RENDER_TOOL is build/PRESET/render.) A template is made by a grammar of the
language: expressions of every operator, filters, tests, methods, loops, macros, blocks, white space control. Either both
give the same text or both an error. Prints the first differences, each cut down to what still differs, and a line with
the counts; exit status 1 if there are any. Not compared is what is in LIMITS.
"""
import argparse
import json
import random
import re
import signal
import subprocess
import sys

from transformers.utils.chat_template_utils import _cached_compile_jinja_template as compile_template

SHOWN = 12

VARIABLES = {
    "s": ["", "abc", " Hello  World ", "a,b,,c", "x\ny\n\nz", "Ünï ß", "日本", "<b>&'\"</b>", "3", "-1.5", "{}", "%s", "it's"],
    "t": ["", "a", "lo", ",", "\n", "Abc", "é"],
    "i": [0, 1, -1, 2, 3, 7, 100, -13],
    "j": [0, 1, 2, -3, 5],
    "f": [0.0, 1.0, -1.5, 0.1, 2.5, 1e16, 1e-7, 123456.789, 3.0],
    "b": [True, False],
    "n": [None],
    "l": [[], [1, 2, 3], [3, 1, 2, 1], ["b", "a", "C"], [1, "a", None], [[1, 2], [3, 4]], [True, 0, 1.5], ["", "x"]],
    "d": [{}, {"a": 1, "b": "x"}, {"b": [1], "a": None, "items": 2}, {"A": 1, "a": 0, "c": 2.5}],
    "messages": [
        [{"role": "user", "content": "Hi"}],
        [{"role": "system", "content": "S"}, {"role": "user", "content": " a\n"}, {"role": "assistant", "content": "b"}],
        [{"role": "user", "content": [{"type": "text", "text": "x"}]}, {"role": "tool", "content": None, "n": 1}],
    ],
}


class Grammar:
    def __init__(self, rng):
        self.rng, self.names, self.macros, self.loops = rng, list(VARIABLES), [], 0

    def pick(self, *choices):
        return self.rng.choice(choices)

    def chance(self, share):
        return self.rng.random() < share

    # --- expressions of a type, mostly

    def literal_string(self):
        text = self.pick("", "a", "b", "x", " ", ",", "abc", "A b", "\\n", "\\t", "é", "user", "role", "1", "<i>", "%", "it\\'s")
        return f"'{text}'"

    def string(self, depth):
        if depth <= 0 or self.chance(0.25):
            return self.pick("s", "t", self.literal_string(), self.literal_string())
        e, r = self.string, depth - 1
        n, li, a = self.number, self.list, self.any
        return self.pick(
            lambda: f"{e(r)} ~ {a(r)}",
            lambda: f"({e(r)} + {e(r)})",
            lambda: f"({e(r)} * {self.small()})",
            lambda: f"{self.primary(e(r))}[{self.slice()}]",
            lambda: f"{self.primary(e(r))}.{self.string_method(r)}",
            lambda: f"{self.primary(e(r))}|{self.string_filter(r)}",
            lambda: f"{self.primary(li(r))}|join({self.pick('', e(0))})",
            lambda: f"{self.primary(a(r))}|{self.pick('string', 'tojson', 'pprint', 'tojson(indent=2)', 'default(1)', 'e')}",
            lambda: f"({e(r)} if {self.condition(r)} else {e(r)})",
            lambda: f"({e(r)} % {self.pick(a(r), '(' + a(r) + ', ' + a(r) + ')')})",
            lambda: f"{self.pick(repr('{} {}'), repr('{0!r:>5}|{1}'), repr('{a}{:<4}'), e(0))}.format({a(r)}, {a(r)}, a={n(0)})",
            lambda: f"{self.pick(repr('%s %r'), repr('%5s|%-4s'), repr('%d %.2f'), repr('%05d%x'))}|format({a(r)}, {a(r)})",
            lambda: self.call(r),
        )()

    def small(self):
        return self.pick("0", "1", "2", "3", "-1", "j", "i")

    def integer(self):
        return self.pick("0", "1", "2", "3", "-1", "10", "7", "1_000", "0x1f", "0b101", "0o17", "i", "j", "i", "j", "255", "-8")

    def number(self, depth):
        if depth <= 0 or self.chance(0.2):
            return self.pick(self.integer(), self.integer(), "f", "1.5", "2.0", "1e3", ".5" if self.chance(0.1) else "0.25", "b")
        n, r = self.number, depth - 1
        return self.pick(
            lambda: f"({n(r)} {self.pick('+', '-', '*', '/', '//', '%')} {n(r)})",
            lambda: f"{n(r)} {self.pick('+', '-', '*', '//', '%', '/')} {n(r)}",
            lambda: f"({n(r)} ** {self.small()})",
            lambda: f"{self.pick('-', '+', '')}{n(r)}",
            lambda: f"{self.primary(n(r))}|{self.pick('int', 'float', 'abs', 'round', 'round(1)', 'round(0, %r)' % self.pick('floor', 'ceil', 'common'), 'int(2)', 'float(1.5)')}",
            lambda: f"{self.primary(self.pick(self.list(r), self.string(r), self.dict(r)))}|{self.pick('length', 'count')}",
            lambda: f"{self.primary(self.list(r))}|{self.pick('sum', 'min', 'max', 'first', 'last')}",
            lambda: f"{self.primary(self.string(r))}|{self.pick('int', 'float', 'wordcount', 'int(base=16)', 'int(5, 8)')}",
            lambda: f"{self.primary(self.string(r))}.{self.pick('find', 'rfind', 'count', 'index')}({self.string(0)})",
            lambda: f"{self.primary(self.list(r))}.{self.pick('count', 'index')}({self.any(0)})",
            lambda: f"{self.primary(self.list(r))}[{self.small()}]",
        )()

    def condition(self, depth):
        if depth <= 0 or self.chance(0.2):
            return self.pick("b", "true", "false", "none", "i", "s", "l", "d", "True", "missing")
        c, r, a = self.condition, depth - 1, self.any
        return self.pick(
            lambda: f"({c(r)} and {c(r)})",
            lambda: f"{c(r)} or {c(r)}",
            lambda: f"not {c(r)}",
            lambda: f"{self.number(r)} {self.pick('<', '<=', '>', '>=', '==', '!=')} {self.number(r)}",
            lambda: f"{self.number(r)} < {self.number(r)} {self.pick('<', '==', '!=')} {self.number(r)}",
            lambda: f"{self.string(r)} {self.pick('<', '==', '!=', '>=')} {self.string(r)}",
            lambda: f"{a(r)} {self.pick('==', '!=', 'in', 'not in')} {self.pick(a, self.list, self.string)(r)}",
            lambda: f"{self.primary(a(r))} is {self.pick('', 'not ')}{self.test(r)}",
            lambda: f"{self.primary(self.string(r))}.{self.pick('startswith', 'endswith')}({self.pick(self.string(0), '(' + self.string(0) + ', t)')})",
            lambda: f"{self.primary(self.string(r))}.{self.pick('isdigit', 'isalpha', 'isupper', 'islower', 'isspace', 'isalnum', 'istitle', 'isnumeric', 'isdecimal', 'isidentifier', 'isascii', 'isprintable')}()",
            lambda: f"({c(r)})",
        )()

    def test(self, depth):
        return self.pick(
            "defined", "undefined", "none", "string", "number", "integer", "float", "boolean", "mapping", "sequence", "iterable",
            "callable", "true", "false", "odd", "even", "upper", "lower", f"divisibleby {self.integer()}", f"eq {self.any(0)}",
            f"ne({self.any(0)})", f"lt({self.number(0)})", f"ge {self.number(0)}", f"in {self.list(0)}", f"sameas {self.pick('none', 'true', 'i')}",
            f"equalto({self.any(0)})", "filter", "test", "escaped", f"gt({self.number(0)})", "nosuchtest" if self.chance(0.1) else "defined")

    def list(self, depth):
        if depth <= 0 or self.chance(0.2):
            return self.pick("l", "messages", "[]", "[1, 2]", "(1,)", "range(3)|list", "l", "'abc'|list", "[3, 1, 2]", "()")
        li, r, a = self.list, depth - 1, self.any
        return self.pick(
            lambda: f"[{', '.join(a(r) for _ in range(self.rng.randrange(4)))}]",
            lambda: f"({a(r)}, {a(r)})",
            lambda: f"({li(r)} + {li(r)})",
            lambda: f"({li(r)} * {self.pick('0', '2', '-1')})",
            lambda: f"{self.primary(li(r))}[{self.slice()}]",
            lambda: f"{self.primary(li(r))}|{self.list_filter(r)}",
            lambda: f"{self.primary(self.string(r))}.{self.pick('split()', 'split(t)', 'split(%s, 1)' % repr(','), 'splitlines()', 'rsplit(none, 1)', 'partition(%s)' % repr(','), 'splitlines(true)', 'rpartition(t)', 'rsplit(t, 2)')}",
            lambda: f"{self.primary(self.dict(r))}.{self.pick('keys()', 'values()', 'items()')}|list",
            lambda: f"{self.primary(self.dict(r))}|{self.pick('items|list', 'dictsort', 'list', 'dictsort(true)', 'dictsort(by=%r)' % 'value', 'dictsort(reverse=true)')}",
            lambda: f"range({', '.join(self.integer() for _ in range(self.rng.randrange(1, 4)))})|list",
        )()

    def dict(self, depth):
        if depth <= 0 or self.chance(0.3):
            return self.pick("d", "messages[0]", "{}", "{'a': 1}", "d")
        return self.pick(
            lambda: "{" + ", ".join(f"{self.pick(self.literal_string(), self.integer(), 's', 'none', 'f')}: {self.any(depth - 1)}" for _ in range(self.rng.randrange(4))) + "}",
            lambda: f"dict(a={self.any(depth - 1)}, b={self.any(0)})",
            lambda: f"dict({self.dict(depth - 1)}, c=1)",
            lambda: f"{self.primary('messages')}|{self.pick('first', 'last')}",
        )()

    def any(self, depth):
        if self.chance(0.06):
            return self.pick("missing", "missing.x", "s.x", "d.x", "d['a']", "d.a", "messages[0].content", "loop.index" if self.loops else "none",
                             "namespace(x=1).x", "l[5]", "caller", "range(2)", "loop" if self.loops else "s",
                             "(d|attr('a'))", "cycler(1, 2).next()", "joiner()()", "[].append", "d.get('a', 'z')", "d.b", "'a'.__class__")
        return self.pick(self.string, self.number, self.condition, self.list, self.dict, self.string, self.variable)(depth)

    def variable(self, depth):
        return self.rng.choice(self.names)

    def primary(self, text):
        """Most often in parentheses where precedence would cut it, sometimes not."""
        simple = re.fullmatch(r"\w+|'[^']*'|[\[({][^()\[\]{}]*[\])}]", text)
        return text if simple or self.chance(0.08) else f"({text})"

    def slice(self):
        part = lambda: self.pick("", "", "0", "1", "-1", "2", "j")
        return self.pick(f"{part()}:{part()}", f"{part()}:{part()}:{self.pick('', '2', '-1', '-2', '0', '1')}", self.integer(), f"{part()}:")

    def string_method(self, r):
        e = self.string
        return self.pick(
            lambda: self.pick("upper()", "lower()", "title()", "capitalize()", "swapcase()", "casefold()", "strip()", "lstrip()", "rstrip()", "expandtabs(4)"),
            lambda: f"{self.pick('strip', 'lstrip', 'rstrip')}({e(0)})",
            lambda: f"replace({e(0)}, {e(0)}{self.pick('', ', 1', ', j', ', -1')})",
            lambda: f"{self.pick('removeprefix', 'removesuffix')}({e(0)})",
            lambda: f"{self.pick('center', 'ljust', 'rjust')}({self.integer() if self.chance(.5) else 9}{self.pick('', ', ' + repr('*'), ', t')})",
            lambda: f"zfill({self.integer()})",
            lambda: f"join({self.list(r)})",
            lambda: f"{self.pick('encode', 'nosuch', 'translate')}()" if self.chance(0.15) else "strip()",
        )()

    def string_filter(self, r):
        e = self.string
        return self.pick(
            lambda: self.pick("upper", "lower", "title", "capitalize", "trim", "string", "striptags", "reverse", "urlencode", "escape", "safe", "forceescape", "first", "last", "center(9)"),
            lambda: f"trim({e(0)})",
            lambda: f"replace({e(0)}, {e(0)}{self.pick('', ', 1', ', 0')})",
            lambda: f"indent({self.pick('', '2', '4, true', '2, blank=true', repr('> '), 'width=1, first=b')})",
            lambda: f"truncate({self.pick('3', '5, true', '5, true, ' + repr('..'), '4, false, ' + repr(''), '6, leeway=0', '9')})",
            lambda: f"wordwrap({self.pick('3', '5', '4, false', '5, wrapstring=' + repr('|'), '2, break_on_hyphens=false')})",
            lambda: f"default({e(0)}{self.pick('', ', true', ', b')})",
            lambda: f"d({e(0)})",
            lambda: f"center({self.integer()})",
            lambda: f"filesizeformat" if self.chance(0.2) else "trim",
            lambda: "nosuchfilter" if self.chance(0.05) else "trim",
        )()

    def list_filter(self, r):
        return self.pick(
            lambda: self.pick("list", "sort", "unique|list", "reverse|list", "sort(reverse=true)", "sort(case_sensitive=true)", "unique(true)|list"),
            lambda: f"map({self.pick(repr('upper'), repr('string'), repr('length'), repr('int'), repr('default') + ', 1', 'attribute=' + repr('role'), 'attribute=' + repr('content') + ', default=' + repr('z'), 'attribute=0', repr('replace') + ', ' + repr('a') + ', t')})|list",
            lambda: f"{self.pick('select', 'reject')}({self.pick('', repr('string'), repr('odd'), repr('defined'), repr('gt') + ', 1', repr('in') + ', l', repr('equalto') + ', 1')})|list",
            lambda: f"{self.pick('selectattr', 'rejectattr')}({self.pick(repr('role'), repr('role') + ', ' + repr('equalto') + ', ' + repr('user'), repr('content') + ', ' + repr('string'), repr('n') + ', ' + repr('defined'))})|list",
            lambda: f"{self.pick('batch', 'slice')}({self.pick('1', '2', '3', '2, none', '2, 0', '2, fill_with=' + repr('x'))})|list",
            lambda: f"sort(attribute={self.pick(repr('role'), repr('content'), '0', repr('role,content'))})",
            lambda: f"groupby({self.pick(repr('role'), '0', repr('n') + ', default=1')})|list",
            lambda: f"sum({self.pick('start=1', 'attribute=' + repr('n'), 'start=[]')})|string|list",
        )()

    def call(self, r):
        if not self.macros:
            return self.string(r)
        name, parameters = self.rng.choice(self.macros)
        given = [self.any(min(r, 1)) for _ in range(self.rng.randrange(parameters + (2 if self.chance(0.1) else 1)))]
        if self.chance(0.3):
            given.append(f"{self.pick('p0', 'p1', 'q')}={self.any(0)}")
        return f"{name}({', '.join(given)})"

    # --- templates

    def begin(self, word):
        return "{%" + self.pick("", "", "-", "-", "+") + self.pick(" ", " ", "") + word + " " + self.pick("", "", "-", "-", "+") + "%}"

    def text(self):
        return self.pick("", "", "\n", " ", "a", "\n  ", "b\n", "  \n\n", "x y", "é", "<|im_end|>", "{", "}", "'", "# ", "\t", "{ {", "\r\n", "% }")

    def output(self, depth):
        return "{{" + self.pick(" ", "- ", "") + self.any(depth).lstrip("-+") + self.pick(" ", " -", " ") + "}}"

    def with_names(self, names, make):
        before = list(self.names)
        self.names = self.names + 2 * names
        result = make()
        self.names = before
        return result

    def for_loop(self, depth):
        head, names = self.pick(
            lambda: (f"x in {self.pick(self.list, self.string, self.dict, self.any)(2)}", ["x"]),
            lambda: (f"x in {self.list(2)}", ["x"]),
            lambda: (f"k, v in {self.primary(self.dict(1))}.items()", ["k", "v"]),
            lambda: (f"(k, v) in {self.primary(self.dict(1))}|dictsort", ["k", "v"]),
            lambda: ("m in messages", ["m", "m.role", "m.content", "m['content']"]),
            lambda: (f"x in {self.list(1)} if {self.pick('x', 'x is string', 'not loop.first' if self.loops else 'x != 1', self.condition(1))}", ["x"]),
            lambda: (f"x in {self.list(1)} recursive", ["x", "loop(l)", "loop([1])" if self.chance(.2) else "x"]),
            lambda: (f"m, x in l", ["m", "x"]),
        )()
        loop = ["loop.index", "loop.index0", "loop.first", "loop.last", "loop.length", "loop.revindex", "loop.revindex0", "loop.depth",
                "loop.previtem", "loop.nextitem", "loop.cycle('a', 'b')", "loop.changed(i)", "loop.depth0", "loop.cycle(s)"]

        def make():
            self.loops += 1
            body = self.body(depth - 1)
            if self.chance(0.3):
                body += self.begin("if " + self.condition(1)) + self.begin(self.pick("break", "continue")) + self.begin("endif") + self.body(0)
            self.loops -= 1
            return body

        body = self.with_names(names + self.rng.sample(loop, 3), make)
        otherwise = self.begin("else") + self.body(0) if self.chance(0.25) else ""
        return self.begin("for " + head) + body + otherwise + self.begin("endfor")

    def macro(self, depth):
        name, count = self.pick("m0", "m1"), self.rng.randrange(3)
        parameters = [f"p{i}" + (f"={self.any(0)}" if i >= 1 or self.chance(0.3) else "") for i in range(count)]
        seen = [f"p{i}" for i in range(count)] + self.pick([], ["varargs"], ["kwargs"], ["caller()" if self.chance(0.3) else "caller is defined"])
        loops, self.loops = self.loops, 0
        body = self.with_names(seen, lambda: self.body(depth - 1))
        self.loops = loops
        result = self.begin(f"macro {name}({', '.join(parameters)})") + body + self.begin("endmacro")
        self.macros.append((name, count))
        return result

    def statement(self, depth):
        r = depth - 1
        return self.pick(
            lambda: self.begin("if " + self.condition(2)) + self.body(r) + (self.begin("elif " + self.condition(1)) + self.body(r) if self.chance(0.3) else "")
            + (self.begin("else") + self.body(r) if self.chance(0.4) else "") + self.begin("endif"),
            lambda: self.for_loop(depth),
            lambda: self.for_loop(depth),
            lambda: self.begin(f"set {self.pick('v', 's', 'x', 'l')} = {self.any(2)}"),
            lambda: self.begin("set v, w = " + self.pick("1, 2", "l", "'ab'", "(s, t)", self.any(1))),
            lambda: self.begin("set ns = namespace(" + self.pick("", "v=0", "v=" + self.any(1), "d")  + ")") + self.begin("set ns.v = " + self.any(2)) + "{{ ns.v }}",
            lambda: self.begin("set v" + self.pick("", " | upper", " | trim | length")) + self.body(r) + self.begin("endset") + "{{ v }}",
            lambda: self.macro(depth),
            lambda: self.begin("filter " + self.string_filter(0)) + self.body(r) + self.begin("endfilter"),
            lambda: self.begin(f"with {self.pick('v = ' + self.any(1), 'v = 1, w = ' + self.any(1), '')}") + self.body(r) + self.begin("endwith"),
            lambda: "{%" + self.pick("", "-") + " raw " + self.pick("", "-") + "%}" + self.pick("{{ x }}", " a {% if %} ", "") + "{%" + self.pick("", "-") + " endraw " + self.pick("", "-") + "%}",
            lambda: "{#" + self.pick("", "-") + self.pick(" c ", " {{ x }} ", "\n") + self.pick("", "-") + "#}",
            lambda: self.begin("call" + self.pick("", "", "(u)") + " " + self.call(1)) + self.body(r) + self.begin("endcall") if self.macros else self.text(),
            lambda: self.begin("generation") + self.body(r) + self.begin("endgeneration"),
            lambda: self.begin("raise_exception('x')") if self.chance(0.02) else "{{ raise_exception(s) }}" if self.chance(0.02) else self.text(),
        )()

    def body(self, depth):
        parts = []
        for _ in range(self.rng.randrange(1, 4)):
            parts.append(self.text())
            parts.append(self.statement(depth) if depth > 0 and self.chance(0.5) else self.output(self.rng.randrange(4)))
        return "".join(parts) + self.text()


def make_case(seed):
    rng = random.Random(seed)
    grammar = Grammar(rng)
    template = grammar.body(rng.randrange(4))
    if rng.random() < 0.05:  # not quite a template
        at = rng.randrange(len(template) + 1)
        template = template[:at] + rng.choice(["", "%}", "{{", "(", "'", "|", " is ", "\\"]) + template[at + rng.randrange(3):]
    return template, {name: rng.choice(values) for name, values in VARIABLES.items()}


class Timeout(Exception):
    pass


def stop(*_):
    raise Timeout


def expected(template, variables):
    """("text", text) or ("error", sentence) by jinja2."""
    signal.setitimer(signal.ITIMER_REAL, 2)
    try:
        return "text", compile_template(template).render(**json.loads(json.dumps(variables)))
    except Timeout:
        return "error", "timeout"
    except Exception as e:  # whatever Python raises within a template
        return "error", f"{type(e).__name__}: {e}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


class Quire:
    def __init__(self, tool):
        self.process = subprocess.Popen([tool], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def render(self, template, variables):
        request = json.dumps({"template": template, "variables": variables})
        self.process.stdin.write(request.encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"render ended with status {self.process.wait()} for {request}")
        return next(iter(json.loads(answer).items()))


LIMITS = [  # a template, jinja2's answer, quire's answer
    (r"", r"", r"64 bits|too large|takes longer|MiB"),  # integers, time and memory are bounded
    (r"", r"", r"is not supported in templates"),       # str.encode and other methods that no template uses
    (r"", r"", r"'LoopContext' object is not iterable"),
    (r"", r"(?i) at\s0x[0-9a-f]+>|\d{20}", r""),        # addresses; integers of more than 64 bits
    (r"", r"Markup\(", r""),                            # methods of Markup give plain strings
    (r"", r"", r"cannot be sliced"),                    # jinja2 gives an undefined value if all of it is constant
    (r"", r"", r"there is no (test|filter)"),           # jinja2 does not see one in what constants make unreachable
    (r"escape|safe|\|e\b", r"", r"must have a string|expected str"), # methods of Markup escape
    (r"truncate", r"", r"truncate must have a string"), # jinja2 takes anything that has a length
    (r"pprint", r"is undefined", r""),                  # jinja2 cannot order undefined keys of a dict
    (r"(wordwrap|replace)\b", r"Undefined|\bundefined", r""),  # an undefined argument counts as not given
    (r"filter (first|last)", r"Undefined found", r""),  # jinja2 cannot print what such a block gives
    # jinja2 writes a negative constant into its Python without parentheses, so that -1 ** i becomes -(1 ** i).
    (r"-.*\*\*", r"", r""),
]


def is_limit(template, theirs, ours):
    """Whether a difference is a known limit of quire, or of jinja2."""
    if "pprint" in template and sorted(theirs[1]) == sorted(ours[1]):
        return True  # dicts with keys of several types, and in the tuples of groupby, are in another order
    return any(all(re.search(r, t, re.DOTALL) for r, t in zip(limit, (template, theirs[1], ours[1]))) for limit in LIMITS)


def differs(quire, template, variables):
    theirs = expected(template, variables)
    ours = quire.render(template, variables)
    same = theirs[0] == ours[0] and (theirs[0] == "error" or theirs[1] == ours[1])
    return None if same or is_limit(template, theirs, ours) else (theirs, ours)


def reduce_case(quire, template, variables):
    """The template without what can be left out."""
    size = len(template) // 2
    while size >= 1:
        at, before = 0, template
        while at < len(template):
            shorter = template[:at] + template[at + size:]
            if differs(quire, shorter, variables):
                template = shorter
            else:
                at += size
        size = size if template != before and size == 1 else size // 2
    return template


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("tool")
    arguments = parser.parse_args()
    signal.signal(signal.SIGALRM, stop)
    quire, texts, different = Quire(arguments.tool), 0, 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        template, variables = make_case(seed)
        if not differs(quire, template, variables):
            texts += expected(template, variables)[0] == "text" if seed % 10 == 0 else 0
            continue
        different += 1
        if different <= SHOWN:
            template = reduce_case(quire, template, variables)
            theirs, ours = differs(quire, template, variables)
            used = {n: v for n, v in variables.items() if re.search(rf"\b{n}\b", template)}
            print(f"seed {seed}: {template!r} {json.dumps(used, ensure_ascii=False)}\n  jinja2 {theirs}\n  quire  {ours}", flush=True)
    print(f"{arguments.count} templates, {different} different; about {100 * texts * 10 // arguments.count} % render")
    sys.exit(different > 0)


if __name__ == "__main__":
    main()
