#!/usr/bin/env python3
"""Trains tokenizers whose tokenizer.json is built as the published ones of well-known families are: their normalizer,
pre-tokenizer with its regular expressions, BPE options, post-processor, decoder and kinds of added tokens. The
vocabularies are learnt from text that tokenizer_text.py makes.

    python3 tests/scripts/train_tokenizers.py                           those of tests/data/tokenizers, and their cases
    python3 tests/scripts/train_tokenizers.py --size 128k --out DIR [NAME...]     one folder each, NAME-128k

(needs: pip install tokenizers==0.23.*). The small ones are what the tests read; cases.json beside each holds what the
Python library gives for strings of tokenizer_strings.py. The large ones are for compare_tokenizers.py.
"""
import argparse
import collections
import json
import pathlib
import random
import struct

import tokenizers
from tokenizers import Regex, decoders, normalizers, pre_tokenizers, trainers

import tokenizer_strings
import tokenizer_text

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "tokenizers"
CASES = 180  # strings in cases.json

# --- regular expressions, as the families publish them

SPACES = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*" + SPACES)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED = r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+%s|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*%s|"
CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
TEKKEN = CASED % ("", "") + r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES
O200K = CASED % (CONTRACTION, CONTRACTION) + r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + SPACES
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*" + SPACES)
DEEPSEEK_EAST_ASIA = "[一-龥぀-ゟ゠-ヿ]+"


# --- components, as tokenizer.json writes them

def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def byte_level(use_regex=False, trim_offsets=True):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": trim_offsets, "use_regex": use_regex}


def metaspace(prepend_scheme, split):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": prepend_scheme, "split": split}


def digits(individual):
    return {"type": "Digits", "individual_digits": individual}


def bos_first(token):
    """The post-processor that puts `token` first. Its id is filled in later."""
    a, b = ({"Sequence": {"id": name, "type_id": i}} for i, name in enumerate("AB"))
    bos = [{"SpecialToken": {"id": token, "type_id": i}} for i in range(2)]
    return {"type": "TemplateProcessing", "single": [bos[0], a], "pair": [bos[0], a, bos[1], b],
            "special_tokens": {token: {"id": token, "ids": [], "tokens": [token]}}}


def added(content, special=False, **marks):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": not special, "special": special, **marks}


def specials(*contents, **marks):
    return [added(c, True, **marks) for c in contents]


FROM_SPACE = replace(" ", "▁")
TO_SPACE = replace("▁", " ")
BYTES = [f"<0x{b:02X}>" for b in range(256)]
SENTENCEPIECE_DECODER = sequence("decoders", TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"})
STRIP_ONE = {"type": "Strip", "content": " ", "start": 1, "stop": 0}

# What every family may leave out
DEFAULTS = {
    "normalizer": None, "pre_tokenizer": None, "post_processor": byte_level(), "decoder": byte_level(use_regex=True),
    "options": {},           # of the BPE model
    "first": [],             # added tokens whose ids come first; they are in the model's vocabulary
    "last": [],              # added tokens whose ids follow the model's vocabulary
    "bytes": False,          # <0x00> .. <0xFF> follow `first`
    "unigram": False,        # the model is Unigram, not BPE
    "pairs": True,           # merges as pairs; otherwise as strings, as older files have them
    "bos": None, "eos": None, "add_bos": False, "padding": None,
}

FAMILIES = {
    "llama3": {
        "pre_tokenizer": sequence("pretokenizers", split(LLAMA3), byte_level()),
        "post_processor": sequence("processors", byte_level(trim_offsets=False), bos_first("<|begin_of_text|>")),
        "options": {"ignore_merges": True},
        "last": specials("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|start_header_id|>",
                         "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>", "<|python_tag|>"),
        "pairs": False, "bos": "<|begin_of_text|>", "eos": "<|eot_id|>", "add_bos": True},
    "qwen2": {
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": sequence("pretokenizers", split(QWEN2), byte_level()),
        "last": specials("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>")
        + [added(t, normalized=False) for t in ("<tool_call>", "</tool_call>", "<think>", "</think>")]
        + [added("<Å\u0301>"), added("한글"), added("naïve", single_word=True)],
        "eos": "<|im_end|>"},
    "gpt2": {  # as it was published, with the runs of white space that CodeGen and Phi add
        "pre_tokenizer": byte_level(use_regex=True),
        "last": specials("<|endoftext|>", normalized=True) + [added(" " * n) for n in (16, 8, 7, 4, 3, 2)]
        + [added("\t" * n) for n in (3, 2)],
        "pairs": False, "bos": "<|endoftext|>", "eos": "<|endoftext|>"},
    "deepseek": {
        "normalizer": sequence("normalizers"),
        "pre_tokenizer": sequence("pretokenizers", split(r"\p{N}{1,3}"), split(DEEPSEEK_EAST_ASIA), split(DEEPSEEK),
                                  byte_level()),
        "post_processor": bos_first("<｜begin▁of▁sentence｜>"),
        "first": specials("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"),
        "last": specials("<｜User｜>", "<｜Assistant｜>", normalized=False)
        + [added("<think>"), added("</think>"), added("<｜tool▁sep｜>", normalized=False), added("<|EOT|>")],
        "bos": "<｜begin▁of▁sentence｜>", "eos": "<｜end▁of▁sentence｜>", "add_bos": True},
    "tekken": {
        "pre_tokenizer": sequence("pretokenizers", split(TEKKEN), byte_level()),
        "post_processor": bos_first("<s>"),
        "options": {"ignore_merges": True},
        "first": specials("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]",
                          "[TOOL_CALLS]", "<SPECIAL_20>"),
        "bos": "<s>", "eos": "</s>", "add_bos": True},
    "o200k": {  # the matches of the expression are kept, and all else removed: it is how tiktoken's were converted
        "pre_tokenizer": sequence("pretokenizers", split(O200K, "Removed", True), byte_level()),
        "last": specials("<|startoftext|>", "<|endoftext|>", "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>",
                         "<|end|>", "<|message|>", "<|call|>") + specials("<|mask|>", lstrip=True),
        "bos": "<|startoftext|>", "eos": "<|return|>"},
    "starcoder": {
        "pre_tokenizer": sequence("pretokenizers", digits(True), byte_level(use_regex=True)),
        "post_processor": None,
        "first": specials("<|endoftext|>", "<fim_prefix>", "<fim_middle>", "<fim_suffix>", "<filename>", "<gh_stars>",
                          "<jupyter_code>"),
        "last": [added("TODO", single_word=True), added("<nl>", lstrip=True, rstrip=True)],
        "pairs": False, "bos": "<|endoftext|>", "eos": "<|endoftext|>"},
    "falcon": {
        "pre_tokenizer": sequence("pretokenizers", {"type": "Punctuation", "behavior": "Contiguous"},
                                  byte_level(use_regex=True), digits(False), split("[0-9][0-9][0-9]")),
        "first": specials(">>TITLE<<", ">>ABSTRACT<<", ">>QUESTION<<", ">>ANSWER<<"),
        "last": specials("<|endoftext|>") + [added(">>DOMAIN<<", rstrip=True)],
        "pairs": False, "eos": "<|endoftext|>"},
    "llama2": {  # with the tokens that Phi-3 adds to it
        "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": "▁"}, FROM_SPACE),
        "post_processor": bos_first("<s>"),
        "decoder": sequence("decoders", *SENTENCEPIECE_DECODER["decoders"], STRIP_ONE),
        "options": {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
        "first": specials("<unk>", "<s>", "</s>"), "bytes": True,
        "last": specials("<|user|>", "<|assistant|>", "<|end|>", rstrip=True) + [added("</line>", rstrip=True),
                                                                                added("new word")],
        "pairs": False, "bos": "<s>", "eos": "</s>", "add_bos": True},
    "gemma": {
        "normalizer": FROM_SPACE,
        "pre_tokenizer": split(" ", "MergedWithPrevious", kind="String"),
        "post_processor": bos_first("<bos>"),
        "decoder": SENTENCEPIECE_DECODER,
        "options": {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
        "first": specials("<pad>", "<eos>", "<bos>", "<unk>") + [added("<mask>", normalized=False)]
        + specials("<start_of_turn>", "<end_of_turn>")
        + [added("\n" * n, normalized=False) for n in (1, 2, 3, 4)] + [added("▁" * n, normalized=False) for n in (2, 3, 4, 8)]
        + [added(t, normalized=False) for t in ("<table>", "</table>", "<h1>")], "bytes": True,
        "bos": "<bos>", "eos": "<eos>", "add_bos": True},
    "mistral": {
        "pre_tokenizer": metaspace("first", False),
        "post_processor": bos_first("<s>"),
        "decoder": sequence("decoders", *SENTENCEPIECE_DECODER["decoders"], STRIP_ONE),
        "options": {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True},
        "first": specials("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[TOOL_CALLS]", "[control_8]"), "bytes": True,
        "bos": "<s>", "eos": "</s>", "add_bos": True},
    "metaspace": {  # no byte pieces: what the vocabulary lacks becomes <unk>
        "normalizer": sequence("normalizers", {"type": "NFKC"}, replace(" {2,}", " ", kind="Regex")),
        "pre_tokenizer": metaspace("always", True),
        "post_processor": bos_first("<s>"),
        "decoder": metaspace("always", True),
        "options": {"unk_token": "<unk>", "fuse_unk": True},
        "first": specials("<unk>", "<s>", "</s>"), "last": specials("<sep>") + [added("<mask>", lstrip=True)],
        "bos": "<s>", "eos": "</s>", "add_bos": True},
    "helium": {
        "unigram": True,
        "normalizer": sequence("normalizers", {"type": "Prepend", "prepend": " "}, FROM_SPACE),
        "pre_tokenizer": sequence("pretokenizers", split("\n", "Contiguous", kind="String")),
        "post_processor": bos_first("<s>"),
        "decoder": sequence("decoders", *SENTENCEPIECE_DECODER["decoders"], STRIP_ONE),
        "first": specials("<unk>", "<s>", "</s>", "<pad>", "<|user|>") + [added("\n", normalized=False),
                                                                         added("<code>", normalized=False)],
        "bytes": True, "bos": "<s>", "eos": "</s>", "add_bos": True,
        "padding": {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 3,
                    "pad_type_id": 0, "pad_token": "<pad>"}},
    "unigram": {  # no byte pieces, as Unigram models from before byte_fallback
        "unigram": True,
        "normalizer": sequence("normalizers", {"type": "NFKC"}, replace(" {2,}", " ", kind="Regex")),
        "pre_tokenizer": metaspace("always", True),
        "post_processor": bos_first("<s>"),
        "decoder": metaspace("always", True),
        "first": specials("<s>", "<pad>", "</s>", "<unk>", "<sep>"), "last": [added("<mask>", lstrip=True)],
        "bos": "<s>", "eos": "</s>", "add_bos": True},
}


# --- training

def is_byte_level(family):
    return family["decoder"]["type"] == "ByteLevel"


def training_pipeline(family, size, text):
    """What trains the vocabulary, and the characters that it begins with. The pipeline is the family's own, but words
    where it has the whole text as one word. (The trainer's own choice of characters differs from run to run.)"""
    trainee = tokenizers.Tokenizer(tokenizers.models.BPE())
    if is_byte_level(family):
        text = json.loads(trainee.to_str())
        trainee = tokenizers.Tokenizer.from_str(json.dumps({**text, "pre_tokenizer": family["pre_tokenizer"]}))
        return trainee, sorted(pre_tokenizers.ByteLevel.alphabet())
    trainee.normalizer = normalizers.Replace(" ", "▁")
    trainee.pre_tokenizer = pre_tokenizers.Split(Regex(r"▁?[^▁\s]+|▁+|\s+"), "isolated")
    counts = collections.Counter()
    for paragraph in text:
        counts.update(paragraph.replace(" ", "▁"))
    return trainee, sorted(sorted(counts, key=lambda c: (-counts[c], c))[:max(256, size // 8)])


def train(family, size, text):
    """The vocabulary and the merges: `first`, the byte pieces, then what is learnt, `size` in all."""
    trainee, alphabet = training_pipeline(family, size, text)
    first = [t["content"] for t in family["first"]] + (BYTES if family["bytes"] else [])
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=first, initial_alphabet=alphabet,
                                  limit_alphabet=len(alphabet), show_progress=False, max_token_length=24)
    trainee.train_from_iterator(text, trainer)
    model = json.loads(trainee.to_str())["model"]
    return model["vocab"], model["merges"]


def train_unigram(family, size, text):
    """The vocabulary with scores. Those that are learnt are rounded, because the trainer's differ from run to run, which also
    makes equal ones; then to 32 bits, which published scores have."""
    trainee, alphabet = training_pipeline(family, size, text)
    first = [t["content"] for t in family["first"] if t["content"] != "\n"]
    first += ["\n" if b == "<0x0A>" else b for b in BYTES] if family["bytes"] else []  # as in Helium's
    trainee.model, known = tokenizers.models.Unigram(), set(alphabet) | {" "}
    trainer = trainers.UnigramTrainer(vocab_size=size - len(first), show_progress=False)
    trainee.train_from_iterator(["".join(c for c in p if c in known) for p in text], trainer)
    learnt = [(round(score, 1), piece) for piece, score in json.loads(trainee.to_str())["model"]["vocab"]]
    learnt = sorted((-score, piece) for score, piece in learnt if piece not in first)
    return [[t, 0.0] for t in first] + [[piece, struct.unpack("f", struct.pack("f", -score))[0]] for score, piece in learnt]


def merge_first_runs(family, vocab, merges):
    """As in Gemma's vocabulary, merges give the runs among `first` where they are not matched as added tokens."""
    if not family["bytes"]:
        return merges
    runs = {t["content"] for t in family["first"] if len(set(t["content"])) == 1}
    halves = [[r[:len(r) // 2], r[len(r) // 2:]] for r in sorted(runs) if len(r) > 1]
    return [h for h in halves if all(part in vocab for part in h)] + merges


def build(name, size, text):
    """The contents of tokenizer.json and tokenizer_config.json."""
    family = {**DEFAULTS, **FAMILIES[name]}
    if family["unigram"]:
        pieces = train_unigram(family, size, text)
        vocab = {piece: i for i, (piece, _) in enumerate(pieces)}
    else:
        vocab, merges = train(family, size, text)
        merges = merge_first_runs(family, vocab, merges)
    tokens = [{"id": vocab[t["content"]], **t} for t in family["first"]]
    tokens += [{"id": len(vocab) + i, **t} for i, t in enumerate(family["last"])]
    ids = {t["content"]: t["id"] for t in tokens}
    post = json.loads(json.dumps(family["post_processor"]))
    for processor in (post or {}).get("processors", [post]):
        for token in (processor or {}).get("special_tokens", {}).values():
            token["ids"] = [ids[token["id"]]]
    if family["unigram"]:
        model = {"type": "Unigram", "unk_id": ids["<unk>"], "vocab": pieces, "byte_fallback": family["bytes"]}
    else:
        model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                 "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                 **family["options"], "vocab": vocab, "merges": merges if family["pairs"] else [" ".join(m) for m in merges]}
    tokenizer = {"version": "1.0", "truncation": None, "padding": family["padding"], "added_tokens": tokens,
                 "normalizer": family["normalizer"], "pre_tokenizer": family["pre_tokenizer"], "post_processor": post,
                 "decoder": family["decoder"], "model": model}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": family["bos"], "eos_token": family["eos"],
              "add_bos_token": family["add_bos"], "clean_up_tokenization_spaces": False,
              "added_tokens_decoder": {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in tokens}}
    return tokenizer, config


def write(folder, tokenizer, config):
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(tokenizer, ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(text + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n")


# --- cases

def without_special(folder):
    """The tokenizer that finds no special token in a text: what quire uses for the text of messages. A Unigram model would still
    find those in its vocabulary, except by another name."""
    file = json.loads((folder / "tokenizer.json").read_text())
    if file["model"]["type"] == "Unigram":
        for token in file["added_tokens"]:
            id, vocab = token["id"], file["model"]["vocab"]
            if token["special"] and id < len(vocab) and id != file["model"]["unk_id"]:
                token["content"] = vocab[id][0] = f"\U0010fffe\U0010fffe{id}"
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(file))
    tokenizer.encode_special_tokens = True
    return tokenizer


def cases(folder, seed):
    """encode: ids with added tokens parsed; plain: ids with no special one found, where they differ; decoded: both decodings of the ids,
    where they differ from the text. decode: lists of random ids. before: what add_special_tokens puts first."""
    tokenizer, plain = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")), without_special(folder)
    rng = random.Random(seed)
    before = tokenizer.encode("", add_special_tokens=True).ids
    encode = []
    specials = [t.content for t in tokenizer.get_added_tokens_decoder().values()]
    for text in tokenizer_strings.Strings(seed, specials).generate(CASES, 24):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_special_tokens=True).ids == before + ids
        case = {"text": text, "ids": ids}
        if (ids_plain := plain.encode(text, add_special_tokens=False).ids) != ids:
            case["plain"] = ids_plain
        for key, skip in (("decoded", False), ("skipped", True)):
            if (decoded := tokenizer.decode(ids, skip_special_tokens=skip)) != text:
                case[key] = decoded
        encode.append(case)
    lists = [[rng.randrange(tokenizer.get_vocab_size()) for _ in range(rng.randrange(1, 24))] for _ in range(CASES // 6)]
    decode = [{"ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
               "skipped": tokenizer.decode(ids, skip_special_tokens=True)} for ids in lists]
    return {"before": before, "encode": encode, "decode": decode}


def write_cases(folder, contents):
    """A line each, so that a difference can be read."""
    dump = lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    lines = {key: ",\n".join(map(dump, contents[key])) for key in ("encode", "decode")}
    (folder / "cases.json").write_text('{"before":%s,\n"encode":[\n%s\n],\n"decode":[\n%s\n]}\n'
                                       % (dump(contents["before"]), lines["encode"], lines["decode"]))


def parse_size(text):
    return int(text[:-1]) * 1024 if text.endswith("k") else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", help="entries of the model's vocabulary, such as 128k; by default small ones")
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(FAMILIES))
    args = parser.parse_args()
    if (args.size is None) != (args.out is None):
        parser.error("--size and --out go together")
    for seed, name in enumerate(FAMILIES):
        if args.names and name not in args.names:
            continue
        if args.size:
            size = parse_size(args.size)
            text = tokenizer_text.Text(seed, max(0.1, size / 200e3)).paragraphs(size * 240)
            write(args.out / f"{name}-{args.size}", *build(name, size, list(text)))
        else:
            text = tokenizer_text.Text(seed, 0.02).paragraphs(1 << 20)
            write(DATA / name, *build(name, 700 + 60 * seed, list(text)))
            write_cases(DATA / name, cases(DATA / name, 1000 + seed))


if __name__ == "__main__":
    main()
