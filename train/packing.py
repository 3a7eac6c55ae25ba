"""Encoded dialogues packed into buffers of one fixed shape, drawn by family shares."""
import random
from dataclasses import dataclass

import numpy as np

from . import prompt
from .families import arithmetic, chat, extraction, images, injection, lists, needle, tools
from .image_plan import Span, canvas_of
from .trunk_limits import MAX_CELLS, MAX_DOCUMENT, MAX_PATCHES, SHORT_DOCUMENT

# share of all tokens
SHARES = {"chat": 0.05, "arithmetic off": 0.06, "arithmetic thinking": 0.11, "copy": 0.02, "reverse": 0.02, "count": 0.01,
          "sort_words": 0.07, "sort_numbers": 0.05, "quote": 0.13, "json": 0.08, "tools": 0.25, "images": 0.07, "injection": 0.02,
          "needle": 0.03, "text": 0.03, "needle_long": 0.0}
LONG = "needle_long"
FIXED_SHARES = ("needle", "text", LONG)
LABELS = list(SHARES)
PROMPT_WEIGHT, TEXT_WEIGHT, NEEDLE_WEIGHT = 0.02, 0.2, 2.0
NUM_IMAGES, NUM_PATCHES = 96, 16384
NUM_INDEX_ROWS = 128
INDEXED_FROM = 512              # rows further in than this learn to select: rows before it see less than top-k
TARGET_SHARE = 0.5              # rows of the buffer that enter the loss
TEXT_TOKENS = (128, 256, 512)
MAX_DOCUMENTS = 4096            # of one buffer
DRAFT_BLOCK = 5

def label_of(dialogue):
    """What the training log counts separately."""
    if dialogue.family == "lists":
        return LABELS.index(dialogue.check["kind"])
    if dialogue.family == "arithmetic":
        return LABELS.index("arithmetic off" if dialogue.thinking == "off" else "arithmetic thinking")
    return LABELS.index(dialogue.family)


@dataclass
class Encoded:
    ids: np.ndarray
    weights: np.ndarray         # loss weight of every token as a prediction target
    spans: list
    label: int = LABELS.index("text")


def encode_runs(runs, images_of, tokenizer, config):
    """-> ids, target flags, image spans; every placeholder becomes as many image tokens as its canvas needs"""
    ids, target, placeholders = tokenizer.encode_runs(runs)
    if not placeholders:
        return ids, target, []
    id_parts, target_parts, spans, previous, length = [], [], [], 0, 0
    for position, index in placeholders:
        span = Span(length + position - previous, canvas_of(images_of[index], config))
        count = span.num_tokens(config)
        id_parts += [ids[previous:position], np.full(count, config.image_token_id, np.int32)]
        target_parts += [target[previous:position], np.zeros(count, bool)]
        length += position - previous + count
        spans.append(span)
        previous = position + 1
    return (np.concatenate(id_parts + [ids[previous:]]), np.concatenate(target_parts + [target[previous:]]), spans)


def encode_dialogue(dialogue, tokenizer, config, num_messages=None):
    runs = prompt.render(dialogue, num_messages)
    ids, target, spans = encode_runs(runs, dialogue.images, tokenizer, config)
    weights = np.where(target, 1.0, PROMPT_WEIGHT).astype(np.float32)
    weights[(ids >= tokenizer.special_ids[prompt.SYSTEM]) & ~target] = 0      # the template's control tokens
    if dialogue.tools or dialogue.response_schema:
        weights[~target] = 0                     # mostly fixed text
    if dialogue.family == "needle":
        weights = np.where(target, NEEDLE_WEIGHT, 0).astype(np.float32)        # the text around is noise
    return Encoded(ids, weights, spans, label_of(dialogue))


class Source:
    """Draws encoded documents of every family from one random generator."""

    def __init__(self, seed, tokenizer, config, haystack_text, haystack_ids, faces):
        self.rng, self.tokenizer, self.config = random.Random(seed), tokenizer, config
        self.haystack_text, self.haystack_ids = haystack_text, haystack_ids
        self.long_tokens, self.waiting = 0.0, None      # long documents: tokens still to come, and one that did not fit
        self.makers = {
            "chat": chat.make, "json": extraction.make, "tools": tools.make, "injection": injection.make,
            "images": lambda rng: images.make(rng, faces), "needle": lambda rng: needle.make(rng, rng.choice([self.haystack, needle.word_salad])),
            LONG: lambda rng: needle.make_long(rng, self.haystack),
            "arithmetic off": lambda rng: arithmetic.make(rng, "small", "off"),
            "arithmetic thinking": lambda rng: arithmetic.make(rng, rng.choice(["small", "long"]), rng.choice(["low", "high", "max"]))}
        self.makers.update({kind: (lambda rng, kind=kind: lists.make(rng, kind)) for kind in lists.TASKS})

    def haystack(self, rng, num_chars):
        start = rng.randrange(len(self.haystack_text) - num_chars)
        return self.haystack_text[start:start + num_chars].replace("\0", " ")

    def draw(self, family):
        if family == "text":
            count = self.rng.choice(TEXT_TOKENS)
            start = self.rng.randrange(len(self.haystack_ids) - count)
            ids = np.concatenate(([0], self.haystack_ids[start:start + count])).astype(np.int32)
            return Encoded(ids, np.full(len(ids), TEXT_WEIGHT, np.float32), [])
        while True:
            encoded = encode_dialogue(self.makers[family](self.rng), self.tokenizer, self.config)
            if len(encoded.ids) < (MAX_DOCUMENT if family == LONG else SHORT_DOCUMENT):
                encoded.label = LABELS.index(LONG) if family == LONG else encoded.label
                return encoded


class Packer:
    """Documents one after another, each at an even place, until the buffer is full."""

    def __init__(self, tokens, config, pad_id=2):
        self.config, self.tokens = config, tokens
        self.ids = np.full(tokens, pad_id, np.int64)
        self.weights = np.zeros(tokens, np.float32)
        self.document = np.zeros(tokens, np.int32)
        self.positions = np.zeros(tokens, np.int64)
        self.labels = np.full(MAX_DOCUMENTS, -1, np.int64)
        self.used, self.num_documents, self.spans, self.num_patches = 0, 0, [], 0

    def add(self, encoded):
        """-> False when the document does not fit any more"""
        size = len(encoded.ids) + len(encoded.ids) % 2
        patches = sum(span.canvas.shape[0] * span.canvas.shape[1] for span in encoded.spans) // self.config.patch_size ** 2
        if (self.used + size > self.tokens or self.num_documents + 1 >= MAX_DOCUMENTS or len(self.spans) + len(encoded.spans) > NUM_IMAGES
                or self.num_patches + patches > NUM_PATCHES):
            return False
        begin, end = self.used, self.used + len(encoded.ids)
        self.ids[begin:end], self.weights[begin:end] = encoded.ids, encoded.weights
        self.weights[begin] = 0                    # nothing predicts the first token
        self.document[begin:begin + size] = self.num_documents
        self.labels[self.num_documents] = encoded.label
        self.positions[begin:begin + size] = np.arange(size)
        self.spans += [Span(begin + span.position, span.canvas) for span in encoded.spans]
        self.num_patches += patches
        self.used += size
        self.num_documents += 1
        return True

    def image_arrays(self):
        c, number = self.config, NUM_IMAGES
        patches = np.zeros((NUM_PATCHES, 3 * c.patch_size ** 2), np.uint8)
        place, row, column = (np.zeros((number, MAX_PATCHES), np.int64) for _ in range(3))
        there = np.zeros((number, MAX_PATCHES), bool)
        there[:, 0] = True                         # an unused image still needs one key
        cells = np.full((number, MAX_CELLS, c.downsample_ratio ** 2), MAX_PATCHES, np.int64)
        most = number * (c.max_image_tokens)
        span_place, span_source = np.full(most, self.tokens, np.int64), np.zeros(most, np.int64)
        first, token = 0, 0
        marks = number * MAX_CELLS
        for index, span in enumerate(self.spans):
            values, rows, columns = span.patches(c)
            count = rows * columns
            patches[first:first + count] = values
            place[index, :count] = np.arange(first, first + count)
            row[index, :count], column[index, :count] = np.divmod(np.arange(count), columns)
            there[index, :count] = True
            own = span.cells(c, MAX_PATCHES)
            cells[index, :len(own)] = own
            source = span.sources(c, index * MAX_CELLS, marks, marks + 1, marks + 2)
            span_place[token:token + len(source)] = np.arange(span.position, span.position + len(source))
            span_source[token:token + len(source)] = source
            first, token = first + count, token + len(source)
        return dict(patches=patches, patch_place=place, patch_row=row, patch_column=column, patch_there=there, cells=cells,
                    span_place=span_place, span_source=span_source)

    def index_rows(self, answer, rng):
        """Rows that teach the indexer: half of them answers, far enough in their documents if there are such rows."""
        def draw(rows, count):
            far = rows[self.positions[rows] >= INDEXED_FROM]
            rows = far if len(far) else rows
            return rng.choice(rows, count) if len(rows) else np.zeros(count, np.int64)

        half = NUM_INDEX_ROWS // 2
        return np.concatenate((draw(np.arange(self.used), NUM_INDEX_ROWS - half), draw(answer, half)))

    def finish(self, rng):
        """-> dict of arrays; rng is a NumPy generator for the sampled rows"""
        self.document[self.used:] = self.num_documents
        self.positions[self.used:] = np.arange(self.tokens - self.used) % 128
        following = np.concatenate((self.weights[1:], [0])).astype(np.float32)
        answer = np.flatnonzero(following >= 1)
        other = np.flatnonzero((following > 0) & (following < 1))
        count = int(self.tokens * TARGET_SHARE)
        rows = np.concatenate((rng.permutation(answer), rng.permutation(other)))[:count]
        weights = following[rows]
        rows, weights = np.pad(rows, (0, count - len(rows))), np.pad(weights, (0, count - len(rows)))
        if len(other) and len(answer) < count:     # those left out are stood for by those kept
            weights[len(answer):] *= min(len(other) / max(count - len(answer), 1), 20) if len(answer) + len(other) > count else 1
        index_rows = self.index_rows(answer, rng)
        groups = -(-self.tokens // DRAFT_BLOCK)
        anchors = np.sort(rng.choice(answer, groups) + 1) if len(answer) else np.ones(groups, np.int64)
        return dict(ids=self.ids, document=self.document, positions=self.positions, labels=self.labels, target_rows=rows,
                    target_weights=weights, index_rows=index_rows, answer_weights=following,
                    anchors=np.minimum(anchors, self.tokens - DRAFT_BLOCK - 2), **self.image_arrays())


def adapted_shares(percent_right):
    """Shares for a later run: families that are still often wrong get more, those that are solved get less."""
    shares = {}
    for family, share in SHARES.items():
        need = min(2.5, max(0.4, 0.3 + (100 - percent_right.get(family, 90)) / 8))
        shares[family] = share if family in FIXED_SHARES else share * need
    total = sum(shares.values())
    return {family: share / total for family, share in shares.items()}


def add_long(packer, source, tokens):
    """Long documents come first; what is due over all buffers counts, as one of them may fill half a buffer."""
    source.long_tokens += tokens
    while source.long_tokens > 0:
        encoded = source.waiting or source.draw(LONG)
        if not packer.add(encoded):
            source.waiting = encoded
            return
        source.waiting = None
        source.long_tokens -= len(encoded.ids)


def pack(source, tokens, rng, shares=None):
    """One training buffer; the family furthest below its share comes next."""
    packer, shares = Packer(tokens, source.config), dict(shares or SHARES)
    add_long(packer, source, tokens * shares.pop(LONG, 0))
    shares = {family: share for family, share in shares.items() if share}
    spent = {family: 0.0 for family in shares}
    offset = {family: source.rng.random() * 200 for family in shares}
    while True:
        family = min(shares, key=lambda name: (spent[name] + offset[name]) / shares[name])
        encoded = source.draw(family)
        if not packer.add(encoded):
            if packer.used > tokens - SHORT_DOCUMENT or not encoded.spans:
                return packer.finish(rng)
            spent[family] += tokens                # no room for more images
            continue
        spent[family] += len(encoded.ids)
