"""What the trained draft head is worth on unseen text: accepted drafts per step, and how well its confidence is calibrated.

A draft counts while all drafts before it were right, as in verification. The walk starts at the first token of an answer and goes
on behind the last accepted draft and the token of the trunk that follows it.
"""
import json

import numpy as np
import torch

from . import packing
from .loader import make_source
from .packing import DRAFT_BLOCK

SEED = "unseen drafts"
TEMPERATURES = np.exp(np.linspace(np.log(0.25), np.log(4.0), 65))
BINS = 15
LONG_REPLY = 20                 # tokens
NUM_BUFFERS = 24                # the first half fits the temperatures, the other is scored


def answers_of(arrays):
    """[first token, end) of every answer of a buffer, and the label of its document"""
    target = np.concatenate(([False], arrays["answer_weights"][:-1] >= 1))
    edges = np.flatnonzero(np.diff(np.concatenate(([0], target.astype(np.int8), [0]))))
    return [(begin, end, int(arrays["labels"][arrays["document"][begin]])) for begin, end in zip(edges[::2], edges[1::2])]


def eval_buffer(source, tokens, rng, shares):
    """A buffer whose anchors are all answer tokens, as many as there are draft blocks."""
    arrays = packing.pack(source, tokens, rng, shares)
    anchors = np.concatenate([np.arange(begin, end - 1) for begin, end, _ in answers_of(arrays)])
    anchors = anchors[:tokens // DRAFT_BLOCK]
    arrays["anchors"] = np.pad(anchors, (0, len(arrays["anchors"]) - len(anchors)), mode="edge")
    return arrays, len(anchors)


def walk(good, answers, anchor_row):
    """Accepted drafts of every step of an answer; good [anchors, 5]"""
    accepted = good.cumprod(1).sum(1)
    for begin, end, label in answers:
        place, steps = begin, []
        while place < end - 1:
            if place not in anchor_row:
                steps = None
                break
            steps.append(int(accepted[anchor_row[place]]))
            place += steps[-1] + 1
        if steps:
            yield label, end - begin, steps


def collect(stage, source, tokens, rng, shares):
    """-> confidences, hits, counted [anchors, 5], labels of the anchors, walks"""
    arrays, number = eval_buffer(source, tokens, rng, shares)
    stage.load({name: torch.as_tensor(value).to(stage.device) for name, value in arrays.items()})
    with torch.cuda.stream(stage.stream) if torch.cuda.is_available() else torch.enable_grad():
        _, hits, probe, counted, _ = stage.drafts()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    fold = lambda value: value[:number * DRAFT_BLOCK].view(number, DRAFT_BLOCK).float().cpu().numpy()
    hits, probe, counted = fold(hits), fold(probe), fold(counted)
    answers = answers_of(arrays)
    anchor_row = {int(place): row for row, place in enumerate(arrays["anchors"][:number])}
    labels = arrays["labels"][arrays["document"][arrays["anchors"][:number]]]
    return probe, hits, counted, labels, list(walk(hits * counted, answers, anchor_row))


def sigmoid(value):
    return 1 / (1 + np.exp(-np.clip(value, -60, 60)))


def fit_temperature(probe, hits):
    """The temperature with the best likelihood."""
    def loss(temperature):
        sure = sigmoid(probe / temperature).clip(1e-6, 1 - 1e-6)
        return -(hits * np.log(sure) + (1 - hits) * np.log(1 - sure)).mean()
    return float(min(TEMPERATURES, key=loss))


def calibration_error(probe, hits, temperature):
    """Expected calibration error over equal bins of confidence."""
    sure = sigmoid(probe / temperature)
    place = np.minimum((sure * BINS).astype(int), BINS - 1)
    return float(sum(abs((sure[place == b] - hits[place == b]).sum()) for b in range(BINS)) / max(len(sure), 1))


def per_position(parts, temperatures=None):
    """-> temperatures and calibration errors; what counts is a draft whose predecessors were all accepted"""
    probe, hits, counted = (np.concatenate([part[i] for part in parts]) for i in range(3))
    before = np.concatenate((np.ones_like(hits[:, :1]), hits[:, :-1].cumprod(1)), 1) * counted > 0
    temperatures = temperatures or [fit_temperature(probe[before[:, i], i], hits[before[:, i], i]) for i in range(DRAFT_BLOCK)]
    errors = [calibration_error(probe[before[:, i], i], hits[before[:, i], i], temperatures[i]) for i in range(DRAFT_BLOCK)]
    rates = [float(hits[before[:, i], i].mean()) for i in range(DRAFT_BLOCK)]
    return temperatures, errors, rates


def accepted_per_step(walks):
    steps = [accepted for _, _, answer in walks for accepted in answer]
    return dict(accepted=float(np.mean(steps)), steps=len(steps), answers=len(walks)) if steps else None


def summary(parts):
    half = len(parts) // 2
    temperatures, _, _ = per_position(parts[:half])
    _, errors, rates = per_position(parts[half:], temperatures)
    _, raw, _ = per_position(parts[half:], [1.0] * DRAFT_BLOCK)
    walks = [walk for part in parts[half:] for walk in part[4]]
    result = dict(temperatures=temperatures, calibration_error=errors, calibration_error_untempered=raw, conditional_acceptance=rates,
                  all=accepted_per_step(walks), long_replies=accepted_per_step([w for w in walks if w[1] >= LONG_REPLY]))
    for label, name in enumerate(packing.LABELS):
        result[name] = accepted_per_step([w for w in walks if w[0] == label and w[1] >= LONG_REPLY])
    chat = packing.LABELS.index("chat")
    own = [tuple(value[part[3] == chat] for value in part[:3]) for part in parts[half:]]
    result["chat_calibration_error"] = per_position(own, temperatures)[1]
    return result


def score_drafts(run, stage):
    options = run.options
    source = make_source(SEED, options.tokenizer, options.text, tuple(options.faces) or (None,))
    rng, shares = np.random.default_rng(7), {**packing.SHARES, "chat": 0.3}
    parts = [collect(stage, source, options.tokens, rng, shares) for _ in range(NUM_BUFFERS)]
    result = summary(parts)
    run.say(event="draft scores", **result)
    with open(f"{options.out}/drafts.json", "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
