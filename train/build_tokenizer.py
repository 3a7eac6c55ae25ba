"""Trains the byte-level BPE of the mini model and writes it in the form of the released tokenizer.json.

    python3 -m train.build_tokenizer TEXT.txt.gz OUT_FOLDER [VOCAB_SIZE]

Needs the `tokenizers` library, for training only. Digits are split one by one during training, so no merge joins two
digits although the file that is written has the released splitter, which allows runs of three.
"""
import gzip
import json
import os
import random
import sys

from . import prompt
from .families import arithmetic, chat, extraction, images, injection, lists, tools

# in the order of the released file; they get the last ids
CONTROL_TOKENS = [
    "<｜System｜>", "<｜fim▁hole｜>", "<｜fim▁begin｜>", "<｜fim▁end｜>", "<｜User｜>", "<｜Assistant｜>", "<think>", "</think>",
    "｜DSML｜", "<｜latest_reminder｜>", "<｜action｜>", "<｜query｜>", "<｜authority｜>", "<｜domain｜>", "<｜title｜>",
    "<｜read_url｜>", "<｜deepseek_image｜>", "<｜/polygon｜>", "<｜polygon｜>", "<｜/point｜>", "<｜point｜>", "<｜/box｜>",
    "<｜box｜>", "<｜/ref｜>", "<｜ref｜>"]
GROUNDING = CONTROL_TOKENS[-8:]
FIRST_TOKENS = [prompt.BOS, prompt.EOS, prompt.PAD]

DIGITS_RELEASED, DIGITS_TRAINING = r"\p{N}{1,3}", r"\p{N}"
CHINESE_JAPANESE = "[一-龥぀-ゟ゠-ヿ]+"
WORDS_AND_SIGNS = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
                   " ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+")
NUM_DIALOGUES = 40_000


def training_splitter():
    from tokenizers import Regex, pre_tokenizers
    split = [pre_tokenizers.Split(Regex(pattern), "isolated")
             for pattern in (DIGITS_TRAINING, CHINESE_JAPANESE, WORDS_AND_SIGNS)]
    return pre_tokenizers.Sequence(split + [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def training_texts(package_texts):
    """Plain runs of generated dialogues, then the package text in pieces."""
    rng = random.Random("tokenizer")
    makers = [chat.make, arithmetic.make, lists.make, extraction.make, extraction.make, tools.make, tools.make, injection.make]
    for number in range(NUM_DIALOGUES):
        dialogue = rng.choice(makers)(rng)
        if number % 10 and dialogue.tools:          # the fixed tools text need not be counted every time
            dialogue.tools = []
        for run in prompt.render(dialogue):
            if not run.special:
                yield run.text
    yield from images.SHORT_WORDS * 20
    for text in package_texts:
        yield text[:60_000]


def train_bpe(package_texts, num_pieces):
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = training_splitter()
    trainer = trainers.BpeTrainer(vocab_size=num_pieces, special_tokens=FIRST_TOKENS, show_progress=False,
                                  initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), max_token_length=24)
    tokenizer.train_from_iterator(training_texts(package_texts), trainer)
    return json.loads(tokenizer.to_str())["model"]


def added_token(number, content):
    special = content in FIRST_TOKENS or content in GROUNDING
    normalized = not special and content != prompt.IMAGE
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": normalized, "special": special}


def tokenizer_file(model, vocab_size):
    first_control = vocab_size - len(CONTROL_TOKENS)
    assert len(model["vocab"]) == first_control, (len(model["vocab"]), first_control)
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]]
    split = [{"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
             for pattern in (DIGITS_RELEASED, CHINESE_JAPANESE, WORDS_AND_SIGNS)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [added_token(number, text) for number, text in
                         [*enumerate(FIRST_TOKENS), *enumerate(CONTROL_TOKENS, first_control)]],
        "normalizer": {"type": "Sequence", "normalizers": []},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": split + [byte_level]},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "vocab": dict(sorted(model["vocab"].items(), key=lambda item: item[1])), "merges": merges}}


def settings_file(context):
    return {"add_bos_token": False, "add_eos_token": False, "bos_token": prompt.BOS, "eos_token": prompt.EOS,
            "pad_token": prompt.PAD, "clean_up_tokenization_spaces": False, "model_max_length": context,
            "tokenizer_class": "PreTrainedTokenizerFast"}


def main(text_path, folder, vocab_size="6144"):
    with gzip.open(text_path) as file:
        package_texts = file.read().decode().split("\0")
    model = train_bpe(package_texts, int(vocab_size) - len(CONTROL_TOKENS))
    os.makedirs(folder, exist_ok=True)
    with open(f"{folder}/tokenizer.json", "w", encoding="utf-8") as file:
        json.dump(tokenizer_file(model, int(vocab_size)), file, ensure_ascii=False, indent=0)
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump(settings_file(32768), file, ensure_ascii=False, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
