"""What drafters would make of the guide's own greedy answers to 200 questions: counted here, without any runtime.

    python speculation.py --questions > FILE      the questions, one JSON object with id and messages a line
    python speculation.py                         a table in Markdown: the draft model in ../draft, n-gram and suffix drafts
    options: --draft FOLDER                       another draft model

The questions are all of fresh.jsonl and 123 of heldout.jsonl, evenly spread. The prompt gives the first token of an
answer; each step after it checks k drafts at most and yields those before the first wrong one, and one token more.
"""
import argparse
import json
import os
from collections import Counter, defaultdict

import evaluate
from evaluate import HERE, MODEL

QUESTIONS, SHOWN = 200, (1, 3, 5, 7)
SUFFIX_DEPTH, SUFFIX_MIN_PROB = 24, 0.1


def questions():
    fresh, held = (evaluate.read(os.path.join(HERE, name + ".jsonl")) for name in ("fresh", "heldout"))
    count = QUESTIONS - len(fresh)
    return fresh + [held[i * len(held) // count] for i in range(count)]


class DraftModel:
    """Drafts greedily. Behind a wrong draft nothing counts, so what it says of the right text is all that is needed."""

    def __init__(self, folder):
        import train
        self.model = train.load(folder)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.said = {}

    def start(self, prompt, answer):
        text = (*prompt, *answer)
        if text not in self.said:
            self.said[text] = self.listen(text)
        self.says = self.said[text]

    def listen(self, text):
        """What it says at each place of the text."""
        import torch
        hidden = self.model(torch.tensor([text]))[0]
        return [None] + (hidden @ self.model.embed_tokens.weight.T).argmax(-1).tolist()

    def propose(self, tokens, k):
        return self.says[len(tokens):len(tokens) + k]

    def end(self, answer):
        pass


class Ngram:
    """What followed the first of the longest matches of the last low to high tokens."""

    def __init__(self, low, high):
        self.low, self.high = low, high

    def start(self, prompt, answer):
        pass

    def propose(self, tokens, k):
        for n in range(min(self.high, len(tokens) - 1), self.low - 1, -1):
            for at in range(len(tokens) - n):
                if tokens[at:at + n] == tokens[-n:]:
                    return tokens[at + n:at + n + k]
        return []

    def end(self, answer):
        pass


class Suffix:
    """Follows the most frequent continuations of a suffix, in the sequence itself and in earlier answers: of all lengths of
    the suffix, that from which most drafts are expected to be right; no more drafts than the suffix has tokens."""

    def __init__(self, keep_answers):
        self.earlier, self.keep_answers = defaultdict(Counter), keep_answers

    def start(self, prompt, answer):
        self.own, self.counted = defaultdict(Counter), 0

    @staticmethod
    def count(tree, tokens, end):
        """The token before `end`, behind each of the suffixes before it."""
        for n in range(min(SUFFIX_DEPTH, end - 1) + 1):
            tree[tuple(tokens[end - 1 - n:end - 1])][tokens[end - 1]] += 1

    def follow(self, tree, suffix, most):
        drafts, chance, score = [], 1.0, 0.0
        while len(drafts) < most and tree.get(suffix):
            token, count = max(tree[suffix].items(), key=lambda entry: entry[1])
            chance *= count / sum(tree[suffix].values())
            if chance < SUFFIX_MIN_PROB:
                break
            drafts.append(token)
            score += chance
            suffix = (*suffix, token)[-SUFFIX_DEPTH:]
        return score, drafts

    def propose(self, tokens, k):
        for self.counted in range(self.counted + 1, len(tokens) + 1):
            self.count(self.own, tokens, self.counted)
        found = [self.follow(tree, tuple(tokens[-n:]), min(k, n)) for n in range(1, min(SUFFIX_DEPTH, len(tokens)) + 1)
                 for tree in (self.own, self.earlier)]
        return max(found, key=lambda entry: entry[0])[1]

    def end(self, answer):
        for end in range(1, len(answer) + 1) if self.keep_answers else ():
            self.count(self.earlier, answer, end)


def measure(drafter, answers, k):
    """Totals over the answers. Without a draft a step is a plain one."""
    total = Counter()
    for prompt, answer in answers:
        drafter.start(prompt, answer)
        at = 1
        while at < len(answer):
            drafts = drafter.propose(prompt + answer[:at], k)[:len(answer) - at]
            right = next((i for i, (a, b) in enumerate(zip(drafts, answer[at:])) if a != b), len(drafts))
            total.update(steps=1, drafted=len(drafts), accepted=right, drafting=bool(drafts))
            at += right + 1
        total["tokens"] += len(answer) - 1
        drafter.end(answer)
    return total


def agreement(drafter, answers):
    """Right tokens of all, and of the first tokens of the answers."""
    right = of = first = 0
    for prompt, answer in answers:
        drafter.start(prompt, answer)
        same = [a == b for a, b in zip(drafter.propose(prompt, len(answer)), answer)]
        right, of, first = right + sum(same), of + len(same), first + same[0]
    print(f"{drafter.parameters:,} parameters; of {of} tokens of the guide {right} are the draft's too, {100 * right / of:.1f} %; "
          f"of {len(answers)} first tokens {first}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", action="store_true")
    parser.add_argument("--draft", default=os.path.join(MODEL, "draft"))
    args = parser.parse_args()
    items = questions()
    if args.questions:
        for item in items:
            print(json.dumps({"id": item["id"], "messages": item["messages"]}, ensure_ascii=False))
        return
    answers, _ = evaluate.generate(items, "float32")
    answers = [answers[item["id"]] for item in items]
    draft = DraftModel(args.draft)
    agreement(draft, answers)
    print("| drafts | k | tokens a step | accepted of drafted | drafts accepted in a step that has some |\n|---|---|---|---|---|")
    for name, make in (("draft model", lambda: draft), ("n-gram of 2 to 5", lambda: Ngram(2, 5)), ("n-gram of 5", lambda: Ngram(5, 5)),
                       ("suffix", lambda: Suffix(True)), ("suffix, no earlier answers", lambda: Suffix(False))):
        for k in SHOWN:
            t = measure(make(), answers, k)
            print(f"| {name} | {k} | {t['tokens'] / t['steps']:.2f} | {100 * t['accepted'] / max(t['drafted'], 1):.0f} % "
                  f"| {t['accepted'] / max(t['drafting'], 1):.2f} |", flush=True)


if __name__ == "__main__":
    main()
