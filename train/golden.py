"""Writes golden values of a mini model: python3 -m train.golden MODEL_FOLDER OUT.safetensors

Twenty prompts of all families, prefilled in one go, then four given tokens; keys as in golden A. Image prompts carry
their images as decoded (pN.image0, ...), the token list has the whole span. All from the reference forward pass on a
CPU: real top-k selection, lowest index first among equal scores.
"""
import random
import sys

import numpy as np
import torch

from . import checkpoint, packing, reference
from .families import arithmetic, chat, extraction, images, injection, lists, needle, tools
from .evaluate import haystack
from .tokenizer import PromptTokenizer

DECODE_STEPS = 4


def dialogues():
    rng = random.Random("golden")
    makers = [chat.make, lambda r: arithmetic.make(r, "small", "off"), lambda r: arithmetic.make(r, "long", "max"), extraction.make,
              tools.make, injection.make, lambda r: images.make(r, sizes=[(126, 126)]), lambda r: images.make(r, sizes=[(252, 126)]),
              lambda r: images.make(r, sizes=[(640, 480), (90, 60)]), lambda r: needle.make(r, haystack, 4800, 8),
              lambda r: needle.make(r, haystack, 9000, 8), lambda r: lists.make(r, "copy"), lambda r: lists.make(r, "reverse"),
              lambda r: lists.make(r, "sort_words"), lambda r: lists.make(r, "count"), lambda r: lists.make(r, "quote", single=True),
              lambda r: lists.quote_dialogue(r, "off"), lambda r: tools.make(r, 4), chat.make, lambda r: arithmetic.make(r, "small", "low")]
    return [make(rng) for make in makers]


def golden_of(model, dialogue, tokenizer):
    """-> {key: array} of one prompt"""
    turn = max(place for place, message in enumerate(dialogue.messages) if message["role"] == "assistant")
    whole = packing.encode_dialogue(dialogue, tokenizer, model.config, turn + 1)
    length = len(packing.encode_dialogue(dialogue, tokenizer, model.config, turn).ids)
    steps = min(DECODE_STEPS, len(whole.ids) - length)
    ids = whole.ids[:length + steps]
    spans = [(0, span.position, model.encode_image(span.canvas)) for span in whole.spans]
    hidden, state = model.forward(ids[None], spans)
    logits = model.logits(hidden[0]).numpy()
    anchors = np.append(ids[length + 1:], logits[-1].argmax()).astype(np.int32)
    rings = model.draft_rings(state)
    drafts = [model.draft(rings, length + step, int(anchor)) for step, anchor in enumerate(anchors)]
    result = dict(tokens=ids[:length], logits=logits[length - 1], argmax=logits[:length].argmax(-1).astype(np.int32),
                  decode_tokens=ids[length:], decode_logits=logits[length:], draft_anchor=anchors,
                  draft_ids=np.array([ids for ids, _, _ in drafts], np.int32),
                  draft_conf=np.array([confidence for _, confidence, _ in drafts], np.float32))
    result.update({f"image{place}": image for place, image in enumerate(dialogue.images)})
    return result


def main(folder, out):
    torch.set_grad_enabled(False)
    model, tokenizer = reference.Reference.from_folder(folder), PromptTokenizer(f"{folder}/tokenizer.json")
    tags, items = {"i": "I32", "f": "F32", "u": "U8"}, []
    for number, dialogue in enumerate(dialogues()):
        values = golden_of(model, dialogue, tokenizer)
        items += [(f"p{number}.{key}", tags[value.dtype.kind], value) for key, value in values.items()]
        print(f"p{number}: {dialogue.family}, {len(values['tokens'])} tokens, {len(dialogue.images)} images", flush=True)
    checkpoint.save_safetensors(out, items)


if __name__ == "__main__":
    main(*sys.argv[1:])
