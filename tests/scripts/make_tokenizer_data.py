#!/usr/bin/env python3
"""Makes the small tokenizers of tests/data/tokenizer_bpe and tests/data/tokenizer_unigram, and for each the golden
results that Python's sentencepiece gives, so that the C code is compared with a path that it does not share.

    python3 tests/scripts/make_tokenizer_data.py        (needs: pip install sentencepiece)

The training text is made here, from lists of words and a fixed seed.
"""
import io
import json
import os
import random
import tempfile

import sentencepiece

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")

GUIDE_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)
CHATML_TEMPLATE = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

SUBJECTS = "the river|a stone|my neighbour|every sailor|the old clock|one small bird|the café|an über-long train".split("|")
VERBS = "carries|forgets|repairs|watches|paints|follows|remembers|breaks|opens|measures".split("|")
OBJECTS = "the harbour|seven letters|a wooden door|the morning|its own shadow|that song|a naïve plan|the keys".split("|")
ENDS = "before noon.|again!|in 1987.|at 15:40?|without a word.|(as ever).|for 3.50 EUR.|\nand then stops.".split("|")

TEXTS = [
    "",
    " ",
    "   ",
    "a",
    " a",
    "a ",
    "  two  spaces  ",
    "the river carries seven letters before noon.",
    "line one\nline two\n\n\tindented\r\n",
    "café naïve über",
    "日本語のテキスト",
    "emoji \U0001f600 and \U0001f468\u200d\U0001f469\u200d\U0001f467",
    "mixed日本 and \u0416\u0443\u043a",
    "nul \x00 inside",
    "\x00",
    "the symbol \u2581 itself \u2581\u2581x",
    "<|end|> <|user|>hi<|assistant|> <s></s><unk> <0x41>",
    "<|im_start|>user<|im_end|><sep>x<sep>",
    "full width \uff21\uff22\uff23 \uff11\uff12",
    "1234567890 + 0.5 = ?",
    "e\u0301 combining, \u00a0no-break, \u3000ideographic",
    "\ufeffbom \ufffd replacement \U0010ffff last",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
]

CONVERSATION = [
    {"role": "system", "content": "my neighbour repairs the old clock."},
    {"role": "user", "content": "what carries the river?\n"},
    {"role": "assistant", "content": "seven letters, <|end|> and a stone"},
    {"role": "user", "content": "again!"},
]


SYLLABLES = "ba ce di fo gu ha je ki lo mu na pe qui ro su ta ve wi xo yu za stra ment ing ou".split()


def name(rng):
    return "".join(rng.choice(SYLLABLES) for _ in range(rng.randrange(2, 5))).capitalize()


def sentences(rng, count):
    for _ in range(count):
        yield " ".join([rng.choice(SUBJECTS), rng.choice(VERBS), name(rng), "and", rng.choice(OBJECTS), rng.choice(ENDS)])


def train(**options):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=sentences(random.Random(7), 3000), model_writer=model, minloglevel=2, num_threads=1, **options)
    return model.getvalue()


def train_bpe():
    """As Llama's: byte fallback, no normalization, all spaces kept."""
    return train(
        model_type="bpe", vocab_size=600, byte_fallback=True, normalization_rule_name="identity",
        remove_extra_whitespaces=False, split_digits=True, character_coverage=1.0,
        control_symbols=["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"])


def train_unigram():
    """Unlike Llama's in everything: no byte fallback, extra spaces removed, a few normalization rules."""
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for wide, plain in zip(range(0xFF21, 0xFF3B), range(0x41, 0x5B)):
            rules.write(f"{wide:X}\t{plain:X}\n")
        rules.write("3000\t20\nA0\t20\n9\t20\nA\t20\nD\t20\n")
        rules.flush()
        return train(
            model_type="unigram", vocab_size=400, hard_vocab_limit=False, normalization_rule_tsv=rules.name,
            user_defined_symbols=["<|im_start|>", "<|im_end|>", "<sep>"])


def golden(model, rng):
    sp = sentencepiece.SentencePieceProcessor(model_proto=model)
    texts = TEXTS + list(sentences(rng, 10))
    lists = [[rng.randrange(sp.get_piece_size()) for _ in range(rng.randrange(1, 24))] for _ in range(60)]
    if sp.piece_to_id("<0x00>") != sp.unk_id():
        first = sp.piece_to_id("<0x00>")
        lists += [[first + rng.choice([0x41, 0x80, 0xBF, 0xC3, 0xA9, 0xE2, 0x96, 0x81, 0xED, 0xF0, 0x9F, 0x98, 0xFF])
                   for _ in range(rng.randrange(1, 12))] for _ in range(60)]
    return sp, {
        "encode": [{"text": t, "ids": sp.encode(t), "decoded": sp.decode(sp.encode(t))}
                   for t in texts],
        "decode": [{"ids": ids, "text": sp.decode(ids)} for ids in lists],
    }


def guide_ids(sp, messages):
    ids = [sp.bos_id()]
    for m in messages:
        ids += [sp.piece_to_id(f"<|{m['role']}|>")] + sp.encode(m["content"]) + [sp.piece_to_id("<|end|>")]
    return ids + [sp.piece_to_id("<|assistant|>")]


def chatml_ids(sp, messages):
    start, end = sp.piece_to_id("<|im_start|>"), sp.piece_to_id("<|im_end|>")
    ids = []
    for m in messages:
        ids += [start] + sp.encode(m["role"] + "\n" + m["content"]) + [end] + sp.encode("\n")
    return ids + [start] + sp.encode("assistant\n")


def llama2_ids(sp, messages):
    """Each question with its answer encoded as one string, as in the published code."""
    messages = [dict(m) for m in messages]
    system = messages.pop(0)["content"]
    messages[0]["content"] = f"<<SYS>>\n{system}\n<</SYS>>\n\n" + messages[0]["content"]
    ids = []
    for question, answer in zip(messages[::2], messages[1::2]):
        text = f"[INST] {question['content'].strip()} [/INST] {answer['content'].strip()} "
        ids += [sp.bos_id()] + sp.encode(text) + [sp.eos_id()]
    return ids + [sp.bos_id()] + sp.encode(f"[INST] {messages[-1]['content'].strip()} [/INST]")


def write(folder, name, contents):
    os.makedirs(os.path.join(DATA, folder), exist_ok=True)
    with open(os.path.join(DATA, folder, name), "wb") as f:
        f.write(contents if isinstance(contents, bytes)
                else (json.dumps(contents, ensure_ascii=True, indent=None) + "\n").encode())


def write_config(folder, name, contents):
    write(folder, name, (json.dumps(contents, indent=2) + "\n").encode())


def make_bpe():
    model = train_bpe()
    sp, expected = golden(model, random.Random(11))
    expected["conversation"] = CONVERSATION
    expected["guide"] = guide_ids(sp, CONVERSATION)
    expected["llama2"] = llama2_ids(sp, CONVERSATION)
    added = {i: sp.id_to_piece(i) for i in range(7)}
    added.update({600: "<|tool|>", 601: "<file>"})
    write("tokenizer_bpe", "tokenizer.model", model)
    write("tokenizer_bpe", "golden.json", expected)
    write_config("tokenizer_bpe", "tokenizer_config.json", {  # the layout of transformers 4
        "add_bos_token": True, "add_eos_token": False,
        "added_tokens_decoder": {str(i): {"content": c, "lstrip": False, "normalized": False, "rstrip": False,
                                          "single_word": False, "special": c != "<file>"} for i, c in added.items()},
        "bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "<|end|>"}, "pad_token": None,
        "unk_token": "<unk>", "chat_template": GUIDE_TEMPLATE, "tokenizer_class": "LlamaTokenizer"})


def make_unigram():
    model = train_unigram()
    sp, expected = golden(model, random.Random(13))
    expected["conversation"] = CONVERSATION
    expected["chatml"] = chatml_ids(sp, CONVERSATION)
    write("tokenizer_unigram", "tokenizer.model", model)
    write("tokenizer_unigram", "golden.json", expected)
    write_config("tokenizer_unigram", "tokenizer_config.json", {  # the layout of transformers 5
        "backend": "sentencepiece", "add_bos_token": False, "extra_special_tokens": ["<|im_start|>", "<|im_end|>"],
        "chat_template": [{"name": "tool_use", "template": "none"}, {"name": "default", "template": CHATML_TEMPLATE}],
        "tokenizer_class": "LlamaTokenizer"})
    write_config("tokenizer_unigram", "special_tokens_map.json", {
        "bos_token": {"content": "<s>"}, "eos_token": {"content": "<|im_end|>"}, "unk_token": "<unk>"})


if __name__ == "__main__":
    make_bpe()
    make_unigram()
