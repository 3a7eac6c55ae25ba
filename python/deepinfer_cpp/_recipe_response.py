# SPDX-License-Identifier: MIT
"""Chunks, generators, the stream processor and accumulated responses of deepseek-recipe 0.2.0 over the C ABI."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _codec
from ._recipe_tokens import InferenceFinishReason
from .codec import Logprobs

if TYPE_CHECKING:
    from ._recipe_request import ConversationRequest, ParsingOptions, ResponsesEcho, Tokenizer

_FINISH = {InferenceFinishReason.Stop: 0, InferenceFinishReason.Length: 1, InferenceFinishReason.ContentFilter: 2}


class PromptUsage:
    def __init__(self, *, prompt_tokens: int = 0, prompt_cache_hit_tokens: int = 0) -> None:
        self.prompt_tokens, self.prompt_cache_hit_tokens = prompt_tokens, prompt_cache_hit_tokens


class InferenceChunk:
    """One backend update, made by `ready`, `text`, `tokens` or `finish`."""

    def __init__(self, kind: str, **values: Any) -> None:
        self.kind = kind
        self.content: str | None = values.get("content")
        self.token_ids: list[int] | None = values.get("token_ids")
        self.finish_reason: InferenceFinishReason | None = values.get("finish_reason")
        self.prompt_usage: PromptUsage | None = values.get("prompt_usage")
        self.token_count: int | None = values.get("token_count")
        self.system_fingerprint: str | None = values.get("system_fingerprint")
        self._logprobs: Logprobs | None = values.get("logprobs")

    @staticmethod
    def ready(*, prompt_usage: PromptUsage | None = None, system_fingerprint: str | None = None) -> InferenceChunk:
        return InferenceChunk("ready", prompt_usage=prompt_usage, system_fingerprint=system_fingerprint)

    # Beside the attribute `content`, as in the original: the constructor is named after the kind.
    @staticmethod
    def text(content: str, token_count: int = 0) -> InferenceChunk:
        return InferenceChunk("text", content=content, token_count=token_count)

    @staticmethod
    def tokens(token_ids: Sequence[int], logprobs: Logprobs | None = None) -> InferenceChunk:
        return InferenceChunk("tokens", token_ids=list(token_ids), logprobs=logprobs)

    @staticmethod
    def finish(finish_reason: InferenceFinishReason) -> InferenceChunk:
        return InferenceChunk("finish", finish_reason=finish_reason)


class ChunkGenerator:
    """How the answer to one request is written. A stream processor consumes it."""

    _protocol = ""
    _chunk: type[_Chunk]

    def __init__(self, request: ConversationRequest, id: str, model: str) -> None:
        self._request, self._id, self._model = request, id, model
        self._signature: str | None = None
        self._consumed = False

    def _take(self) -> None:
        if self._consumed:
            raise RuntimeError("chunk generator has been consumed")
        self._consumed = True

    def _settings(self, parsing: ParsingOptions) -> str:
        settings: dict[str, Any] = {
            "response_id": self._id,
            "model": self._model,
            "created": int(time.time()),
            "call_id_seed": time.time_ns(),
            "parsing": parsing._json(),
        }
        if self._signature is not None:
            settings["signature"] = self._signature
        return json.dumps(settings)

    def _moved(self) -> Any:
        self._take()
        made = type(self)(self._request, self._id, self._model)
        made._signature = self._signature
        return made


class _Chunk:
    """One event. It knows the stream it came from, whose accumulation is the response."""

    def __init__(self, stream: _codec.Stream, name: str | None, data: str) -> None:
        self._stream, self._name, self._data = stream, name, data
        self._consumed = False

    def to_json(self) -> str:
        return self._data


class ChatCompletionChunk(_Chunk):
    pass


class ResponsesStreamEvent(_Chunk):
    pass


class MessagesStreamEvent(_Chunk):
    pass


class ChatCompletionChunkGenerator(ChunkGenerator):
    _protocol = "chat"
    _chunk = ChatCompletionChunk


class ResponsesChunkGenerator(ChunkGenerator):
    _protocol = "responses"
    _chunk = ResponsesStreamEvent

    def with_namespace_tool_map(self, namespace_tool_map: dict[str, tuple[str, str]]) -> ResponsesChunkGenerator:
        """The request carries its own map here."""
        return self._moved()  # type: ignore[no-any-return]

    def with_echo(self, echo: ResponsesEcho) -> ResponsesChunkGenerator:
        """The request carries its own settings here."""
        return self._moved()  # type: ignore[no-any-return]


class MessagesChunkGenerator(ChunkGenerator):
    _protocol = "messages"
    _chunk = MessagesStreamEvent

    def with_signature(self, signature: str) -> MessagesChunkGenerator:
        made: MessagesChunkGenerator = self._moved()
        made._signature = signature
        return made


class StreamProcessor:
    def __init__(
        self, generator: ChunkGenerator, options: ParsingOptions, tokenizer: Tokenizer | None = None
    ) -> None:
        generator._take()
        self._chunk = generator._chunk
        self._has_tokenizer = tokenizer is not None
        native = generator._request._answered_with(generator._protocol, tokenizer)
        self._stream: _codec.Stream | None = _codec.Stream(native, generator._settings(options))
        self._is_complete = False

    @property
    def finished(self) -> bool:
        return self._is_complete and self._stream is not None

    def push(self, chunk: InferenceChunk) -> list[_Chunk]:
        stream = self._open()
        if self._is_complete:
            raise RuntimeError("stream processor has finished")
        try:
            if chunk.kind == "ready":
                usage = chunk.prompt_usage or PromptUsage()
                fingerprint = chunk.system_fingerprint
                events = stream.push_prompt(
                    usage.prompt_tokens, usage.prompt_cache_hit_tokens, fingerprint or "", fingerprint is not None
                )
            elif chunk.kind == "text":
                events = stream.push_text(chunk.content or "", chunk.token_count or 0, 0)
            elif chunk.kind == "tokens":
                if not self._has_tokenizer:
                    raise RuntimeError("a tokens chunk needs a tokenizer")
                logprobs = chunk._logprobs
                events = stream.push_ids(chunk.token_ids or [], logprobs or [], logprobs is not None, 0)
            else:
                events = stream.finish(_FINISH[chunk.finish_reason or InferenceFinishReason.Stop], 0)
        except (RuntimeError, ValueError) as error:
            self.close()
            raise RuntimeError(str(error)) from None
        self._is_complete = stream.is_finished(0)
        return self._chunks(stream, events)

    def finish(self) -> list[_Chunk]:
        stream = self._open()
        events = stream.finish(3, 0)
        self._is_complete = True
        return self._chunks(stream, events)

    def close(self) -> None:
        self._stream = None

    def _open(self) -> _codec.Stream:
        if self._stream is None:
            raise RuntimeError("stream processor is closed")
        return self._stream

    def _chunks(self, stream: _codec.Stream, events: list[tuple[str | None, str]]) -> list[_Chunk]:
        return [self._chunk(stream, name, data) for name, data in events]


class _Response:
    """The accumulation of the chunks of one stream."""

    def __init__(self, id: str, model: str, created: int, prompt_tokens: int, prompt_cache_hit_tokens: int) -> None:
        self._identity = {"id": id, "model": model, self._created_key: created}
        self._stream: _codec.Stream | None = None

    _created_key = "created"
    _empty: dict[str, Any] = {}

    def accumulate(self, chunk: _Chunk) -> None:
        if chunk._consumed:
            raise RuntimeError("protocol chunk has been consumed")
        chunk._consumed = True
        self._stream = chunk._stream

    def to_json(self) -> str:
        reply = dict(self._empty) if self._stream is None else json.loads(self._stream.final())
        for key, value in self._identity.items():
            if self._stream is None or key in reply:
                reply[key] = value
        return json.dumps(reply, ensure_ascii=False, separators=(",", ":"))

    @staticmethod
    def sse_event_name(chunk: _Chunk) -> str | None:
        return chunk._name

    @staticmethod
    def sse_done_data() -> str | None:
        return None


class ChatCompletionResponse(_Response):
    _empty = {"object": "chat.completion", "choices": [], "system_fingerprint": None}

    @staticmethod
    def sse_done_data() -> str | None:
        return "[DONE]"


class ResponsesResponse(_Response):
    _created_key = "created_at"


class MessagesResponse(_Response):
    pass
