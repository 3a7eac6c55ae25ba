# SPDX-License-Identifier: MIT
"""Requests and streams: the recorded ones, and what callers can do wrong."""

import threading

import pytest
from conftest import joined, normalised, records

import deepinfer_cpp
from deepinfer_cpp import Codec, CodecError

HELLO = {"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": "Hello"}]}


def test_every_recorded_request(tokenizer, codec):
    count = 0
    for record in records("requests.jsonl.gz"):
        if "known_bug" in record:
            continue
        settings = {"options": record.get("options"), "context_limit": record.get("context_limit")}
        own = Codec(tokenizer, compat="recipe", **settings) if any(settings.values()) else codec
        request = own.request(record["protocol"], record.get("request_text", record.get("request")))
        expect, result = record["expect"], request.result()
        if "error" in expect:
            assert request.refused and request.http_status == expect["error"]["status"]
            assert request.ids == [] and "error" in request.error_body
            if expect["error"]["stage"] == "convert" and expect["error"]["exact"]:
                assert result["error"]["message"] == expect["error"]["message"]
        else:
            assert not request.refused and request.error_body == ""
            assert (request.ids, request.prompt) == (expect["ids"], expect["prompt"]), record["id"]
            for key in expect.keys() - {"inference"}:
                assert result[key] == expect[key], (record["id"], key)
        count += 1
    assert count == 885


def test_every_recorded_stream(codec):
    count = 0
    for record in records("responses.jsonl.gz"):
        if {"known_bug", "loose"} & record.keys() or "logprobs" in record["setup"]:
            continue
        for protocol, expect in record["expect"].items():
            got = codec.decode(protocol, expect["request"], record["chunks"])
            assert joined(got["events"]) == joined(expect["events"]), (record["id"], protocol)
            assert normalised(got["final"]) == normalised(expect["final"]), (record["id"], protocol)
            assert got["chunks_read"] == expect["chunks_read"]
            count += 1
    assert count > 1000


def test_log_probabilities_reach_the_stream(codec):
    record = next(r for r in records("responses.jsonl.gz") if "logprobs" in r["setup"] and "chat" in r["expect"])
    stream = codec.request("chat", record["expect"]["chat"]["request"]).stream()
    for chunk in record["chunks"]:
        stream.push_chunk(chunk)
    assert stream.final()["choices"] == record["expect"]["chat"]["final"]["choices"]
    with pytest.raises(ValueError, match="one entry for each id"):
        codec.request("chat", HELLO).stream().push([1, 2], [(0.0, [])])


def test_usage_choices_and_terminator(codec, tokenizer):
    stream = Codec(tokenizer).request("chat", {**HELLO, "n": 2, "thinking": {"type": "disabled"}}).stream()
    assert stream.num_choices == 2 and stream.terminator == "[DONE]"
    stream.push_prompt(7, 3)
    stream.push(19923, choice=1)
    stream.finish("length", choice=1)
    assert stream.is_finished(1) and not stream.is_finished(0)
    assert stream.usage(1) == (7, 3, 1, 0)
    assert stream.final()["choices"][1]["message"]["content"] == "Hello"
    assert codec.request("messages", {**HELLO, "max_tokens": 5}).stream().terminator is None


def test_max_tokens(codec):
    request = codec.request("chat", HELLO)
    assert request.max_tokens(100, 1_000_000) == 65536
    with pytest.raises(CodecError, match="maximum context length is 50 tokens") as caught:
        request.max_tokens(100, 50)
    assert caught.value.code == "invalid_argument"


def test_what_is_not_understood_is_an_error(codec, tokenizer):
    with pytest.raises(CodecError, match="protocol: expected chat, responses or messages"):
        codec.request("smtp", HELLO)
    with pytest.raises(CodecError, match="settings.limits.bodies"):
        Codec(tokenizer, limits={"bodies": 1})
    with pytest.raises(CodecError, match="settings.parsing.parse_tools"):
        codec.request("chat", HELLO).stream(parsing={"parse_tools": True})
    with pytest.raises(CodecError, match="the request is refused"):
        codec.request("chat", "{}").stream()
    with pytest.raises(ValueError, match="reason"):
        codec.request("chat", HELLO).stream().finish("tired")
    with pytest.raises(ValueError, match="expected one of ready"):
        codec.decode("chat", HELLO, [{"id": 1}])


def test_limits_are_settings(tokenizer):
    request = Codec(tokenizer, limits={"body_bytes": 10}).request("chat", HELLO)
    assert request.refused and request.http_status >= 400


def test_many_threads_use_one_codec(codec):
    expected, seen = codec.request("chat", HELLO).ids, []
    threads = [
        threading.Thread(target=lambda: seen.extend(codec.request("chat", HELLO).ids == expected for _ in range(100)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 400


def test_version():
    assert deepinfer_cpp.__version__.count(".") == 2
