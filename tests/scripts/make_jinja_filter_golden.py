"""Makes tests/data/jinja_filters.json: what jinja2, in the environment of transformers, gives for operators, methods,
filters, tests and globals. Each case is {"template", "variables", and "expected" or "error"}.

    python3 tests/scripts/make_jinja_filter_golden.py > tests/data/jinja_filters.json
"""
import json

import jinja2
import jinja2.ext
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

ENVIRONMENT = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols])


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


ENVIRONMENT.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
    x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
ENVIRONMENT.globals["raise_exception"] = raise_exception

VARIABLES = {
    "s": "The quick brown Fox",
    "empty": "",
    "spaces": "  \t a  b\u00a0c \n",
    "lines": "one\ntwo\r\n\nthree\x0bfour\u2028five\n",
    "uni": "Straße ŉ ΑΣ ΣΑΣ. ﬁn Ǆ ǆ İi ΐ 中文 é e\u0301 𝒜",
    "quotes": "it's \"x\" \\ \t\x01\x7f\u00ad\u200b\U000e0001 é",
    "html": "<a href=\"x\">T&C's</a>",
    "i": 7, "n": -13, "big": 9007199254740993, "zero": 0, "f": 2.5, "g": -0.1, "e20": 1e20, "tiny": 1.5e-7,
    "yes": True, "no": False, "none": None,
    "ints": [3, 1, 2, 3, -1],
    "words": ["banana", "Apple", "cherry", "apple", "Banana"],
    "mixed": [1, "a", None, True, 2.0, [1], {"k": "v"}],
    "d": {"b": 2, "a": 1, "C": [1, {"x": None}], "items": 5},
    "nested": {"a": {"b": [{"c": "deep"}, {"c": "deeper"}]}},
    "people": [{"name": "Bob", "age": 30, "tags": ["x"], "on": True}, {"name": "alice", "age": 25, "tags": []},
               {"name": "Carl", "age": 30, "on": False}, {"name": "Dora", "age": None, "on": None}],
    "groups": [{"k": "a", "v": 1}, {"k": "B", "v": 2}, {"k": "A", "v": 3}, {"k": "b", "v": 4}],
    "long": "A rather long line of text, with well-known hyphen-words -- and dashes--like this; "
            "plus averyveryveryverylongwordthatdoesnotfit.\n\nSecond  paragraph\twith tabs",
    "tool": {"type": "function", "function": {"name": "get_weather", "description": "It's \"sunny\"\n/ ünï ☀ 𝒜 \x1f\x7f",
             "parameters": {"type": "object", "properties": {"x": {"enum": [1, 2.0, 1e-7, None, True, []]}, "e": {}}}}},
}

REPR = """
1|2|-3|1.0|2.5|1e16|1e15|123456789012345680.0|0.0001|0.00001|1e-7|1e100|0.1|100.0|-0.0|1/3|2/3|5e-324|1.7976931348623157e308
true|false|none|True|None|'a'|"it's"|'"'|'\\\\'|[]|[1]|(1,)|()|(1, 2)|{}|{'a': 1}|{1: 2, 'b': [1, (2,)]}|[none, true, 1.0, 'x']
quotes|[quotes]|mixed|d|nested|[uni]|[lines]|[spaces]|ints|people|tool|e20|tiny|g|big|[undefinedname]|undefinedname
"""

OPERATORS = """
1 + 2|1 - 2|2 * 3|7 / 2|7 // 2|-7 // 2|7 % 3|-7 % 3|7 % -3|-7 % -3|2 ** 10|2 ** -1|2 ** 0.5|7.5 // 2|-7.5 // 2|7.5 % 2|-7.5 % 2|7.5 % -2
1 / 0|1 // 0|1 % 0|1.0 / 0|1.0 // 0|1.0 % 0|0 ** -1|0.0 // -3|true + true|true * 3|-true|+true|-f|+f|-s|+none
'a' + 'b'|'a' + 1|1 + 'a'|'a' * 3|3 * 'a'|'a' * -1|'a' * 1.5|[1] + [2]|[1] + (2,)|(1,) + (2,)|[1, 2] * 2|2 * [0]|none + 1|[] + none
'a' ~ 1 ~ none ~ true ~ 2.50 ~ [1]|undefinedname ~ 'x'|undefinedname + 'x'|'x' + undefinedname|1 - undefinedname|-undefinedname
1 == 1.0|1 == true|0 == false|'1' == 1|[1, 2] == [1.0, 2.0]|[1] == (1,)|{'a': 1} == {'a': 1.0}|none == false|none == none|undefinedname == undefinedname
undefinedname == none|1 < 2|1 < 2.5|2 < 1.5|'a' < 'b'|'Z' < 'a'|'' < 'a'|'a' < 'aa'|'é' > 'z'|[1, 2] < [1, 3]|[1] < [1, 0]|(1, 2) <= (1, 2)|1 < 'a'|none < 1|{} < {}
big == 9007199254740992.0|big > 9007199254740992.0|1 < undefinedname|true > false|[none] < [none]
1 in [1, 2]|1.0 in [1]|'a' in 'cat'|'' in 'cat'|1 in 'cat'|'a' in {'a': 1}|'b' not in {'a': 1}|1 in {true: 1}|[1] in [[1]]|1 in (1,)|1 in 5|'x' in undefinedname
[] in {}|2 in range(3)|'a' in d.keys()|1 in d.values()|('a', 1) in d.items()|none in [none]
not 0|not ''|not []|not 'a'|not 0.0|not undefinedname|1 and 2|0 or 'x'|'' or none|[] and 1|not {}|not range(0)|not d.items()|not [].copy()
{1: 'a', 1.0: 'b', true: 'c'}|{(1, 2): 3}[(1, 2)]|{[1]: 2}|{'a': 1, 'a': 2}
'%s' % 1|'%s %s' % (1, 'b')|'%d' % 3.7|'%d' % 'a'|'%5d|' % 42|'%-5d|' % 42|'%05d' % -42|'%+d' % 5|'% d' % 5|'%x' % 255|'%#x' % 255|'%X' % 255|'%o' % 8|'%#o' % 8
'%.3d' % 5|'%8.3d|' % -5|'%e' % 12345.678|'%.2e' % 0|'%f' % 1|'%.2f' % 2.675|'%8.2f|' % 3.14159|'%-8.2f|' % 3.14159|'%08.2f' % -3.14159|'%g' % 1e10|'%g' % 0.0001|'%.3g' % 1234567|'%G' % 1e-10
'%c' % 65|'%c' % 'x'|'%c' % 'xy'|'%r' % 'a'|'%a' % 'é'|'%%'|'%d%%' % 5|'%(a)s-%(b)03d' % {'a': 1, 'b': 2}|'%(x)s' % {'a': 1}|'%s' % [1, 2]|'%s' % none|'%10s|' % 'ab'|'%-10s|' % 'ab'|'%.2s' % 'abcdef'
'%*d' % (5, 42)|'%.*f' % (2, 3.14159)|'%s' % (1, 2)|'%s %s' % 1|'a' % 1|'a' % []|'%q' % 1|'%' % 1|'%i' % 3|'%u' % 3|'%05s' % 'a'|'%s' % undefinedname|'%f' % 'x'|'%(a)s' % 1|'%x' % 1.5
"""

ACCESS = """
s[0]|s[-1]|s[100]|s[1:4]|s[:3]|s[-3:]|s[::-1]|s[::2]|s[1:10:3]|s[10:1:-3]|s[5:2]|s[:]|s[-100:100]|uni[0:8]|uni[::-1]|uni[-1]|uni[3]|uni[::5]|s[::0]|s['x']|s[1.0]|s[none:none]
ints[0]|ints[-1]|ints[9]|ints[1:3]|ints[::-1]|ints[:-1]|ints[true]|(1, 2, 3)[1:]|(1, 2, 3)[::-2]|d['a']|d.a|d['zz']|d.zz|d.zz.y|d['zz']['y']|d.C[1].x|nested.a.b[1].c|nested['a'].b[-1]['c']
d.items|d['items']|d.items()|d.keys()|d.values()|d.get('a')|d.get('q')|d.get('q', 5)|d.get()|d.copy()|d.pop('a')|d.update({})|d.clear()|d.setdefault('a', 1)|d.popitem()
ints.append(1)|ints.pop()|ints.insert(0, 1)|ints.extend([1])|ints.remove(1)|ints.sort()|ints.reverse()|ints.clear()|ints.append is defined|d.update is defined
ints.index(2)|ints.index(9)|ints.index(3, 1)|ints.count(3)|ints.copy()|(1, 2, 1).count(1)|(1, 2).index(2)|ints.index()
s.__class__|s.__class__.__mro__|ints.__len__()|d.__class__ is defined|(1).__class__|none.x|none[0]|none[i:]|d[1:]|i[:2]|s['a':]|s[:f]|undefinedname[:1]|(5).x|(5)[0]|i.bit_length()|f.is_integer()|(2.0).is_integer()|true.bit_length()
undefinedname.x|undefinedname[0]|undefinedname[1:]|undefinedname()|s()|d()|s.nope|s.nope()|s.upper(1)|s.upper(x=1)|d[[1]]|d[none]|d[undefinedname] is defined|ints['0']|ints[undefinedname] is defined
d is mapping and d['C'][0]|range(5)[1]|range(5)[-1]|range(5)[9]|range(10)[2:8:2]|range(10)[::-1]|range(3)|range(1, 10, 2)|range(5, 0, -2)|range(0)|range(3)|list|range('a')|range(1, 2, 0)|range(200000)|range(2.0)|range()
range(5)|length|range(3) == range(0, 3)|range(3) == [0, 1, 2]|range(10, 0)|list|range(-3, 3)|list|d.items()|list|d.keys()|list|d.values()|list|d.items()|length|d.items()[0]|(d.items()|list)[0]
"""

METHODS = """
s.upper()|s.lower()|s.title()|s.capitalize()|s.swapcase()|s.casefold()|uni.upper()|uni.lower()|uni.title()|uni.capitalize()|uni.swapcase()|uni.casefold()|"it's o'neil 3rd".title()|'ÀÉ'.lower()|''.upper()
'ΑΣ'.lower()|'ΑΣ.'.lower()|'Σ'.lower()|'ΑΣΑ'.lower()|'ß'.upper()|'ŉ'.title()|'ǆ'.title()|'ǅ'.lower()|'İ'.lower()|'ﬃ'.upper()
s.split()|s.split(' ')|s.split(' ', 1)|s.split('o')|spaces.split()|spaces.split(none, 1)|spaces.split(' ')|''.split()|''.split(',')|'a,,b,'.split(',')|'a,b,c'.split(',', maxsplit=1)|'abc'.split('')|'abc'.split(1)|'a b'.split(sep=none)
s.rsplit()|s.rsplit(' ', 1)|s.rsplit(none, 1)|spaces.rsplit(none, 1)|'a,,b,'.rsplit(',')|'a,b,c'.rsplit(',', maxsplit=1)|'aXXbXXc'.rsplit('XX', 1)|'aaa'.rsplit('aa')|'aaa'.split('aa')|''.rsplit()|''.rsplit('x')|' a '.rsplit(none, 0)|' a b '.split(none, 0)
lines.splitlines()|lines.splitlines(true)|lines.splitlines(keepends=true)|''.splitlines()|'\\n'.splitlines()|'a\\n\\nb'.splitlines()|'a\\r\\rb'.splitlines()
spaces.strip()|spaces.lstrip()|spaces.rstrip()|'xxaxx'.strip('x')|'xyaxy'.strip('yx')|'xxaxx'.lstrip('x')|'xxaxx'.rstrip('x')|'abc'.strip('')|'éaé'.strip('é')|'abc'.strip(none)|'abc'.strip('abc')|'abc'.strip(1)|'a'.strip('x', 'y')
s.startswith('The')|s.startswith('the')|s.startswith(('a', 'T'))|s.startswith('quick', 4)|s.startswith('quick', 4, 6)|s.startswith('')|s.startswith('', 100)|s.startswith(1)|s.startswith(['T'])|s.startswith(())|s.endswith('Fox')|s.endswith(('x', 'y'))|s.endswith('brown', 0, -4)|s.endswith('')|''.startswith('')
s.replace('o', '0')|s.replace('o', '0', 1)|s.replace('', '-')|s.replace('', '-', 3)|s.replace('zz', 'y')|'aaa'.replace('aa', 'b')|''.replace('', 'x')|'é中'.replace('', '.')|s.replace('o')|s.replace('o', 1)|'abc'.replace('b', 'bb', -1)|'abab'.replace('a', '', 0)
', '.join(words)|''.join([])|'-'.join('abc')|','.join([1])|','.join(d)|','.join(1)|'x'.join(('a',))|', '.join(words|map('upper'))
s.find('o')|s.find('q', 5)|s.find('')|s.find('', 100)|s.find('', 19)|s.find('z')|uni.find('ß')|uni.find('文')|s.rfind('o')|s.rfind('')|s.rfind('o', 0, 15)|s.index('q')|s.index('z')|s.rindex('o')|s.rindex('z')|s.count('o')|s.count('')|''.count('')|'aaaa'.count('aa')|s.count('o', 13)|uni.count('')|s.find('o', -7)|s.find('o', none, none)|s.find(1)
'123'.isdigit()|'²'.isdigit()|'²'.isdecimal()|'½'.isnumeric()|'½'.isdigit()|'三'.isnumeric()|'一二'.isalpha()|''.isdigit()|'12a'.isdigit()|'abc'.isalpha()|'abc1'.isalpha()|'abc1'.isalnum()|'a b'.isalnum()|' \\t'.isspace()|''.isspace()|'ABC'.isupper()|'ABC1'.isupper()|'123'.isupper()|'abc'.islower()|'aBc'.islower()|'Ab Cd'.istitle()|'Ab cd'.istitle()|'AB'.istitle()|''.istitle()
'a1'.isidentifier()|'1a'.isidentifier()|'é_'.isidentifier()|''.isidentifier()|'a b'.isidentifier()|'abc'.isprintable()|'a\\n'.isprintable()|'abc'.isascii()|'é'.isascii()|''.isascii()|'ªº'.islower()|'Ⅷ'.isupper()|'ⓐ'.islower()
'42'.zfill(5)|'-42'.zfill(5)|'+4'.zfill(1)|''.zfill(3)|'--1'.zfill(6)|'é'.zfill(3)|'ab'.ljust(5, '.')|'ab'.rjust(5)|'ab'.center(5, '*')|'abc'.center(6, '*')|'ab'.center(7, '*')|'abcd'.center(7, '*')|'ab'.center(1)|'ab'.ljust(5, 'xy')|'ab'.ljust()|'é'.rjust(3, '中')
'a-b-c'.partition('-')|'a-b-c'.rpartition('-')|'abc'.partition('-')|'abc'.rpartition('-')|'abc'.partition('')|'TestHook'.removeprefix('Test')|'TestHook'.removeprefix('x')|'MiscTests'.removesuffix('Tests')|'a'.removesuffix('abc')|''.removeprefix('')|'x'.removesuffix('')
'a\\tb'.expandtabs()|'a\\tb'.expandtabs(4)|'\\t\\tx\\n\\ty'.expandtabs(2)|'a\\tb'.expandtabs(0)|'abcdefgh\\ti'.expandtabs(tabsize=4)|'a'.encode|d.items().x
'{} {}'.format(1, 'a')|'{1} {0}'.format(1, 'a')|'{a} {b}'.format(a=1, b=2)|'{0.a} {0[b]}'.format(d)|'{0[C][0]}'.format(d)|'{!r}'.format('a')|'{!s:>5}|'.format(1)|'{!a}'.format('é')|'{{}}'.format()|'{{{}}}'.format(1)|'{}'.format()|'{x}'.format()|'{'.format()|'}'.format()|'{0} {}'.format(1)|'{:{}}|'.format('a', 5)|'{:{w}.{p}f}'.format(3.14159, w=8, p=2)|'{0.__class__}'.format(1)|'{!x}'.format(1)
'{:5}|'.format('ab')|'{:>5}|'.format('ab')|'{:^5}|'.format('ab')|'{:*<5}|'.format('ab')|'{:é^6}|'.format('ab')|'{:.2}'.format('abc')|'{:5}|'.format(42)|'{:<5}|'.format(42)|'{:05}'.format(-42)|'{:+}'.format(42)|'{: }'.format(42)|'{:=+6}'.format(42)|'{:x}'.format(255)|'{:#x}'.format(255)|'{:#X}'.format(255)|'{:b}'.format(10)|'{:#b}'.format(-10)|'{:o}'.format(8)|'{:c}'.format(65)|'{:,}'.format(1234567)|'{:_}'.format(1234567)|'{:_x}'.format(65536255)|'{:010,}'.format(1234)|'{:08,}'.format(1234)
'{:.2f}'.format(3.14159)|'{:8.3f}|'.format(3.14159)|'{:08.2f}'.format(-3.14159)|'{:e}'.format(12345.678)|'{:.0e}'.format(12345.678)|'{:g}'.format(1e10)|'{:g}'.format(123456.0)|'{:%}'.format(0.256)|'{:.1%}'.format(0.256)|'{:,.2f}'.format(1234567.891)|'{:.3}'.format(1.0)|'{:.3}'.format(123.0)|'{:.3}'.format(123456.0)|'{:.2}'.format(0.00001)|'{:10}|'.format(1.5)|'{:<10}|'.format(1.5)|'{:n}'.format(5)|'{:#.0f}'.format(3.0)|'{:d}'.format(3.5)|'{:d}'.format('a')|'{:s}'.format(1)|'{:.2}'.format(5)|'{:5}'.format([1])|'{:5}'.format(none)|'{}'.format(none)|'{:5}|'.format(true)|'{}'.format(true)|'{:.2f}'.format(1)|'{:E}'.format(1.5)|'{:F}'.format(1.5)|'{:+.1f}'.format(2.25)|'{:z}'.format(1)|'{:05}'.format('ab')
"""

FILTERS = """
i|abs|n|abs|g|abs|s|abs|undefinedname|abs|d|attr('a')|s|attr('upper')|d|attr('items')|attr('x')|s|attr('nope')|undefinedname|attr('x')
ints|batch(2)|list|ints|batch(2, 'x')|list|ints|batch(10)|list|[]|batch(2)|list|ints|batch(3, none)|list|ints|slice(2)|list|ints|slice(3, 'x')|list|[]|slice(2)|list|ints|slice(7)|list|ints|slice(0)|list
s|capitalize|uni|capitalize|i|capitalize|none|capitalize|'ab'|center(6)|'ab'|center(7)|length|i|center(5)|undefinedname|center(3)
undefinedname|default|undefinedname|default('x')|undefinedname|d('x')|none|default('x')|none|default('x', true)|''|default('x', true)|''|default('x')|0|default(5, boolean=true)|d.zz|default({})|undefinedname|default(default_value=3)|undefinedname|default(none)
d|dictsort|d|dictsort(true)|d|dictsort(reverse=true)|{'a': 2, 'b': 1}|dictsort(by='value')|{'a': 2, 'b': 1}|dictsort(false, 'value', true)|d|dictsort(by='x')|ints|dictsort|{1: 2, 'a': 3}|dictsort|{'b': 'X', 'a': 'y'}|dictsort(by='value')
html|escape|html|e|html|e|e|html|forceescape|html|e|forceescape|html|safe|html|safe|e|i|e|none|e|(html|e) + '<'|'<' + (html|safe)|html|e ~ '<'|html|e is escaped|html is escaped|[html|e]|(html|safe) is string|('<b>'|safe) * 2|('%s'|safe)|string
100|filesizeformat|1|filesizeformat|1000|filesizeformat|1500|filesizeformat|1000000|filesizeformat|1048576|filesizeformat(true)|1023|filesizeformat(binary=true)|1e30|filesizeformat|'2000'|filesizeformat|0.5|filesizeformat|none|filesizeformat
ints|first|[]|first|s|first|d|first|[]|first is defined|5|first|uni|first|ints|last|[]|last|s|last|d|last|ints|map('abs')|last|5|last|range(5)|last|undefinedname|first|undefinedname|last|ints|select('gt', 1)|first
'3.5'|float|'x'|float|'x'|float(1)|none|float|' 1e5 '|float|'inf'|float|'-Infinity'|float|'nan'|float|'1_0.5'|float|'1__0'|float|'.5'|float|'5.'|float|'.'|float|'1e'|float|'0x10'|float|true|float|[]|float|''|float|i|float|undefinedname|float
'42'|int|'42.9'|int|' 42 '|int|'-7'|int|'+7'|int|'x'|int|'x'|int(5)|'x'|int(default=6)|none|int|3.99|int|-3.99|int|true|int|'0x1A'|int(0, 16)|'0x1A'|int(base=0)|'1A'|int(0, 16)|'0b11'|int(0, 2)|'1_000'|int|'_1'|int|''|int|'1e3'|int|[]|int|[]|int(none)|'z'|int(0, 36)|'inf'|int|'nan'|int|undefinedname|int|'012'|int|'012'|int(base=0)|'42'|int(9, 99)
'%s-%s'|format(1, 2)|'%(a)s'|format(a=1)|'%s'|format(1, a=2)|'%d%%'|format(5)|'abc'|format|'%s'|format|'%s'|format([1])|'%s'|format({'a': 1})
groups|groupby('k')|groups|groupby('k', case_sensitive=true)|groups|groupby('zz', default='q')|groups|groupby('v')|first|(groups|groupby('k')|first).grouper|(groups|groupby('k')|first).list|(groups|groupby('k'))[0][1]|people|groupby('name')|length|groups|groupby
'a\\nb\\n\\nc'|indent|'a\\nb\\n\\nc'|indent(2)|'a\\nb\\n\\nc'|indent(2, true)|'a\\nb\\n\\nc'|indent(2, true, true)|'a\\nb\\n\\nc'|indent(2, blank=true)|'a\\nb'|indent('> ')|'a\\nb'|indent(width='\\t', first=true)|''|indent|''|indent(first=true)|'a\\n'|indent|'a\\r\\nb'|indent(1)|none|indent|undefinedname|indent|'a\\n\\n'|indent(2, false, true)|'a'|indent('x', 1)
d|items|list|undefinedname|items|list|ints|items|{}|items|list|words|join|words|join(', ')|ints|join('-')|mixed|join('|')|people|join(', ', attribute='name')|people|join(',', 'age')|'abc'|join('.')|d|join(',')|undefinedname|join(',')|5|join|[]|join('x')|words|join(1)|[undefinedname, 1]|join(',')
ints|length|s|length|uni|length|d|length|5|length|none|length|undefinedname|length|range(4)|count|words|map('upper')|length|d.items()|count|[]|length|''|length
s|list|d|list|range(3)|list|5|list|none|list|undefinedname|list|uni|list|(1, 2)|list|words|map('first')|list|s|lower|i|lower|none|lower|uni|lower|s|upper|uni|upper|none|upper|[1]|upper
people|map(attribute='name')|list|people|map(attribute='zz')|list|people|map(attribute='zz', default='-')|list|people|map(attribute='tags.0')|list|words|map('upper')|list|words|map('replace', 'a', 'o')|list|ints|map('abs')|join(',')|people|map(attribute='tags', default=[])|map('length')|list|words|map|words|map('nope')|list|words|map(upper)|list|words|map(attribute=0)|list|undefinedname|map('upper')|list|none|map('upper')|list|[]|map('nope')|list|5|map('abs')|list|words|map(attribute='x', y=1)|list|[[1, 2], [3, 4]]|map(attribute='1')|list|[1, 2]|map('string')|list|words|map('default', 'x')|list
ints|max|ints|min|words|max|words|min|words|max(true)|words|min(case_sensitive=true)|[]|max|[]|min is defined|people[:3]|max(attribute='age')|people[:3]|min(attribute='age')|mixed|max|s|max|undefinedname|max|[1, 1.0, true]|max|d|min
people|selectattr('on')|list|people|rejectattr('on')|map(attribute='name')|list|people|selectattr('age', 'equalto', 30)|map(attribute='name')|join(',')|people|selectattr('age', 'none')|list|people|rejectattr('age', 'none')|map(attribute='age')|list|people|selectattr('name', 'in', ['Bob', 'Carl'])|map(attribute='age')|list|people|selectattr('tags', 'defined')|map(attribute='name')|list|people|selectattr('zz')|list|people|selectattr('a.b')|list|people|selectattr|list|people|selectattr('age', 'nope')|list|people|selectattr('on', 'true')|map(attribute='name')|list|people|selectattr('name', 'lower')|list|length
ints|select('odd')|list|ints|reject('odd')|list|ints|select|list|ints|select('gt', 1)|list|ints|select('>', 1)|list|ints|reject('in', [3])|list|mixed|select('string')|list|mixed|select('number')|list|words|select('equalto', 'Apple')|list|5|select|list|0|select|list|undefinedname|select|list|ints|select('divisibleby', 3)|list|'abc'|select('ne', 'b')|list|ints|select('nope')|list|ints|select(5)|list
(ints|select('gt', 100)) and 'true'|not (ints|select('gt', 100))|(people|selectattr('zz')) is iterable|(people|selectattr('zz')) is sequence|(ints|map('abs'))[0] is defined|ints|reverse|list|s|reverse|uni|reverse|d|reverse|list|(1, 2)|reverse|list|ints|map('abs')|reverse|5|reverse|undefinedname|reverse|list|range(3)|reverse|list|[]|reverse and 1
s|replace('o', '0')|s|replace('o', '0', 1)|i|replace('7', '8')|s|replace('T', 1)|none|replace('None', 'x')|undefinedname|replace('a', 'b')|s|replace(old='q', new='Q')|s|replace('', '.', 2)|s|replace('a')
2.5|round|3.5|round|-2.5|round|2.567|round(2)|2.675|round(2)|42|round|42|round(1)|1234|round(-2)|1250|round(-2)|1350|round(-2)|-1250|round(-2)|1234.5|round(-2)|2.1|round(method='ceil')|2.9|round(0, 'floor')|2.123|round(2, 'ceil')|-2.129|round(2, 'floor')|42|round(0, 'floor')|true|round|'a'|round|2.5|round(0, 'x')|1e300|round(2)|undefinedname|round|0.5|round|1.5|round|1e22|round
ints|sort|ints|sort(reverse=true)|ints|sort(true)|words|sort|words|sort(case_sensitive=true)|words|sort(reverse=true)|people[:3]|sort(attribute='age')|map(attribute='name')|list|people[:3]|sort(attribute='age,name')|map(attribute='name')|list|people[:3]|sort(attribute='age', reverse=true)|map(attribute='name')|list|mixed|sort|d|sort|s|sort|join|[none, none]|sort|people|sort(attribute='age')|undefinedname|sort|5|sort|[[2, 1], [1, 2]]|sort|[[2, 1], [1, 2]]|sort(attribute=1)|[[2, 1], [1, 2]]|sort(attribute='1')
i|string|none|string|mixed|string|undefinedname|string|html|striptags|'a <b>x</b>  y\\n z <!-- c <d> --> &amp; &lt;'|striptags|'a < b'|striptags|'<!-- x'|striptags|'&#65;&#x42;'|striptags|5|striptags
ints|sum|people[:3]|sum(attribute='age')|[1.5, 2]|sum|[]|sum|ints|sum(start=10)|[[1], [2]]|sum(start=[])|words|sum|words|sum(start='')|undefinedname|sum|[true, true]|sum|[0.1, 0.2]|sum
s|title|"it's o'neil foo-bar (baz) {q} [w] <z"|title|uni|title|'HELLO wORLD'|title|i|title|''|title|'a\\tb\\nc'|title|'ﬁ ßa'|title
tool|tojson|tool|tojson(indent=2)|tool|tojson(indent=0)|tool|tojson(ensure_ascii=true)|tool|tojson(true)|tool|tojson(sort_keys=true)|tool|tojson(separators=(',', ':'))|tool|tojson(indent=1, separators=(', ', ' : '))|tool|tojson(indent='\\t')|ints|tojson|mixed|tojson|mixed|tojson(indent=4)|none|tojson|true|tojson|s|tojson|quotes|tojson|quotes|tojson(ensure_ascii=true)|1.0|tojson|1e20|tojson|1e-7|tojson|('inf'|float)|tojson|('nan'|float)|tojson|undefinedname|tojson|range(2)|tojson|{1: 2, none: 3, true: 4, 1.5: 5}|tojson|{(1, 2): 3}|tojson|{'b': 1, 'a': {'d': 1, 'c': 2}}|tojson(sort_keys=true)|[]|tojson(indent=2)|{}|tojson(indent=2)|[[], {}]|tojson(indent=2)|d.items()|tojson|(1, 2)|tojson|{1: 1, 'a': 2}|tojson(sort_keys=true)|html|tojson|tool|tojson(indent=-1)|tool|tojson(separators=(',',))
spaces|trim|'xxaxx'|trim('x')|i|trim|none|trim|undefinedname|trim|'xya'|trim(chars='yx')|s|truncate(9)|s|truncate(9, true)|s|truncate(9, false, '..')|s|truncate(15)|s|truncate(11, leeway=0)|s|truncate(11, true, '', 0)|s|truncate(2)|s|truncate|uni|truncate(10, leeway=0)|undefinedname|truncate|'abcdefghijklmnop'|truncate(8, leeway=0)|s|truncate(length=5, end='', leeway=0)|s|truncate(5, leeway=-1)
ints|unique|list|words|unique|list|words|unique(true)|list|people|unique(attribute='age')|map(attribute='name')|list|[1, 1.0, true, '1']|unique|list|[[1], [1]]|unique|list|undefinedname|unique|list|'hello'|unique|join
s|urlencode|'a/b?c=d&e é'|urlencode|{'a b': 'c/d', 'e': 1}|urlencode|[('x', 'y z')]|urlencode|i|urlencode|none|urlencode|[1]|urlencode|'~_-.'|urlencode|undefinedname|urlencode|''|urlencode|true|urlencode
s|wordcount|uni|wordcount|''|wordcount|"it's a_b"|wordcount|none|wordcount|i|wordcount|undefinedname|wordcount|long|wordwrap(20)|long|wordwrap(10)|long|wordwrap(10, false)|long|wordwrap(15, wrapstring='|')|long|wordwrap(15, break_on_hyphens=false)|long|wordwrap(1)|long|wordwrap|long|wordwrap(5, true, '~', false)|'a-b-c-d-e'|wordwrap(3)|'one-two--three four'|wordwrap(6)|''|wordwrap|s|wordwrap(0)|none|wordwrap|'  lead  ing'|wordwrap(4)|'abc-def-ghi'|wordwrap(5)|'--option foo-'|wordwrap(4)|uni|wordwrap(6)
{'a': 1, 'b': none, 'c': '<'}|xmlattr|{'a': 1}|xmlattr(false)|{}|xmlattr|{'a b': 1}|xmlattr|ints|xmlattr|{'a': undefinedname}|xmlattr
d|pprint|tool|pprint|ints|pprint|s|pprint|long|pprint|[long, long]|pprint|{'key': long, 'b': [1]}|pprint|none|pprint|uni|pprint|people|pprint|(long,)|pprint|range(3)|list|pprint|[range(40)|list, 'x']|pprint|undefinedname|pprint
s|nope|ints|length(1)|s|trim(x=1)|s|trim('a', 'b')|s|center(width=20, width2=1)|s|replace('a', 'b', 'c')
"""

TESTS = """
7 is odd|8 is odd|-3 is odd|2.0 is even|'a' is odd|undefinedname is odd|8 is even|9 is divisibleby 3|9 is divisibleby(2)|9 is divisibleby(num=3)|9 is divisibleby 0
s is defined|undefinedname is defined|undefinedname is undefined|none is defined|d.a is defined|d.q is undefined|none is none|0 is none|undefinedname is none
true is boolean|1 is boolean|false is false|0 is false|true is true|1 is true|1 is integer|true is integer|1.0 is integer|1.0 is float|1 is float|1 is number|true is number|'1' is number|2.5 is number|none is number
s is string|1 is string|d is mapping|ints is mapping|ints is sequence|s is sequence|d is sequence|1 is sequence|none is sequence|undefinedname is sequence|(1, 2) is sequence|range(3) is sequence|d.items() is sequence|ints|map('abs') is sequence
ints is iterable|s is iterable|d is iterable|1 is iterable|none is iterable|undefinedname is iterable|range(3) is iterable|d.keys() is iterable|range is iterable
range is callable|s is callable|s.upper is callable|undefinedname is callable|dict is callable|'abc' is lower|'Abc' is lower|'ABC' is upper|1 is upper|'' is lower|none is lower|'upper' is filter|'nope' is filter|'odd' is test|'==' is test|'nope' is test|1 is test
1 is eq 1|1 is equalto 1.0|1 is == 2|1 is ne 2|1 is != 1|1 is lt 2|1 is lessthan 2|1 is < 1|1 is le 1|1 is <= 0|2 is gt 1|2 is greaterthan 3|2 is > 1|2 is ge 2|2 is >= 3|1 is lt 'a'|1 is in [1]|4 is in [1]|'a' is in 'abc'|1 is in 5
none is sameas none|true is sameas true|1 is sameas true|ints is sameas ints|[1] is sameas [1]|d.C is sameas d.C|s is sameas s|'x' is escaped|1 is not odd|1 is not none|s is nope|1 is odd(2)|1 is eq|s is not undefined
"""

STATEMENTS = [
    "{% set c = cycler('a', 'b', 'c') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.next() }}{{ c.next() }}{{ c.reset() }}{{ c.next() }}",
    "{{ cycler() }}", "{{ cycler('a').nope }}",
    "{% set j = joiner() %}{{ j() }}a{{ j() }}b{{ j() }}", "{% set j = joiner('|') %}{{ j() }}a{{ j() }}b",
    "{% set ns = namespace(a=1, b=[2]) %}{% set ns.a = ns.a + 1 %}{{ ns.a }}{{ ns.b }}{{ ns.c }}|{{ ns.c is defined }}{{ ns }}",
    "{% set ns = namespace({'x': 1}) %}{{ ns.x }}{{ ns['x'] }}", "{% set ns = namespace() %}{{ ns.x.y }}",
    "{{ dict(a=1, b='x') }}{{ dict() }}{{ dict({'a': 1}, b=2) }}{{ dict([('a', 1)]) }}", "{{ dict(1) }}", "{{ dict({}, {}) }}",
    "{{ raise_exception('no ' ~ 'good') }}", "{{ raise_exception() }}",
    "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d|dictsort %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in d|items %}{{ k }},{% endfor %}", "{% for k in d %}{{ k }}{% endfor %}",
    "{% for c in uni %}{{ c }}.{% endfor %}", "{% for x in none %}{% endfor %}", "{% for x in 5 %}{% endfor %}",
    "{% for x in undefinedname %}x{% else %}none{% endfor %}",
    "{% for g, items in groups|groupby('k') %}{{ g }}:{{ items|map(attribute='v')|join(',') }};{% endfor %}",
    "{% for g in groups|groupby('k') %}{{ g.grouper }}{{ g.list|length }}{% endfor %}",
    "{% for row in ints|batch(2) %}{{ row }}{% endfor %}", "{% for x in range(3) %}{{ x }}{% endfor %}",
    "{% set m = ints|map('abs') %}{{ m|list }}{{ m|list }}", "{% set m = ints|map('abs') %}{{ m|first }}{{ m|list }}",
    "{% set u = undefinedname %}{{ u is defined }}{{ u }}", "{{ 9223372036854775807 }}", "{{ s|upper|lower|title|length }}",
    "{% if people|selectattr('zz', 'equalto', 1) %}yes{% endif %}", "{% if people|selectattr('zz')|list %}yes{% else %}no{% endif %}",
    "{% set x = s.split(' ') %}{{ x[-1] }}{{ x|length }}{{ x[1:]|join(' ') }}",
    "{{ s.split('k')[-1].lstrip('\\n') if 'k' in s else s }}",
    "{% for p in people if p.age is number and p.age > 26 %}{{ p.name }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{{ {'role': 'user', 'content': s}|tojson }}", "{{ [d, nested]|tojson(indent=4) }}",
    "{%- set tool_call = {'name': 'f', 'arguments': {'x': 1.50, 'y': 'é\\n'}} %}{{ tool_call.arguments|tojson }}{{ tool_call.arguments }}",
]


def expressions(block):
    for line in block.strip().splitlines():
        yield from split_line(line)


FILTER_NAMES = set(ENVIRONMENT.filters) | {"nope"}


def split_line(line):
    """Cases are separated by '|'; a filter's bar is one that a filter's name follows, outside quotes and brackets."""
    parts, start, depth, quote, at = [], 0, 0, None, 0
    while at < len(line):
        c = line[at]
        if quote:
            if c == "\\":
                at += 1
            elif c == quote:
                quote = None
        elif c in "'\"":
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "|" and depth == 0 and not is_filter(line[at + 1:]):
            parts.append(line[start:at])
            start = at + 1
        at += 1
    return parts + [line[start:]]


def is_filter(rest):
    name = ""
    for c in rest:
        if not (c.isalpha() or c == "_"):
            break
        name += c
    # 'd' and 'e' are variables or tests at the beginning of a case, unless arguments or another filter follow.
    following = rest[len(name):]
    if name == "d":
        return following.startswith("(")
    return name in FILTER_NAMES and not following.startswith(".")


def render(template):
    used = jinja2.meta.find_undeclared_variables(ENVIRONMENT.parse(template))
    case = {"template": template, "variables": {name: VARIABLES[name] for name in sorted(used) if name in VARIABLES}}
    try:
        case["expected"] = ENVIRONMENT.from_string(template).render(**case["variables"])
    except Exception as error:
        case["error"] = f"{type(error).__name__}: {error}"
    return case


def templates():
    for block in (REPR, OPERATORS, ACCESS, METHODS, FILTERS, TESTS):
        for expression in expressions(block):
            yield "{{ " + expression + " }}"
    yield from STATEMENTS


def main():
    seen, cases = set(), []
    for template in templates():
        if template in seen:
            continue
        seen.add(template)
        try:
            case = render(template)
        except jinja2.exceptions.TemplateSyntaxError:
            continue  # such as an unknown filter
        if " at 0x" not in case.get("expected", ""):  # an object's address
            cases.append(case)
    print("[")
    print(",\n".join(json.dumps(case, ensure_ascii=True) for case in cases))
    print("]")


main()
