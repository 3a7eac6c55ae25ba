# SPDX-License-Identifier: MIT
"""Recorded requests, streams and texts of testdata/codec (its README gives the format), and what tests share."""

import gzip
import json
from pathlib import Path

import pytest

import deepinfer_cpp

ROOT = Path(__file__).resolve().parents[2]
CODEC = ROOT / "testdata" / "codec"
TOKENIZER = CODEC / "tokenizer_v41.json.gz"


def records(name):
    with gzip.open(CODEC / name, "rb") as file:
        return [json.loads(line) for line in file]


def normalised(value):
    """Random ends of call ids are `*` in the records, times 0; event numbers depend on how text was cut."""
    if isinstance(value, str) and len(value) >= 10 and value.startswith("call_") and value[7] == "_":
        return value[: 11 if value[8:11] == "ET_" else 8] + "*"
    if isinstance(value, list):
        return [normalised(item) for item in value]
    if isinstance(value, dict):
        times = ("created", "created_at", "completed_at")
        return {
            key: 0 if key in times and item is not None else normalised(item)
            for key, item in value.items()
            if key != "sequence_number"
        }
    return value


def _text_place(event):
    """(object, key) where a delta event holds its text, or None."""
    if "choices" in event:
        choice = event["choices"][0]
        delta = choice["delta"]
        if choice.get("finish_reason") is not None or "role" in delta:
            return None
        if "tool_calls" in delta:
            call = delta["tool_calls"][0]
            return None if "id" in call else (call["function"], "arguments")
        return (delta, "content" if isinstance(delta.get("content"), str) else "reasoning_content")
    data = event["data"]
    if isinstance(data.get("delta"), str):
        return (data, "delta")
    if isinstance(data.get("delta"), dict):
        for key in ("thinking", "text", "partial_json"):
            if key in data["delta"]:
                return (data["delta"], key)
    return None


def joined(events):
    """Neighbouring deltas of one kind as one: where text is cut is free."""
    out, last_blank = [], None
    for event in json.loads(json.dumps(normalised(events))):
        place = _text_place(event)
        blank = None
        if place is not None:
            text = place[0][place[1]]
            place[0][place[1]] = ""
            blank = json.dumps(event, sort_keys=True)
            if blank == last_blank:
                target = _text_place(out[-1])
                target[0][target[1]] += text
                continue
            place[0][place[1]] = text
        out.append(event)
        last_blank = blank
    return out


@pytest.fixture(scope="session")
def tokenizer():
    return deepinfer_cpp.Tokenizer(TOKENIZER)


@pytest.fixture(scope="session")
def codec(tokenizer):
    return deepinfer_cpp.Codec(tokenizer, compat="recipe")
