"""Reads facts.txt and talk.txt (facts.txt says what the lines mean).

    from facts import load
    for fact in load("facts.txt"): print(fact.id, fact.say)
"""
import os
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.abspath(__file__))
LISTS = ("thing", "do", "why", "vs", "ask", "test")
TEXTS = ("topic", "say", "more")


@dataclass
class Fact:
    id: str
    thing: list = field(default_factory=list)
    do: list = field(default_factory=list)
    why: list = field(default_factory=list)
    vs: list = field(default_factory=list)      # pairs (a, b)
    ask: list = field(default_factory=list)
    test: list = field(default_factory=list)
    topic: str = ""
    say: str = ""
    more: str = ""


def load(name):
    """The facts of one file, in its order. A malformed line is an error that names it."""
    facts = []
    for number, line in enumerate(open(os.path.join(HERE, name), encoding="utf-8"), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("["):
            facts.append(Fact(line.strip("[]")))
            continue
        key, _, value = line.partition(": ")
        if key in LISTS:
            values = [v.strip() for v in value.split(" | ")]
            if key == "vs":
                values = [tuple(v.split(" / ")) for v in values]
            setattr(facts[-1], key, values)
        elif key in TEXTS:
            setattr(facts[-1], key, value)
        else:
            raise ValueError(f"{name}:{number}: unknown key {key!r}")
    for fact in facts:
        fact.topic = fact.topic or (fact.thing or ["that"])[0]
        if not fact.say or not fact.test or not (fact.thing or fact.do or fact.vs or fact.ask):
            raise ValueError(f"{name}: [{fact.id}] needs an answer, a test and a way to ask")
    if len({f.id for f in facts}) != len(facts):
        raise ValueError(f"{name}: an id occurs twice")
    return facts
