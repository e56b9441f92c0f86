#!/usr/bin/env python3
"""Makes tests/data/jinja.json: small templates, and what jinja2 gives for them in the environment of transformers'
apply_chat_template, so that the C code is compared with a path that it does not share. A case is [template, text], or
[template, null] where jinja2 raises an error. All of them get the same variables.

    python3 tests/scripts/make_jinja_golden.py        (needs: pip install jinja2 transformers)

test_jinja.c reads it. Filters, tests and methods have a script of their own, make_jinja_filter_golden.py: this one is
about the language.
"""
import json
import os

from transformers.utils.chat_template_utils import _compile_jinja_template

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")

VARIABLES = {
    "a": 3, "b": -2, "f": 2.5, "s": "text", "e": "", "t": True, "n": None, "xs": [1, 2, 3, 4], "none_at_all": [],
    "pairs": [["k", 1], ["l", 2]], "d": {"x": 1, "y": {"z": [10, 20]}, "items": "shadow"}, "words": ["b", "a", "b", "c"],
    "messages": [{"role": "system", "content": "Be <b>."}, {"role": "user", "content": "  Hi é  "},
                 {"role": "assistant", "content": None, "tool_calls": [{"name": "f", "arguments": {"q": "x"}}]}],
    "tree": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3, "c": []}]}, {"v": 4, "c": []}]}, {"v": 5, "c": []}],
    "huge": {"big": 10**30, "low": -(10**30), "edge": 2**63, "nan": float("nan"), "inf": float("inf"), "-inf": -float("inf")},
}

# Each line of these is a template.
EXPRESSIONS = r"""
1 + 2 * 3
(1 + 2) * 3
2 ** 3 ** 2
-2 ** 2
2 ** -1
- 2 ** 3
-3|abs
-b|abs
+a
--a
- - a
+-+a
7 // 2 * 2
7 % 3 + 7 // -2
-7 % 3
-7 // 2
1 - 2 - 3
100 / 10 / 5
1 ~ 2 + 3
1 + 2 ~ 3
1 * 2 ~ 3 * 4
'a' ~ 1 ~ none ~ true ~ 1.5
'a' ~ missing ~ 'b'
1 ~ 2 == '12'
'x' * 3
3 * 'x'
[1] * 2 + [2]
'%s-%d' % ('a', 3)
not true
not not a
not a == 3
not a in xs
a not in xs
huge
huge|tojson
huge|tojson(indent=1)
huge|pprint
huge.big
huge.big ~ 'x' ~ huge.low ~ huge.nan ~ huge.inf
[huge.big, huge.low]|join(',')
huge.big|string|length
'%s %r' % (huge.big, huge.low)
'{}'.format(huge.edge)
huge.big|int
huge.big|float
huge.big|urlencode
huge.big is integer
huge.big is number
huge.nan is float
huge.big is string
'yes' if huge.big else 'no'
huge.big == huge.big
huge.big == huge.edge
huge.big != huge.low
huge.big > huge.edge
huge.low < huge.big
huge.low < -5
5 < huge.big
huge.big < huge.inf
huge.big < huge['-inf']
huge.low > huge.nan
huge.edge == 2.0 ** 63
2.0 ** 63 == huge.edge
huge.edge < 2.0 ** 64
huge.edge > 0.5
huge.big == 1e30
huge.big < 1e30
huge.big in [1, huge.big]
{huge.edge: 'x'}[2.0 ** 63]
{2.0 ** 63: 'x'}[huge.edge]
[huge.big, 1, huge.low, huge.edge]|sort
[huge.big, 1.5, huge.low]|max
huge.nan == huge.nan
5 not in xs
not 5 not in xs
a in xs and 1 in xs
1 < 2 < 3
1 < 3 < 2
3 > 2 > 1 == true
1 == 1 != 2
1 < 2 in [true]
1 <= 1 >= 1
'a' < 'b' <= 'b'
1 == 1.0 == true
a == 3 and b == 2 or 'else'
a or b and 0
0 or '' or none or 'last'
0 or ''
1 and 'x' and []
none and missing.x.y
true or missing.x.y
missing and 1
missing or 'default'
1 if true
1 if false
1 if false else 2
1 if a == 3 else 2 if b else 3
1 if false else 2 if false else 3
(1 if false) is defined
(1 if false else missing) is undefined
'x' if missing else 'y'
1 if true if false
1 if true else 2 if false
a is defined
zz is defined
zz is not defined
not zz is defined
a is none
n is none
n is not none
a is number and b is number
a is divisibleby 3
a is divisibleby(2)
a is divisibleby 3 and true
a + 1 is divisibleby 2
(a + 1) is divisibleby 2
a is odd is defined
a is eq 3
a is eq(3)
a is == 3
a is in xs
a is in [3]
a is in(xs)
a is not in [3]
a is sameas a
s is string
s is string and a is string
d is mapping
d is mapping if a
xs is iterable ~ 'x'
s is eq 'text' 'y'
s is eq s.lower()
s is eq xs[0]
s is lt 'u'
a is gt 2 or false
a is defined else 3
d.x is defined
d.q is defined
d.q.r is defined
d['x'] is eq 1
missing.x is defined
missing
missing.x
missing['x']
missing.x.y
missing()
missing + 1
1 + missing
missing ~ 'x'
missing == missing
missing == none
missing in xs
1 in missing
-missing
missing < 1
missing[1:]
missing|length
missing|default('d')
missing|list
d.x
d['x']
d.y.z[1]
d.y['z'][0]
d.y.z.1
d.y.z.5
d.y.z[-1]
d.y.z[5]
d['items']
d.keys()|list
d.nope
d.nope.nope
s.upper()
s.nope
s.nope()
s.__class__
s['upper']()
xs.append(5)
d.update({})
xs.index(3)
xs.0
xs[0]
xs[-1]
xs['0']
xs[1:]
xs[:2]
xs[1:3]
xs[::2]
xs[::-1]
xs[-2:]
xs[:-2]
xs[3:1]
xs[1::2]
xs[:3:2]
xs[a:]
xs[:]
xs[1:none]
xs[::0]
s[1:3]
s[::-1]
s[1]
s[-1]
s[9]
'aé中😀'[1:3]
'aé中😀'[::-1]
(1, 2, 3)[1:]
d[1:]
xs[1:2][0]
xs[1, 2]
d[(1, 2)]
[1, 2, 3,]
[]
[[1], [2, [3]]]
()
(1,)
(1)
(1, 2)
1, 2
1,
{'a': 1, 'b': [2]}
{}
{'a': 1,}
{1: 2, none: 3, (1, 2): 4}
{'a': 1, 'a': 2}
{a: s}
{[1]: 2}
{'a': 1}.a
{'a': {'b': 'c'}}['a']['b']
{'a': 1}['a'] + 1
[1, 2][0]
'abc'|upper|lower
'abc'|upper ~ 'x'
a ~ 'b'|upper
(a ~ 'b')|upper
1 + '2'|int
xs|length > 3
xs | length
xs|join(', ')
xs|join('-')|length
xs|join(d=';')
xs|first + xs|last
'a b'.split()|join('+')
'a,b'.split(',')[1]
xs|map('string')|join
xs|nope
nope(1)
xs|nope if false else 1
1 if true else xs|nope
xs is nope
a is nope if false else 1
'a' 'b'
'a' "b" 'c'|upper
'it\'s'
"say \"x\""
'a\tb\\n\n'
'\x41\u00e9\U0001F600\101\7'
'\q\.\d'
'line\
joined'
'\é'
'\xzz'
'\u12'
'\0'|length
1_000
0x1F
0X_ff
0o17
0b1_01
00
0_0
007
1.5
1.0
1e3
1E-2
1.5e+3
1_0.2_5
1e400
1.
1.e5
.5
9223372036854775807
3.upper
true, True, false, False, none, None
TRUE
none|string ~ None
true + 1
1.0
10 / 4
10 / 5
7 // 2.0
2 ** 0.5
1 / 0
1 // 0
1 % 0
0.1 + 0.2
1e16
123456789.123
'é' ~ "中"
range(3)|list
range(1, 10, 3)|list
dict(a=1, b=2)
dict(a=1).a
range(3)[1]
xs|sum(start=1)
range(*[1, 4])|list
dict(**{'z': 1})
dict(**d)
range(*xs[:2])|list
range(1, *[3])|list
dict(a=1, **{'a': 2})
range(stop=3)
namespace(a=1).a
namespace(a=1, b=2).b
namespace().q is defined
namespace({'k': 5}).k
raise_exception('no')
[1, 'a', none, true, 1.5, {'k': ['v']}]
['it\'s', "q\"q", 'b\\', 'n\n']
d
d|tojson
messages[1].content.strip()
messages[-1].tool_calls[0].arguments|tojson
messages|map(attribute='role')|join(',')
messages|selectattr('role', 'equalto', 'user')|list|length
messages[0]['role'] == 'system' and messages[0].content
messages[0].role in ['system', 'developer']
'ste' in messages[0].role
'role' in messages[0]
'q' not in messages[0]
a if a is defined and a else b
xs == [1, 2, 3, 4]
xs != xs[:]
(1, 2) == [1, 2]
'a' == 1
'a' < 1
none < 1
[1, 2] < [1, 3]
loop
caller
varargs
in
if
a b
a +
+
(a
a)
[a
{a}
{'a'}
{'a': }
a.
a..b
a.'x'
a[
a[]
a()
a(1
f(a=1, 2)
f(*xs, 1)
f(**d, a=1)
f(**d, *xs)
f(a=1, a=2)
f(,)
f(1,)
a|
a|1
a is
a is 1
a is not
a is is b
a!b
a & b
a = 1
a ; b
a $ b
'unclosed
a === b
a <> b
a not b
a if
a if b else
"""

STATEMENTS = r"""
{% if a %}1{% endif %}
{% if b == 3 %}1{% else %}2{% endif %}
{% if e %}1{% elif t %}2{% else %}3{% endif %}
{% if e %}1{% elif n %}2{% elif missing %}3{% elif xs %}4{% else %}5{% endif %}
{% if a, %}tuple{% endif %}
{% if a: %}colon{% endif %}
{% if missing.x %}1{% endif %}
{% if a %}{% if b %}{% if n %}{% else %}deep{% endif %}{% endif %}{% endif %}
{% if %}1{% endif %}
{% if a %}1
{% if a %}1{% endfor %}
{% if a %}1{% else %}2{% else %}3{% endif %}
{% if a %}1{% endif a %}
{% endif %}
{% else %}
{% nonsense %}
{% %}
{% 1 %}
{% do xs.append(1) %}
{% for x in xs %}{{ x }},{% endfor %}
{% for x in none_at_all %}{{ x }}{% else %}empty{% endfor %}
{% for x in missing %}{{ x }}{% else %}empty{% endfor %}
{% for x in n %}{{ x }}{% endfor %}
{% for x in 5 %}{{ x }}{% endfor %}
{% for c in 'aé😀' %}[{{ c }}]{% endfor %}
{% for k in d %}{{ k }};{% endfor %}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in pairs %}{{ k }}{{ v }}{% endfor %}
{% for (k, v) in pairs %}{{ k }}{{ v }}{% endfor %}
{% for k, in [[1], [2]] %}{{ k }}{% endfor %}
{% for i, (k, v) in [[1, [2, 3]]] %}{{ i }}{{ k }}{{ v }}{% endfor %}
{% for k, v in xs %}{{ k }}{% endfor %}
{% for k, v in [[1, 2, 3]] %}{{ k }}{% endfor %}
{% for k, v in [[1]] %}{{ k }}{% endfor %}
{% for k, v in ['ab', 'cd'] %}{{ v }}{{ k }}{% endfor %}
{% for x in xs if x % 2 == 0 %}{{ x }}{{ loop.index }}{{ loop.length }}{% endfor %}
{% for x in xs if x > 9 %}{{ x }}{% else %}none{% endfor %}
{% for x in xs if x is odd %}{{ x }}{{ loop.last }}{% endfor %}
{% for k, v in pairs if v > 1 %}{{ k }}{{ loop.previtem }}{% endfor %}
{% for x in xs if loop %}{{ x }}{% endfor %}
{% for x in (xs if a else []) %}{{ x }}{% endfor %}
{% for x in 1, 2, 3 %}{{ x }}{% endfor %}
{% for x in xs[1:] + [9] %}{{ x }}{% endfor %}
{% for x in xs|reverse %}{{ x }}{% endfor %}
{% for x in range(3) %}{{ x }}{% endfor %}
{% for x in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}
{% for x in xs %}{{ loop.depth }}{{ loop.depth0 }}{{ loop.nope is defined }}{{ loop }}{% endfor %}
{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }};{% endfor %}
{% for x in xs %}{{ loop.previtem is defined }}{{ loop.nextitem is defined }}{% endfor %}
{% for x in words %}{% if loop.changed(x) %}{{ x }}{% endif %}{% endfor %}
{% for x in [1, 1, 2] %}{{ loop.changed(x, 0) }}{% endfor %}
{% for x in xs %}{{ loop.cycle('odd', 'even', 'third') }} {% endfor %}
{% for x in xs %}{{ loop.cycle() }}{% endfor %}
{% for x in xs %}{{ loop['index'] }}{{ loop|length }}{% endfor %}
{% for x in xs %}{% for y in words %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}
{% for x in xs %}{% set outer = loop %}{% for y in [1, 2] %}{{ outer.index }}.{{ loop.index }} {% endfor %}{% endfor %}
{% for x in xs %}{% if x == 3 %}{% break %}{% endif %}{{ x }}{% endfor %}
{% for x in xs %}{% if x == 3 %}{% continue %}{% endif %}{{ x }}{% endfor %}
{% for x in xs %}{% break %}{% else %}else{% endfor %}
{% for x in xs %}{% continue %}{% else %}else{% endfor %}
{% for x in xs %}{% if x == 2 %}{% break %}{% endif %}{% else %}else{% endfor %}
{% for x in [1, 2] %}{% for y in [1, 2] %}{% if y == 2 %}{% break %}{% endif %}{{ x }}{{ y }}{% endfor %};{% endfor %}
{% for x in [1, 2] %}{% for y in [] %}{% else %}{% break %}{% endfor %}{{ x }}{% endfor %}
{% for x in xs %}{% with y = x %}{% if y == 2 %}{% continue %}{% endif %}{{ y }}{% endwith %}{% endfor %}
{% for x in xs %}{% filter upper %}a{% if x == 2 %}{% break %}{% endif %}b{% endfilter %}{% endfor %}
{% for x in xs %}{% set v %}a{% if x == 2 %}{% break %}{% endif %}b{% endset %}{{ v }}{% endfor %}
{% break %}
{% if a %}{% continue %}{% endif %}
{% for x in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% for x in xs %}{{ x }}{% endfor %}{{ x }}
{% for a in xs %}{{ a }}{% endfor %}{{ a }}
{% for x in xs %}{{ loop.index }}{% endfor %}{{ loop }}
{% for x in xs %}{{ x }}
{% for x xs %}{% endfor %}
{% for x in %}{% endfor %}
{% for in xs %}{% endfor %}
{% for true in xs %}{% endfor %}
{% for a.b in xs %}{% endfor %}
{% for loop in xs %}{% endfor %}
{% for x in xs %}{% set loop = 1 %}{% endfor %}
{% for n in tree recursive %}{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}
{% for n in tree recursive %}{{ loop.depth }}{{ loop.depth0 }}{{ n.v }} {{ loop(n.c) }}{% endfor %}
{% for n in tree recursive %}[{{ n.v }}{{ loop(n.c) }}]{% else %}-{% endfor %}
{% for n in tree if n.v != 2 recursive %}{{ n.v }}{{ loop(n.c) }}{% endfor %}
{% set q = 7 %}{% for n in tree recursive %}{{ q }}{% set q = n.v %}{{ q }} {{ loop(n.c) }}{% endfor %}{{ q }}
{% for n in tree recursive %}{% for m in n.c %}{{ m.v }}{% endfor %}{{ loop(n.c)|upper }}{% endfor %}
{% for n in tree %}{{ loop(n.c) }}{% endfor %}
{% for n in tree recursive %}{{ loop() }}{% endfor %}
{% for n in tree recursive %}{{ loop(5) }}{% endfor %}
{% set ns = namespace(v=2) %}{% for x in xs if x >= ns.v %}{% set ns.v = 4 %}{{ x }}{% endfor %}
{% set ns = namespace(v=0) %}{% for x in xs if x > ns.v %}{{ x }}{% set ns.v = ns.v + 2 %}{% endfor %}
{% set ns = namespace(v=0) %}{% for x in xs if x > ns.v %}{{ loop.length }}{% set ns.v = 3 %}{% endfor %}
{% set ns = namespace(v=0) %}{% for x in xs if x > ns.v %}{{ loop.last }}{{ x }}{% set ns.v = 3 %}{% endfor %}
{% for x in xs if x < a %}{% generation %}{{ loop.length }}{{ x }}{% endgeneration %}{% endfor %}
{% macro m(l) %}{{ l.length }}{{ l.nextitem }}{% endmacro %}{% for x in xs if x < a %}{{ m(loop) }};{% endfor %}
{% set x = 1 %}{{ x }}
{% set x = 1, 2 %}{{ x }}
{% set x, y = 1, 2 %}{{ x }}{{ y }}
{% set (x, y) = [1, 2] %}{{ x }}{{ y }}
{% set x, (y, z) = 1, (2, 3) %}{{ x }}{{ y }}{{ z }}
{% set x, y = 1 %}
{% set x, y = [1] %}
{% set x = x %}{{ x is defined }}
{% set a = a + 1 %}{{ a }}
{{ a }}{% set a = 9 %}{{ a }}
{% set x = 1 if e %}{{ x }}{{ x is defined }}
{% set x = missing %}{{ x is defined }}{{ x.y is defined }}
{% set %}{% endset %}
{% set x %}{% endset %}[{{ x }}]
{% set x = %}
{% set 1 = 2 %}
{% set none = 2 %}
{% set x.y = 2 %}
{% set d.x = 2 %}
{% set d['x'] = 2 %}
{% set s.y = 2 %}
{% set ns = namespace(x=1) %}{% set ns.x = ns.x + 1 %}{{ ns.x }}
{% set ns = namespace() %}{% set ns.x, ns.y = 1, 2 %}{{ ns.x }}{{ ns.y }}
{% set ns = namespace(n=0) %}{% for x in xs %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}
{% set ns = namespace(n=0) %}{% set ns.q.r = 1 %}
{% set ns = namespace(f=false) %}{% for m in messages %}{% if m.role == 'user' and not ns.f %}{% set ns.f = true %}{{ m.content }}{% endif %}{% endfor %}
{% set x = 0 %}{% for y in xs %}{% set x = x + y %}{{ x }},{% endfor %}{{ x }}
{% for y in xs %}{% set z = y %}{% endfor %}{{ z }}
{% for y in xs %}{{ z }}{% set z = y %}{% endfor %}
{% for y in xs %}{% with %}[{{ q }}]{% endwith %}{% set q = y %}{% endfor %}
{% for y in xs %}{% for z in [1] %}[{{ q }}]{% endfor %}{% set q = y %}{% endfor %}
{% for y in xs %}{% macro m() %}[{{ q }}]{% endmacro %}{{ m() }}{% set q = y %}{{ m() }}{% endfor %}
{% if t %}{% set x = 5 %}{% endif %}{{ x }}
{% if e %}{% set x = 5 %}{% endif %}{{ x }}
{% if e %}{% set a = 5 %}{% endif %}{{ a }}
{% if t %}{% set a = 5 %}{% endif %}{{ a }}
{% if e %}{% set x = 1 %}{% else %}{% set x = 2 %}{% endif %}{{ x }}
{% if e %}{% set a = 1 %}{% else %}{{ a }}{% endif %}
{% for y in xs %}{{ a }}{% endfor %}{% set a = 8 %}
{% for y in xs %}{{ a }}{% if y == 2 %}{% set a = 8 %}{% endif %}{{ a }} {% endfor %}{{ a }}
{% for y in xs %}{% if y == 2 %}{% set q = 8 %}{% endif %}{{ q }}.{% endfor %}{{ q }}
{% if e %}{% set a = 1 %}{% endif %}{% for y in [1] %}{{ a }}{% set a = 2 %}{{ a }}{% endfor %}{{ a }}
{% set x %}a{{ a }}b{% endset %}{{ x }}{{ x|length }}
{% set x | upper %}abc{% endset %}{{ x }}
{% set x | upper | replace('A', 'z') %}abc{% endset %}{{ x }}
{% set x %}{% set y = 1 %}{{ y }}{% endset %}{{ x }}{{ y }}
{% set x %}{% for i in xs %}{{ i }}{% endfor %}{% endset %}<{{ x }}>
{% set ns = namespace() %}{% set ns.x %}in{% endset %}{{ ns.x }}
{% set a | default('d') %}{% endset %}[{{ a }}]
{% set a, b %}xy{% endset %}{{ a }}-{{ b }}
{% with %}{{ a }}{% endwith %}
{% with x = 1 %}{{ x }}{% endwith %}{{ x }}
{% with a = 1, q = a %}{{ a }}{{ q }}{% endwith %}{{ a }}
{% with x = 1, y = 2 %}{% set x = 3 %}{{ x }}{{ y }}{% endwith %}{{ x }}
{% with a = 1 %}{% with a = a + 1 %}{{ a }}{% endwith %}{{ a }}{% endwith %}
{% with x, y = [1, 2] %}{{ y }}{{ x }}{% endwith %}
{% with x = 1 y = 2 %}{% endwith %}
{% with x %}{% endwith %}
{% filter upper %}abc{{ s }}{% endfilter %}
{% filter upper|replace('A', '_') %}abc{% endfilter %}
{% filter replace(s, 'new') %}a text{% endfilter %}
{% filter upper %}{% set x = 1 %}{{ x }}{% endfilter %}{{ x }}
{% filter indent(2, true) %}a
{% filter trim %}  x  {% endfilter %}|
{% filter nope %}{% endfilter %}
{% if e %}{% filter nope %}{% endfilter %}{% endif %}
{% if e %}{{ 1|nope }}{% endif %}ok
{% if t %}{{ 1|nope }}{% endif %}ok
{% if e %}{{ 1 is nope }}{% endif %}ok
{% if e %}{% for x in xs %}{{ 1|nope }}{% endfor %}{% endif %}ok
{% if e %}{% for x in xs|nope %}{% endfor %}{% endif %}ok
{% if e %}{% set x = 1|nope %}{% endif %}ok
{% if 1|nope %}{% endif %}ok
{% filter %}{% endfilter %}
{% macro m() %}x{% endmacro %}{{ m() }}{{ m() }}
{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(1) }}{{ m('a') }}{{ m() }}
{% macro m(x) %}{{ x is defined }}{% endmacro %}{{ m() }}{{ m(none) }}{{ m(missing) }}
{% macro m(x, y=2) %}{{ x }}{{ y }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(y=4, x=5) }}
{% macro m(x, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ m(1) }}{{ m(1, 3) }}
{% macro m(x=y, y=1) %}{{ x }}{{ y }}{% endmacro %}{{ m() }}
{% macro m(x=a) %}{{ x }}{% endmacro %}{{ m() }}{% set a = 4 %}{{ m() }}
{% macro m(x=1, y) %}{% endmacro %}
{% macro m(x, x) %}{% endmacro %}
{% macro m(1) %}{% endmacro %}
{% macro m %}{% endmacro %}
{% macro m() %}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, 2) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(z=1) }}
{% macro m(x) %}{{ x }}{% endmacro %}{{ m(1, x=2) }}
{% macro m(x) %}{{ x }}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}{{ m() }}
{% macro m(x) %}{{ x }}{{ kwargs }}{% endmacro %}{{ m(1, q=2) }}{{ m() }}
{% macro m() %}{{ varargs|length }}{{ kwargs|tojson }}{% endmacro %}{{ m(1, 2, c=3) }}
{% macro m(varargs) %}{{ varargs }}{% endmacro %}{{ m(1) }}{{ m(1, 2) }}
{% macro m(kwargs=1) %}{{ kwargs }}{% endmacro %}{{ m() }}{{ m(kwargs=2) }}
{% macro m() %}{% set varargs = 1 %}{{ varargs }}{% endmacro %}{{ m(1) }}
{% macro m() %}{{ a }}{% endmacro %}{{ m() }}
{% macro m() %}{{ q }}{% endmacro %}{{ m() }}{% set q = 1 %}{{ m() }}
{% macro m() %}{{ a }}{% endmacro %}{{ m() }}{% set a = 1 %}{{ m() }}
{% macro m() %}{% set a = 1 %}{{ a }}{% endmacro %}{{ m() }}{{ a }}
{% macro m() %}{{ x }}{% endmacro %}{% for x in xs %}{{ m() }}{% endfor %}
{% for x in xs %}{% macro m() %}{{ x }}{{ loop.index }}{% endmacro %}{{ m() }}{% endfor %}
{% macro m() %}{{ loop }}{% endmacro %}{% for x in xs %}{{ m() }}{% endfor %}
{% macro fact(n) %}{% if n > 1 %}{{ n }}*{{ fact(n - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}
{% macro outer() %}{% macro inner() %}in{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% macro outer(x) %}{% macro inner() %}{{ x }}{% endmacro %}{{ inner() }}{% set x = 2 %}{{ inner() }}{% endmacro %}{{ outer(1) }}
{% if t %}{% macro m() %}x{% endmacro %}{% endif %}{{ m() }}
{{ m() }}{% macro m() %}x{% endmacro %}
{% macro m(a, b=1) %}{{ varargs }}{% endmacro %}{{ m.name }}{{ m.arguments }}{{ m.catch_varargs }}{{ m.catch_kwargs }}{{ m.caller }}{{ m.nope is defined }}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m }}{{ m.caller }}{{ m is callable }}{{ m.explicit_caller }}
{% macro m() %}x{% endmacro %}{{ m()|upper ~ m() }}{{ m() == 'x' }}{{ m() is string }}
{% macro m() %}{{ xs|join }}{% endmacro %}{{ m().split('2')|join('-') }}
{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}in{% endcall %}
{% macro m() %}<{{ caller(1, 2) }}>{% endmacro %}{% call(x, y) m() %}{{ x }}{{ y }}{% endcall %}
{% macro m() %}<{{ caller(y=1) }}>{% endmacro %}{% call(x=7, y=8) m() %}{{ x }}{{ y }}{% endcall %}
{% macro m(z) %}{{ z }}{% for i in xs %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) m('q') %}({{ i }}{{ a }}){% endcall %}
{% macro m() %}x{% endmacro %}{% call m() %}in{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}{% call m() %}{% endcall %}
{% macro m(caller=none) %}{{ caller }}{{ caller is none }}{% endmacro %}{{ m() }}
{% macro m(caller) %}{{ caller() }}{% endmacro %}
{% macro m() %}{% if caller is defined %}{{ caller() }}{% else %}no{% endif %}{% endmacro %}{% call m() %}yes{% endcall %}{{ m() }}
{% macro m() %}{{ kwargs }}{{ caller() }}{% endmacro %}{% call m(q=1) %}in{% endcall %}
{% macro m() %}{{ kwargs|length }}{% endmacro %}{% call m(q=1) %}in{% endcall %}
{% macro o() %}[{{ caller() }}]{% endmacro %}{% macro m() %}<{{ caller() }}>{% endmacro %}{% call o() %}{% call m() %}x{% endcall %}{% endcall %}
{% macro m() %}{{ caller() }}{% endmacro %}{% for x in xs %}{% call m() %}{{ x }}{{ loop.index }}{% endcall %}{% endfor %}
{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{% set q = 1 %}{{ q }}{% endcall %}{{ q }}
{% call m %}{% endcall %}
{% call 1 %}{% endcall %}
{% call missing() %}{% endcall %}
{% call range(2) %}{% endcall %}
{% generation %}abc{{ a }}{% endgeneration %}
{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}
{% for m in messages %}{% generation %}{{ m.role }}{{ loop.index }}{% endgeneration %}{% endfor %}
{% for x in xs %}{% generation %}{% break %}{% endgeneration %}{% endfor %}
{% generation %}x
{% generation 1 %}x{% endgeneration %}
{% raw %}{{ a }}{% if %}{# #}{% endraw %}
{% raw -%}  x  {%- endraw %} y
{%- raw %} x {% endraw -%} y
{% raw %}{% raw %}{% endraw %}
{% raw %}x
{% raw %}{%- endraw +%}
a{# comment #}b
a {#- comment -#} b
a {#+ comment +#} b
a{# {{ x }} {% if %} #}b
a{# b
a{##}b{#-#} c
{# #} #}
{% autoescape false %}{{ '<' }}{% set q = 1 %}{% endautoescape %}{{ q }}
{% print a %}
{% print a, s %}
{% print %}
{% extends 'x' %}
{% include 'x' %}
{% import 'x' as y %}
{% from 'x' import y %}
text only
{
{ {
{ %
}} %} #}
{{ a }}}}
{{ '}}' }}{{ "%}" }}{{ '{{' }}
{{ {'a': {'b': 1}} }}
{{ {'a': 1}['a'] }}
{{ a
{{ a %}
{% if a }}
{{ }}
{{}}
{{-a-}}
{{+a}}
{{- -a -}}
{{ a -}} x
x {{- a }}
x {{ a }}
{{ a }} {{- a }} {{ a -}} {{ a }}
{{ a +}}
{%- if a -%} x {%- endif -%} y
{%+ if a +%} x {%+ endif +%} y
{%if a%}x{%endif%}
{%-if a-%} x {%-endif-%}
é{{ s }}中😀
{{ messages }}
{{ a ~ b}}{{ a~b }}{{a}}{{b}}
{{ [x for x in xs] }}
{{ lambda: 1 }}
{{ a := 1 }}
{{ (a, b)[0] }}{{ (a)[0] is defined }}
{{ (xs|map('upper'))|list }}
{{ ('a', 'b')|join }}{{ ('a')|upper }}
{{ xs|map('float')|list }}{{ xs|select('odd')|list }}{{ xs|reject('odd')|list }}
{{ messages|groupby('role')|length }}
{{ loop }}{{ caller }}
{% set loop = 4 %}{{ loop }}{% for x in [1] %}{{ loop.index }}{% endfor %}{{ loop }}
{% macro upper() %}m{% endmacro %}{{ upper() }}{{ 'x'|upper }}
{% set range = 3 %}{{ range }}
{% set caller = 1 %}{{ caller }}
{% set x = namespace %}{{ x(a=1).a }}
{% set m = messages[0] %}{{ m.role }}{% set m = messages[1] %}{{ m.role }}
{% set loop_messages = messages[1:] %}{% for m in loop_messages %}{{ m['role'] }}{% endfor %}
{% if (messages[0]['role'] == 'user') != (0 % 2 == 0) %}{{ raise_exception('roles') }}{% endif %}ok
{% if (messages[1]['role'] == 'user') != (0 % 2 == 0) %}{{ raise_exception('roles') }}{% endif %}ok
"""

# Templates with line ends and white space that matter.
WHITE_SPACE = [
    "a\n", "a\n\n", "\n", "", "\r\n", "a\r\nb\rc\n\rd", "{{ a }}\n", "{{ a }}\n\nx\n", "  {{ a }}  \n  x",
    "{% if a %}\nx\n{% endif %}\n", "{% if a %}\r\nx\r\n{% endif %}\r\n", "{% if a %}\n\nx\n\n{% endif %}\n\ny",
    "  {% if a %}\n  x\n  {% endif %}\n  y", "a  {% if a %}\n  x\n  {% endif %}\n", "\t{% if a %} \n x{% endif %} \n",
    "  {%+ if a %}\n  x\n  {%+ endif %}\n", "  {%- if a %}\n  x\n  {%- endif %}\n  y", "a\n\n  {%- if a -%}\n\n  x\n  {%- endif -%}\n\n b",
    "{% if a +%}\nx\n{% endif +%}\ny", "{# c #}\nx", "  {# c #}\nx", "a {# c #}\nx", "  {#- c -#}\n  x", "  {#+ c +#}\n x",
    "{# a\nb #}\n\nx{# c\n #}", "x\n  {# c #}  \n  y", "  {% set x = 1 %}  {% set y = 2 %}\n{{ x }}{{ y }}",
    "{% set x = 1 %}\n  {% set y = 2 %}\n  {{ x }}\n", "{% for x in xs %}\n  {{ x }}\n{% endfor %}\n",
    "{% for x in xs -%}\n  {{ x }}\n{%- endfor %}\n", "{%- for x in xs %}\n  {{- x }}\n{% endfor -%}\n",
    "{% raw %}\n  a\n{% endraw %}\nb", "  {% raw %}  a\n  {% endraw %}\nb", "{% raw -%}\n  a\n {%- endraw -%}\n b",
    "{% raw -%}\n  {% endraw %}b", "x {%- raw %} a {%+ endraw +%}\nb", "{%\nif a\n%}x{%\nendif\n%}", "{{\na\n}}\n",
    "{{ 'a\r\nb\rc' }}", "{{ 'a\nb' }}\n{{ a +\n 1 }}", "a\u00a0{%- if a %}x{% endif -%}\u2003b", "\u00a0{% if a %}x{% endif %}",
    "\x0b{% if a %}x{% endif %}\x0c\n", "a\n \u3000{% if a %}x{% endif %}", "{{\u00a0a\u2003}}", "{{ a }}\n{% if a %}{% endif %}\n\n",
    "{% set x %}\n  a\n{% endset %}\n[{{ x }}]", "{% macro m() %}\n  x\n{% endmacro %}\n[{{ m() }}]",
    "{%- macro m() -%}\n  x\n{%- endmacro -%}\n[{{ m() }}]\n", "a{% if a %}\n\n{% else %}\n{% endif %}b\n \n",
    "{{ a }}{# c #}\n{{ b }}", " {{ a }} {% if a %} {{ b }} {% endif %} \n", "{{ '  a  '.strip() -}}   \n   b",
    "{%- if a -%}\n{%- endif -%}\n", "\n\n  {{- a -}}\n\n", "x\n{{- a }}\n", "{% filter upper %}\n a\n{% endfilter %}\nb",
    "{% call m() %}\n", "{% generation %}\n x\n{% endgeneration %}\n y", "   \n  {% if a %}\n x {% endif %}   \n  ",
    "\ufeffa", "\ufeff{% if a %}x{% endif %}", "{% if a %}x{% endif %}\n\n\n", "\x1c{%- if a %}x{% endif %}", "a\x85{%- if a %}x{% endif %}",
]


# Nesting, which every implementation bounds: what is below all bounds.
DEEP = [
    "{{ " + "(" * 60 + "a" + ")" * 60 + " }}",
    "{{ " + "[" * 60 + "]" * 60 + " }}",
    "{{ " + "not " * 80 + "a }}",
    "{{ a" + " + 1" * 90 + " }}",
    "{{ s" + "|upper|lower" * 40 + " }}",
    "{% if a %}" * 15 + "x" + "{% endif %}" * 15,
    "{% for x in [1] %}" * 15 + "{{ loop.index }}" + "{% endfor %}" * 15,
    "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}.{% endmacro %}{{ m(50) }}",
    "{% if e %}0" + "".join("{%% elif a == %d %%}%d" % (i, i) for i in range(-300, 30)) + "{% endif %}",
    "{{ 'a'" + " ~ 'b'" * 300 + " }}",
    "{{ [" + "1, " * 300 + "]|length }}",
]


def render(template):
    try:
        return _compile_jinja_template(template).render(**VARIABLES)
    except Exception:
        return None


def main():
    templates = ["{{ " + line + " }}" for line in EXPRESSIONS.replace("\\\njoined", "\\\rjoined").strip("\n").split("\n")]
    templates = [t.replace("\r", "\n") for t in templates]
    templates += STATEMENTS.strip("\n").split("\n") + WHITE_SPACE + DEEP
    cases = [[t, render(t)] for t in templates]
    text = ",\n".join(json.dumps(c, ensure_ascii=True) for c in cases)
    with open(os.path.join(DATA, "jinja.json"), "w", encoding="utf-8") as f:
        f.write('{"variables": %s,\n"cases": [\n%s\n]}\n' % (json.dumps(VARIABLES), text))
    print(len(cases), "cases,", sum(c[1] is None for c in cases), "of them errors")


if __name__ == "__main__":
    main()
