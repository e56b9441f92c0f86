"""Text to train tokenizers on and to time them with: invented words of many scripts, code, numbers, emoji.

Words are made of syllables; each language has a vocabulary of its own, and draws from it by Zipf's law, so that a
tokenizer trained on the text learns syllables, words and endings as from real text. The same seed gives the same text.
"""
import itertools
import random


def chars(first, last):
    return [chr(c) for c in range(ord(first), ord(last) + 1)]


def join_all(*parts):
    return ["".join(p) for p in itertools.product(*parts)]


LATIN_ENDS = "|s|ed|ing|ly|er|tion|ment|ness|able|al|est".split("|")
# name: share of the text, words in the vocabulary (thousands), syllables, endings, what joins words, what ends sentences
LANGUAGES = {
    "latin": (30, 40, join_all("b c d f g h j k l m n p r s t v w br ch cl cr dr fl gr pl pr qu sh sl sp st str th tr".split(),
                               "a e i o u ea ou".split(), ["", "n", "r", "s", "t", "l"]), LATIN_ENDS, " ", ".!?;:"),
    "accents": (10, 20, join_all("b ç d f g ğ h j k l ł m n ñ p r ř s š t v z ž ß".split(), list("aáàâäãåeéèêëiíîïıoóòôöõøuúùûü"),
                                 ["", "n", "r", "ş"]), ["", "é", "ção", "ung", "lar", "ć"], " ", ".!?…"),
    "vietnamese": (3, 4, join_all("b c ch d đ g gh h kh l m n ng nh ph s t th tr v x".split(), list("aăâeêoôơuưạảấầắếềệọốồộớờợụủứừ"),
                                  ["", "n", "ng", "m", "t", "c"]), [""], " ", ".?"),
    "cyrillic": (10, 20, join_all(chars("б", "я")[:24], list("аеиоуыяю"), ["", "н", "р", "с", "ль"]),
                 ["", "ов", "ами", "ость", "ный", "ла"], " ", ".!?"),
    "greek": (3, 6, join_all(list("βγδθκλμνξπρστφχψ"), list("αεηιουωάέίό"), ["", "ν", "ς"]), ["", "ος", "ων"], " ", ".;"),
    "arabic": (6, 10, join_all(list("ابتثجحخدذرزسشصضطظعغفقكلمنهوي"), ["", "ا", "و", "ي", "َ", "ُ", "ِ", "ّ"]),
               ["", "ة", "ون", "ات"], " ", ".؟،"),
    "hebrew": (2, 4, join_all(chars("א", "ת"), ["", "ו", "י", "ָ"]), ["", "ים", "ות"], " ", "."),
    "devanagari": (6, 10, join_all(chars("क", "ह"), ["", "ा", "ि", "ी", "ु", "े", "ो", "्", "ं"]), ["", "ना", "ें"], " ", "।?"),
    "bengali": (2, 4, join_all(chars("ক", "ন"), ["", "া", "ি", "ে", "্"]), ["", "র"], " ", "।"),
    "tamil": (2, 4, join_all(list("கஙசஞடணதநபமயரலவழளறன"), ["", "ா", "ி", "ு", "்"]), ["", "ம்"], " ", "."),
    "thai": (2, 4, join_all(["", "เ", "แ", "โ"], chars("ก", "ฮ"), ["", "ิ", "า", "่", "้"]), [""], "", " "),
    "hangul": (6, 10, chars("가", "힣")[::7], ["", "은", "를", "에서", "다"], " ", ".?"),
    "kana": (4, 6, [c for c in chars("ぁ", "ん") + chars("ァ", "ン")], ["", "です", "ます"], "", "。、"),
    "han": (12, 20, chars("一", "龥")[::5], [""], "", "。，！？"),
    "georgian": (1, 2, join_all(chars("ა", "ჰ"), list("აეიოუ")), ["", "ის"], " ", "."),
    "ethiopic": (1, 2, chars("ሀ", "ፚ"), [""], " ", "።"),
}

EMOJI = ("😀 😂 🥲 👍 👍🏽 👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 🇩🇪 🇯🇵 ❤️ ❤️‍🔥 1️⃣ ☕ 🚀 🧑🏿‍🚀 ✅ ⚠️ 🤷‍♀️ 🫠").split()
CODE = """\
def {a}_{b}(self, {c}, *, {d}=None):\n    \"\"\"{A} the {c}.\"\"\"\n    if {c} is None or len({c}) > {n}:\n        raise ValueError(f"{a}: {{{c}}}")\n    return self.{d}[{n}:]\n
for (int {a} = 0; {a} < {b}->num_{c}; {a}++) {{\n\t{d}[{a}] += {b}->{c}[{a}] * {n}.{n}f; // {c}\n}}\n
const {a}{B} = async ({c}) => {{\n  await fetch(`https://{b}.example.org/{c}?{d}={n}`);\n  return {{ ...{c}, {d}: '{a}' }};\n}};\n
SELECT {a}.{b}, COUNT(*) FROM {c} WHERE {d} >= {n} GROUP BY 1 ORDER BY 2 DESC;\n
{{"{a}": [{n}, {n}, null], "{b}": {{"{c}": "{d}", "{A}": true}}}}\n
#include <{a}/{b}.h>\n#define {A}_{B} 0x{n:08X}\nstatic inline uint{n}_t {c}(struct {d} *{a}) {{ return {a}->{b} & ~{n}u; }}\n
| {A} | {B} |\n|-----|----:|\n| {c} | {n} |\n\n## {D}\n\n* **{a}**: `{b}()`, see [{c}](http://{d}.io/#{a})\n
        <div class="{a}-{b}" id='{c}{n}'>&nbsp;{d}</div>\r\n
""".split("\n\n")
CONTRACTED = "I'm you're it's we'll they've he'd don't won't IT'S WE'LL isn’t it’s".split()


class Vocabulary:
    def __init__(self, rng, size, syllables, endings, joiner, stops):
        self.joiner, self.stops = joiner, stops
        rng.shuffle(syllables)
        lengths = rng.choices([1, 2, 3, 4], [3, 8, 6, 2], k=size)
        words = {"".join(rng.choices(syllables, k=n)) + rng.choice(endings): None for n in lengths}
        self.words = list(words)
        self.cumulative = list(itertools.accumulate(1 / (rank + 8) for rank in range(len(self.words))))

    def draw(self, rng, count):
        return rng.choices(self.words, cum_weights=self.cumulative, k=count)

    def sentence(self, rng):
        words = self.draw(rng, rng.randrange(3, 24))
        style = rng.random()
        words[0] = words[0].capitalize() if style < 0.9 else words[0].upper()
        if style < 0.1:
            words[rng.randrange(len(words))] = rng.choice(CONTRACTED) if self.joiner else "「" + words[-1] + "」"
        if style < 0.3:
            words.insert(rng.randrange(len(words)), number(rng))
        return self.joiner.join(words) + rng.choice(self.stops)


def number(rng):
    form = rng.choice(["{}", "{}", "{:,}", "{}%", "${}", "{}.5", "-{}", "{}th", "19{:02}-0{}-1{}"])
    return form.format(*(rng.randrange(10 ** rng.randrange(1, 7)) for _ in range(3)))


class Text:
    """paragraphs() is endless. `richness` scales the vocabularies: 1 suffices for a tokenizer of 256k entries."""

    def __init__(self, seed=1, richness=1.0):
        self.rng = random.Random(seed)
        self.languages = {}
        for name, (_, size, syllables, endings, joiner, stops) in LANGUAGES.items():
            size = max(100, int(1000 * size * richness))
            self.languages[name] = Vocabulary(self.rng, size, list(syllables), endings, joiner, stops)
        self.names = list(self.languages)
        self.shares = list(itertools.accumulate(LANGUAGES[n][0] for n in self.names))

    def code(self):
        a, b, c, d = self.languages["latin"].draw(self.rng, 4)
        return self.rng.choice(CODE).format(a=a, b=b, c=c, d=d, A=a.upper(), B=b.capitalize(), D=d.title(),
                                            n=self.rng.randrange(2 ** self.rng.randrange(1, 16)))

    def paragraph(self):
        rng = self.rng
        if rng.random() < 0.15:
            return "".join(self.code() for _ in range(rng.randrange(1, 5)))
        language = self.languages[rng.choices(self.names, cum_weights=self.shares)[0]]
        sentences = [language.sentence(rng) for _ in range(rng.randrange(1, 7))]
        if rng.random() < 0.1:
            sentences.append("".join(rng.choices(EMOJI, k=rng.randrange(1, 4))))
        return language.joiner.join(sentences) + rng.choice(["\n", "\n", "\n\n", "\r\n", "\n\n\n", "  \n\t"])

    def paragraphs(self, size):
        """Paragraphs of `size` bytes of UTF-8 in all, or a little more."""
        while size > 0:
            paragraph = self.paragraph()
            size -= len(paragraph.encode())
            yield paragraph
