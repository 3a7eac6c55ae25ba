# SPDX-License-Identifier: MIT
"""Texts to ids and back: the recorded ones, and what callers can do wrong."""

import gzip

import pytest
from conftest import TOKENIZER, records

from deepinfer_cpp import CodecError, Tokenizer


def test_every_recorded_text(tokenizer):
    for record in records("tokenizer.jsonl.gz"):
        if "text" in record:
            assert tokenizer.encode(record["text"]) == record["ids"]
            with_added = record.get("ids_with_added", record["ids"])
            assert tokenizer.encode(record["text"], with_added=True) == with_added
            assert tokenizer.decode(record["ids"]) == record["text"]
        else:
            assert tokenizer.decode(record["decode_ids"]) == record["decode_text"]
            detokenizer = tokenizer.detokenizer()
            pieces = [detokenizer.push(token_id) for token_id in record["decode_ids"]]
            assert "".join(pieces) + detokenizer.finish() == record["decode_text"]


def test_characters_come_whole(tokenizer):
    ids = tokenizer.encode("a🦀b")
    detokenizer = tokenizer.detokenizer()
    pieces = [detokenizer.push(token_id) for token_id in ids] + [detokenizer.finish()]
    assert [piece for piece in pieces if "🦀" in piece] and "".join(pieces) == "a🦀b"


def test_control_tokens(tokenizer):
    think = tokenizer.find_control("<think>")
    assert think is not None and tokenizer.is_control(think)
    assert tokenizer.token_bytes(think) == b"<think>"
    assert think not in tokenizer.encode("<think>") and tokenizer.encode("<think>", with_added=True) == [think]
    assert tokenizer.find_control("<nothing>") is None
    assert tokenizer.token_bytes(tokenizer.vocab_size) == b"" and not tokenizer.is_control(-1)


def test_from_json_is_the_same(tokenizer):
    made = Tokenizer.from_json(gzip.open(TOKENIZER).read())
    assert made.encode("Hello, 世界!") == tokenizer.encode("Hello, 世界!")


def test_what_is_wrong_is_an_error(tokenizer):
    with pytest.raises(CodecError) as caught:
        Tokenizer("/nowhere/tokenizer.json")
    assert caught.value.code == "not_found"
    with pytest.raises(CodecError):
        Tokenizer.from_json("{}")
    with pytest.raises(CodecError, match=r"ids\[1\]"):
        tokenizer.decode([0, tokenizer.vocab_size])
    with pytest.raises(TypeError):
        tokenizer.decode([1 << 40])
