# SPDX-License-Identifier: MIT
"""Requests of three protocols to prompts and ids, output tokens to events and replies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from . import _codec
from .tokenizer import Tokenizer

Protocol = Literal["chat", "responses", "messages"]
Body = bytes | str | dict[str, Any]
# One entry per id: its log probability and the alternatives.
Logprobs = Sequence[tuple[float, Sequence[tuple[int, float]]]]

_FINISH = {"stop": 0, "length": 1, "content_filter": 2, None: 3}


class Event(NamedTuple):
    """One event of a stream: the SSE event name (None in Chat Completions) and its JSON."""

    name: str | None
    data: str

    def json(self) -> dict[str, Any]:
        """The data as an object."""
        return json.loads(self.data)  # type: ignore[no-any-return]


class Usage(NamedTuple):
    """Token counts of one choice."""

    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    reasoning_tokens: int


class Codec:
    """How requests are read. Immutable: any number of threads may use one."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        compat: Literal["none", "recipe"] = "none",
        options: Mapping[str, Any] | None = None,
        models: Mapping[str, Literal["v4", "v41"]] | None = None,
        context_limit: int | None = None,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """The settings are those of `deepinfer_codec_new` in deepinfer_codec.h. Raises CodecError."""
        settings: dict[str, Any] = {"compat": compat}
        for name, value in (("options", options), ("models", models), ("limits", limits)):
            if value is not None:
                settings[name] = dict(value)
        if context_limit is not None:
            settings["context_limit"] = context_limit
        self.tokenizer = tokenizer
        self._native = _codec.Codec(tokenizer._native, json.dumps(settings))

    def request(self, protocol: Protocol, body: Body) -> Request:
        """Reads a request. One that is refused is returned too: look at `refused`."""
        return Request(self, protocol, body)

    def encode(self, protocol: Protocol, body: Body) -> dict[str, Any]:
        """What `deepinfer encode` gives for this request under "result"."""
        return self.request(protocol, body).result()

    def decode(
        self, protocol: Protocol, body: Body, chunks: Sequence[Mapping[str, Any]], *, response_id: str = "resp-1"
    ) -> dict[str, Any]:
        """What `deepinfer decode` gives for recorded output: chunks_read, events and final. Chunks, in order: {"ready":
        {"prompt_tokens", "cache_hit", "fingerprint"?}}, {"ids", "logprobs"?}, {"text", "tokens"}, {"finish"}; each may
        carry "choice"."""
        stream = self.request(protocol, body).stream(response_id=response_id)
        choices = range(stream.num_choices)
        events: list[Event] = []
        num_read = 0
        for chunk in chunks:
            if all(stream.is_finished(choice) for choice in choices):
                break
            num_read += 1
            events += stream.push_chunk(chunk)
        for choice in choices:
            events += stream.finish(choice=choice)
        listed = [event.json() if event.name is None else {"event": event.name, "data": event.json()} for event in events]
        return {"chunks_read": num_read, "events": listed, "final": stream.final()}


class Request:
    """A request that was read: accepted, or refused with the answer to send. Immutable."""

    def __init__(self, codec: Codec, protocol: Protocol, body: Body) -> None:
        if isinstance(body, dict):
            body = json.dumps(body, ensure_ascii=False, allow_nan=False)
        self._native = _codec.Request(codec._native, protocol, body.encode() if isinstance(body, str) else body)
        self.protocol: Protocol = protocol

    @property
    def refused(self) -> bool:
        return self._native.http_status != 200

    @property
    def http_status(self) -> int:
        """200, or the status of the refusal."""
        return self._native.http_status

    @property
    def error_body(self) -> str:
        """The JSON to answer a refused request with; empty when it is accepted."""
        return self._native.error_body

    @property
    def ids(self) -> list[int]:
        """The token ids of the prompt."""
        return self._native.ids

    @property
    def prompt(self) -> str:
        """The prompt as people read it."""
        return self._native.prompt

    @property
    def model(self) -> str:
        """The name the client used."""
        return self._native.model

    def result(self) -> dict[str, Any]:
        """Prompt, ids and settings as `deepinfer encode` gives them; {"error": ...} when refused."""
        return json.loads(self._native.json())  # type: ignore[no-any-return]

    def max_tokens(self, prompt_tokens: int, context_limit: int) -> int:
        """The tokens the answer may have. Raises CodecError, with what the client is to read, when they do not fit."""
        return self._native.max_tokens(prompt_tokens, context_limit)

    def stream(
        self,
        *,
        response_id: str = "resp-1",
        model: str | None = None,
        created: int = 0,
        signature: str | None = None,
        call_id_seed: int | None = None,
        parsing: Mapping[str, Any] | None = None,
    ) -> Stream:
        """A parser for the output of this request. The settings are those of `deepinfer_stream_new`."""
        settings: dict[str, Any] = {"response_id": response_id, "created": created}
        for name, value in (("model", model), ("signature", signature), ("call_id_seed", call_id_seed)):
            if value is not None:
                settings[name] = value
        if parsing is not None:
            settings["parsing"] = dict(parsing)
        return Stream(_codec.Stream(self._native, json.dumps(settings)))


class Stream:
    """One answer as it comes. Each method that takes input returns the events it caused. One thread at a time."""

    def __init__(self, native: _codec.Stream) -> None:
        self._native = native

    def push_prompt(self, prompt_tokens: int, cached_tokens: int = 0, fingerprint: str | None = None) -> list[Event]:
        """What is known of the prompt; once, before any output."""
        return _events(
            self._native.push_prompt(prompt_tokens, cached_tokens, fingerprint or "", fingerprint is not None)
        )

    def push(self, ids: int | Sequence[int], logprobs: Logprobs | None = None, *, choice: int = 0) -> list[Event]:
        """Output tokens, with their log probabilities if the request asked for them."""
        listed = [ids] if isinstance(ids, int) else ids
        return _events(self._native.push_ids(listed, logprobs or [], logprobs is not None, choice))

    def push_text(self, text: str, num_tokens: int = 0, *, choice: int = 0) -> list[Event]:
        """Output of a backend that gives text, and the number of tokens it stands for."""
        return _events(self._native.push_text(text, num_tokens, choice))

    def finish(
        self, reason: Literal["stop", "length", "content_filter"] | None = None, *, choice: int = 0
    ) -> list[Event]:
        """The backend stopped, for this reason; None: the output ended and no reason is known."""
        if reason not in _FINISH:
            raise ValueError(f"reason: expected stop, length, content_filter or None, got {reason!r}")
        return _events(self._native.finish(_FINISH[reason], choice))

    def push_chunk(self, chunk: Mapping[str, Any]) -> list[Event]:
        """One chunk in the form of `Codec.decode`."""
        choice = chunk.get("choice", 0)
        if "ready" in chunk:
            ready = chunk["ready"]
            return self.push_prompt(ready.get("prompt_tokens", 0), ready.get("cache_hit", 0), ready.get("fingerprint"))
        if "ids" in chunk:
            return self.push(chunk["ids"], chunk.get("logprobs"), choice=choice)
        if "text" in chunk:
            return self.push_text(chunk["text"], chunk.get("tokens", 0), choice=choice)
        if "finish" in chunk:
            return self.finish(chunk["finish"], choice=choice)
        raise ValueError("chunk: expected one of ready, ids, text, finish")

    def fail(self, http_status: int, message: str) -> list[Event]:
        """The answer failed after it began: the protocol's error event; nothing may follow."""
        return _events(self._native.fail(http_status, message))

    def set_completed(self, completed: int) -> None:
        """When the answer was complete, in Unix seconds (Responses); call it before `finish`."""
        self._native.set_completed(completed)

    @property
    def num_choices(self) -> int:
        return self._native.num_choices

    def is_finished(self, choice: int = 0) -> bool:
        """This choice has ended; the backend can stop."""
        return self._native.is_finished(choice)

    def usage(self, choice: int = 0) -> Usage:
        return Usage(*self._native.usage(choice))

    @property
    def terminator(self) -> str | None:
        """Data of the frame after the last event; None where the protocol has none."""
        return self._native.terminator or None

    def final_json(self) -> str:
        """The reply that is not streamed, as JSON: the accumulation of all events so far."""
        return self._native.final()

    def final(self) -> dict[str, Any]:
        """The same as an object."""
        return json.loads(self._native.final())  # type: ignore[no-any-return]


def _events(pairs: list[tuple[str | None, str]]) -> list[Event]:
    return [Event(name, data) for name, data in pairs]
