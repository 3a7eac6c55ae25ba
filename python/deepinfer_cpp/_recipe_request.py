# SPDX-License-Identifier: MIT
"""Requests, conversion and rendering of deepseek-recipe 0.2.0 over the C ABI."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Sequence
from typing import Any

from . import _codec
from ._recipe_conversation import Conversation, ImageSource, conversation_of
from ._recipe_response import (
    ChatCompletionChunkGenerator,
    MessagesChunkGenerator,
    ResponsesChunkGenerator,
)
from ._recipe_tokens import (
    ModelVersion,
    ReasoningContentBehavior,
    SpecialToken,
    SpecialTokens,
    ThinkingInitialStage,
    WebSearchBehavior,
)
from .codec import Codec, Request
from .codec_error import CodecError
from .tokenizer import Tokenizer as _Tokenizer

_QUICK_TASKS = ("action", "query", "authority", "domain", "title", "read_url")


class ConversionError(Exception):
    """A request that is refused: the HTTP status and the body to answer with."""

    def __init__(self, message: str, status_code: int, body: str) -> None:
        super().__init__(message)
        self.status_code, self.body = status_code, body


class Tokenizer:
    """A tokenizer.json. Unlike `deepinfer_cpp.Tokenizer`, `encode` matches added tokens, as the original's does."""

    def __init__(self, loaded: _Tokenizer) -> None:
        self._loaded = loaded

    @staticmethod
    def from_file(path: str | os.PathLike[str]) -> Tokenizer:
        return Tokenizer(_Tokenizer(path))

    @staticmethod
    def from_str(text: str) -> Tokenizer:
        return Tokenizer(_Tokenizer.from_json(text))

    def encode(self, text: str) -> list[int]:
        return self._loaded.encode(text, with_added=True)


@functools.cache
def _bare_tokenizer() -> _Tokenizer:
    """Bytes and control tokens only: enough to convert and render, where no tokenizer is attached."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}
    spellings = [token.value for token in SpecialToken] + [f"<｜{task}｜>" for task in _QUICK_TASKS]
    added = [
        {"id": 256 + i, "content": s, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
         "special": True}
        for i, s in enumerate(spellings)
    ]  # fmt: skip
    patterns = (
        "\\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
        "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    )
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    splits = [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
        for pattern in patterns
    ]
    return _Tokenizer.from_json(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": added,
                "normalizer": {"type": "Sequence", "normalizers": []},
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, byte_level]},
                "post_processor": {**byte_level, "trim_offsets": False},
                "decoder": byte_level,
                "model": {
                    "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                    "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                    "vocab": {alphabet[b]: b for b in range(256)}, "merges": [],
                },
            }
        )
    )  # fmt: skip


@functools.cache
def _bare_codec() -> Codec:
    return Codec(_bare_tokenizer(), compat="recipe")


class ConversionOptions:
    def __init__(
        self,
        *,
        default_thinking_mode: bool = True,
        reasoning_content_behavior: ReasoningContentBehavior = ReasoningContentBehavior.FillEmpty,
        responses_web_search: WebSearchBehavior = WebSearchBehavior.Drop,
        messages_web_search: WebSearchBehavior = WebSearchBehavior.Reject,
        thinking_max_tokens_upper_bound: int = 393216,
        non_thinking_max_tokens_upper_bound: int = 393216,
    ) -> None:
        self.default_thinking_mode = default_thinking_mode
        self.reasoning_content_behavior = reasoning_content_behavior
        self.responses_web_search = responses_web_search
        self.messages_web_search = messages_web_search
        self.thinking_max_tokens_upper_bound = thinking_max_tokens_upper_bound
        self.non_thinking_max_tokens_upper_bound = non_thinking_max_tokens_upper_bound
        self.model_versions_by_name = {
            "DeepSeek-V4-Pro": ModelVersion.DeepseekV4Pro,
            "DeepSeek-V4.1-Flash": ModelVersion.DeepseekV41Flash,
        }
        self.special_tokens = SpecialTokens()

    def _with(self, name: str, value: Any) -> ConversionOptions:
        made = ConversionOptions.__new__(ConversionOptions)
        vars(made).update(vars(self))
        setattr(made, name, value)
        return made

    def with_default_thinking_mode(self, default_thinking_mode: bool) -> ConversionOptions:
        return self._with("default_thinking_mode", default_thinking_mode)

    def with_reasoning_content_behavior(
        self, reasoning_content_behavior: ReasoningContentBehavior
    ) -> ConversionOptions:
        return self._with("reasoning_content_behavior", reasoning_content_behavior)

    def with_responses_web_search(self, responses_web_search: WebSearchBehavior) -> ConversionOptions:
        return self._with("responses_web_search", responses_web_search)

    def with_messages_web_search(self, messages_web_search: WebSearchBehavior) -> ConversionOptions:
        return self._with("messages_web_search", messages_web_search)

    def with_special_tokens(self, special_tokens: SpecialTokens) -> ConversionOptions:
        return self._with("special_tokens", special_tokens)

    def with_model_alias(self, model: str, model_version: ModelVersion) -> ConversionOptions:
        return self._with("model_versions_by_name", {**self.model_versions_by_name, model: model_version})

    def with_model_versions_by_name(self, model_versions_by_name: dict[str, ModelVersion]) -> ConversionOptions:
        return self._with("model_versions_by_name", dict(model_versions_by_name))

    def with_thinking_max_tokens_upper_bound(self, thinking_max_tokens_upper_bound: int) -> ConversionOptions:
        return self._with("thinking_max_tokens_upper_bound", thinking_max_tokens_upper_bound)

    def with_non_thinking_max_tokens_upper_bound(self, non_thinking_max_tokens_upper_bound: int) -> ConversionOptions:
        return self._with("non_thinking_max_tokens_upper_bound", non_thinking_max_tokens_upper_bound)

    def _codec(self, tokenizer: _Tokenizer) -> Codec:
        return Codec(
            tokenizer,
            compat="recipe",
            options={
                "default_thinking_mode": self.default_thinking_mode,
                "reasoning_content_behavior": self.reasoning_content_behavior.value,
                "responses_web_search": self.responses_web_search.value,
                "messages_web_search": self.messages_web_search.value,
                "thinking_max_tokens_upper_bound": self.thinking_max_tokens_upper_bound,
                "non_thinking_max_tokens_upper_bound": self.non_thinking_max_tokens_upper_bound,
            },
            models={name: version.value for name, version in self.model_versions_by_name.items()},
        )


class OutputConstraint:
    def __init__(self, kind: str, schema: str) -> None:
        self.kind, self.schema = kind, schema


class InferenceOptions:
    def __init__(self, record: dict[str, Any] | None = None) -> None:
        record = record or {}
        self.max_tokens: int | None = record.get("max_tokens")
        self.temperature: float | None = record.get("temperature")
        self.top_p: float | None = record.get("top_p")
        self.logprobs: bool = record.get("logprobs", False)
        self.top_logprobs: int | None = record.get("top_logprobs")
        self.seed: int | None = record.get("seed")
        constraint = record.get("constraint")
        self.output_constraint = None if constraint is None else OutputConstraint(**constraint)


class ParsingOptions:
    def __init__(
        self,
        *,
        parse_tool_calls: bool = True,
        starts_in_tool_calls: bool = False,
        parse_json_output: bool = False,
        thinking_initial_stage: ThinkingInitialStage | None = None,
        stop_sequences: Sequence[str] | None = None,
        special_tokens: SpecialTokens | None = None,
    ) -> None:
        self.parse_tool_calls, self.starts_in_tool_calls = parse_tool_calls, starts_in_tool_calls
        self.parse_json_output, self.thinking_initial_stage = parse_json_output, thinking_initial_stage
        self.stop_sequences = list(stop_sequences or [])
        self.special_tokens = special_tokens or SpecialTokens()

    def _json(self) -> dict[str, Any]:
        stage = self.thinking_initial_stage
        return {
            "parse_tool_calls": self.parse_tool_calls,
            "starts_in_tool_calls": self.starts_in_tool_calls,
            "parse_json_output": self.parse_json_output,
            "thinking_initial_stage": None if stage is None else stage.value,
            "stop_sequences": self.stop_sequences,
        }


class ConversationRequest:
    """A converted request, or one built around a conversation."""

    def __init__(self, conversation: Conversation, model_version: ModelVersion) -> None:
        self._codec, self._options = _bare_codec(), ConversionOptions()
        self._body: tuple[str, bytes] | None = None
        self._native = _native_of(self._codec, "chat", model_version, conversation)
        self._fill(conversation, InferenceOptions(), ParsingOptions(), model_version, False)

    def _fill(
        self,
        conversation: Conversation,
        inference: InferenceOptions,
        parsing: ParsingOptions,
        version: ModelVersion,
        stream: bool,
    ) -> None:
        self.conversation, self.inference_options, self.parsing_options = conversation, inference, parsing
        self.model_version, self.stream = version, stream

    def _answered_with(self, protocol: str, tokenizer: Tokenizer | None) -> _codec.Request:
        """The request read again with the tokenizer of the answer, whose ids the stream is to understand."""
        codec = self._codec if tokenizer is None else self._codec_of(tokenizer._loaded)
        if self._body is None:
            return _native_of(codec, protocol, self.model_version, self.conversation)
        own, body = self._body
        if own != protocol:
            raise ValueError(f"this request is of the protocol {own}, its answer cannot be written as {protocol}")
        return _codec.Request(codec._native, protocol, body)

    def _codec_of(self, tokenizer: _Tokenizer) -> Codec:
        return self._options._codec(tokenizer)

    def resolve_max_tokens(self, prompt_tokens: int, context_limit: int) -> int:
        try:
            return self._native.max_tokens(prompt_tokens, context_limit)
        except CodecError as error:
            error_type = "invalid_request_error"
            body = {"error": {"message": str(error), "type": error_type, "param": None, "code": error_type}}
            raise ConversionError(str(error), 400, json.dumps(body, separators=(",", ":"))) from None


class _ProtocolRequest:
    _protocol: Any = ""

    def __init__(self, body: bytes | str | dict[str, Any]) -> None:
        if isinstance(body, dict):
            body = json.dumps(body, ensure_ascii=False)
        self._body = body.encode() if isinstance(body, str) else body
        self._consumed = False
        refused = Request(_bare_codec(), self._protocol, self._body)
        error = refused.result().get("error", {})
        if error.get("stage") == "parse":
            raise ValueError(error["message"])
        value = json.loads(self._body)
        self.model: str = value["model"]

    def convert(self, options: ConversionOptions) -> ConversationRequest:
        if self._consumed:
            raise RuntimeError("protocol request has been consumed")
        self._consumed = True
        codec = options._codec(_bare_tokenizer())
        request = Request(codec, self._protocol, self._body)
        result = request.result()
        if request.refused:
            raise ConversionError(result["error"]["message"], request.http_status, request.error_body)
        parsing = result["parsing"]
        stage = parsing.pop("thinking_initial_stage")
        made = ConversationRequest.__new__(ConversationRequest)
        made._codec, made._options, made._native = codec, options, request._native
        made._body = (self._protocol, self._body)
        made._fill(
            conversation_of(json.loads(request._native.conversation())),
            InferenceOptions(result["inference"]),
            ParsingOptions(thinking_initial_stage=None if stage is None else ThinkingInitialStage(stage), **parsing),
            ModelVersion(result["version"]),
            result["stream"],
        )
        return made


class ChatCompletionRequest(_ProtocolRequest):
    _protocol = "chat"

    @staticmethod
    def chunk_generator(request: ConversationRequest, id: str, model: str) -> ChatCompletionChunkGenerator:
        return ChatCompletionChunkGenerator(request, id, model)


class ResponsesEcho:
    """Carried by the request itself here: `with_echo` changes nothing."""


class ResponsesRequest(_ProtocolRequest):
    _protocol = "responses"

    def namespace_tool_map(self, options: ConversionOptions) -> dict[str, tuple[str, str]]:
        """Empty here: the request itself carries the map to its generator."""
        return {}

    def echo(self) -> ResponsesEcho:
        return ResponsesEcho()

    @staticmethod
    def chunk_generator(request: ConversationRequest, id: str, model: str) -> ResponsesChunkGenerator:
        return ResponsesChunkGenerator(request, id, model)


class MessagesRequest(_ProtocolRequest):
    _protocol = "messages"

    @staticmethod
    def chunk_generator(request: ConversationRequest, id: str, model: str) -> MessagesChunkGenerator:
        return MessagesChunkGenerator(request, id, model)


def _native_of(codec: Codec, protocol: str, version: ModelVersion, conversation: Conversation) -> _codec.Request:
    text = json.dumps(conversation._json(), ensure_ascii=False).encode()
    return _codec.Request.from_conversation(codec._native, protocol, version.value, text)


class RenderedPrompt:
    def __init__(self, native: _codec.Request, sources: list[ImageSource]) -> None:
        record = json.loads(native.json())
        self.prompt = native.prompt
        data = self.prompt.encode()
        starts, count = [], 0  # code points before each byte
        for byte in data:
            count += (byte & 0xC0) != 0x80
            starts.append(count - 1)
        starts.append(count)
        self.special_ranges = [(starts[a], starts[b]) for a, b in record["special"]]
        self.image_sources = [sources[int(image["path"])] for image in record["images"]]


class _Encoding:
    _version = ModelVersion.DeepseekV41Flash

    def __init__(self) -> None:
        self._tokenizer: Tokenizer | None = None
        self._codec = _bare_codec()

    def with_tokenizer(self, tokenizer: Tokenizer) -> Any:
        made = type(self)()
        made._tokenizer = tokenizer
        made._codec = Codec(tokenizer._loaded, compat="recipe")
        return made

    def with_special_tokens(self, special_tokens: SpecialTokens) -> Any:
        made = type(self)()
        made._tokenizer, made._codec = self._tokenizer, self._codec
        return made

    def render_conversation(self, conversation: Conversation) -> RenderedPrompt:
        native = _native_of(self._codec, "chat", self._version, conversation)
        return RenderedPrompt(native, conversation._images())

    def encode(self, conversation: Conversation) -> list[int]:
        if self._tokenizer is None:
            raise RuntimeError("no tokenizer is attached to the encoding")
        return _native_of(self._codec, "chat", self._version, conversation).ids


class DeepseekV4Encoding(_Encoding):
    _version = ModelVersion.DeepseekV4Pro


class DeepseekV41Encoding(_Encoding):
    _version = ModelVersion.DeepseekV41Flash
