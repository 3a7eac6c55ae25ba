# SPDX-License-Identifier: MIT
"""Conversations and messages of deepseek-recipe 0.2.0, and their JSON form in the C ABI."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._recipe_tokens import SpecialToken

_DETAILS = ("low", "high", "original", "auto")
_IMAGE = SpecialToken.Image.value


class ToolCall:
    def __init__(self, id: str, name: str, arguments: str) -> None:
        self.id, self.name, self.arguments = id, name, arguments


class ToolDefinition:
    def __init__(
        self,
        name: str,
        description: str | None = None,
        parameters: Any = None,
        strict: bool | None = None,
        defer_loading: bool = False,
    ) -> None:
        self.name, self.description = name, description
        self.parameters = {} if parameters is None else parameters
        self.strict, self.defer_loading = strict, defer_loading


class ImageSource:
    kind = ""

    def __init__(self, value: Any, detail: str, path: str) -> None:
        if detail not in _DETAILS:
            raise ValueError(f"detail: expected one of {', '.join(_DETAILS)}, got {detail!r}")
        self._value, self.detail, self.path = value, detail, path

    @property
    def data_url(self) -> str | None:
        return self._value if self.kind == "data_url" else None

    @property
    def url(self) -> str | None:
        return self._value if self.kind == "url" else None

    @property
    def data(self) -> bytes | None:
        return self._value if self.kind == "bytes" else None


class DataUrlImageSource(ImageSource):
    kind = "data_url"

    def __init__(self, data_url: str, detail: str = "high", *, path: str = "") -> None:
        super().__init__(data_url, detail, path)


class UrlImageSource(ImageSource):
    kind = "url"

    def __init__(self, url: str, detail: str = "high", *, path: str = "") -> None:
        super().__init__(url, detail, path)


class BytesImageSource(ImageSource):
    kind = "bytes"

    def __init__(self, data: bytes, detail: str = "high", *, path: str = "") -> None:
        super().__init__(data, detail, path)


class Message:
    role = ""
    reasoning_content: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    prefix = False

    def __init__(
        self, content: str, image_sources: Sequence[ImageSource] | None = None, image_token: str | None = None
    ) -> None:
        if image_token == "":
            raise ValueError("image_token is empty")
        self.content = content
        self.image_sources = list(image_sources or [])
        self._image_token = _IMAGE if image_token is None else image_token

    def _json(self) -> dict[str, Any]:
        parts = self.content.split(self._image_token, len(self.image_sources))
        text, images = parts[0], []
        for source, part in zip(self.image_sources, parts[1:]):
            offset = len(text.encode())
            images.append({"offset": offset, "kind": source.kind, "detail": source.detail, "path": source.path})
            text += part
        out: dict[str, Any] = {"role": self.role, "content": text}
        if images:
            out["images"] = images
        return out


class SystemMessage(Message):
    role = "system"

    def __init__(
        self,
        content: str,
        image_sources: Sequence[ImageSource] | None = None,
        tools: Sequence[ToolDefinition] | None = None,
        *,
        image_token: str | None = None,
    ) -> None:
        super().__init__(content, image_sources, image_token)
        self.tools = None if tools is None else list(tools)

    def _json(self) -> dict[str, Any]:
        out = super()._json()
        if self.tools is not None:
            out["tools"] = [vars(tool) for tool in self.tools]
        return out


class UserMessage(Message):
    role = "user"

    def __init__(
        self, content: str, image_sources: Sequence[ImageSource] | None = None, *, image_token: str | None = None
    ) -> None:
        super().__init__(content, image_sources, image_token)


class AssistantMessage(Message):
    role = "assistant"

    def __init__(
        self,
        content: str,
        reasoning_content: str | None = None,
        tool_calls: Sequence[ToolCall] | None = None,
        prefix: bool = False,
    ) -> None:
        super().__init__(content)
        self.reasoning_content = reasoning_content
        self.tool_calls = None if tool_calls is None else list(tool_calls)
        self.prefix = prefix

    def _json(self) -> dict[str, Any]:
        out = super()._json()
        if self.reasoning_content is not None:
            out["reasoning"] = self.reasoning_content
        if self.tool_calls is not None:
            out["tool_calls"] = [vars(call) for call in self.tool_calls]
        out["prefix"] = self.prefix
        return out


class ToolMessage(Message):
    role = "tool"

    def __init__(
        self,
        content: str,
        tool_call_id: str | None = None,
        image_sources: Sequence[ImageSource] | None = None,
        *,
        image_token: str | None = None,
    ) -> None:
        super().__init__(content, image_sources, image_token)
        self.tool_call_id = tool_call_id

    def _json(self) -> dict[str, Any]:
        return {**super()._json(), "tool_call_id": self.tool_call_id}


class LatestReminderMessage(Message):
    role = "latest_reminder"

    def __init__(self, content: str) -> None:
        super().__init__(content)


class Conversation:
    def __init__(
        self,
        messages: Sequence[Message] | None = None,
        *,
        thinking_mode: bool = True,
        tools: Sequence[ToolDefinition] | None = None,
        tool_choice: str = "auto",
        reasoning_effort: str | None = None,
        response_format: str = "text",
        response_schema: Any | None = None,
        response_regex: str | None = None,
    ) -> None:
        _expect("tool_choice", tool_choice, ("auto", "none", "required"))
        _expect("reasoning_effort", reasoning_effort, (None, "low", "high", "xhigh", "max"))
        _expect("response_format", response_format, ("text", "json_object"))
        given = (response_schema is not None) + (response_regex is not None) + (response_format == "json_object")
        if given > 1:
            raise ValueError("response_format, response_schema and response_regex exclude one another")
        self.messages = list(messages or [])
        self.thinking_mode = thinking_mode
        self.tools = list(tools or [])
        self.tool_choice = tool_choice
        self.reasoning_effort = reasoning_effort
        self.response_schema, self.response_regex = response_schema, response_regex
        self.response_format = (
            "json_schema" if response_schema is not None else "regex" if response_regex is not None else response_format
        )
        self._raw: list[dict[str, Any]] | None = None  # messages as the C ABI gave them

    def _json(self) -> dict[str, Any]:
        response_format: dict[str, Any] = {"kind": self.response_format}
        if self.response_schema is not None:
            response_format["schema"] = self.response_schema
        if self.response_regex is not None:
            response_format["regex"] = self.response_regex
        given = self._raw if self._raw is not None else [message._json() for message in self.messages]
        numbers = iter(range(1 << 30))
        messages = [
            # Paths are the images' places in self.messages, so that those of a prompt can be told apart.
            {**message, "images": [{**image, "path": str(next(numbers))} for image in message.get("images", [])]}
            for message in given
        ]
        return {
            "messages": messages,
            "thinking": self.thinking_mode,
            "effort": self.reasoning_effort,
            "tools": [vars(tool) for tool in self.tools],
            "tool_choice": self.tool_choice,
            "response_format": response_format,
        }


    def _images(self) -> list[ImageSource]:
        """Those that have a placeholder, in the order of the messages."""
        return [
            image
            for message in self.messages
            for image in message.image_sources[: message.content.count(message._image_token)]
        ]


def _expect(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name}: expected one of {', '.join(map(str, allowed))}, got {value!r}")


def conversation_of(value: dict[str, Any]) -> Conversation:
    """The conversation that deepinfer_request_conversation gave."""
    kind = value["response_format"]["kind"]
    out = Conversation(
        [_message_of(message) for message in value["messages"]],
        thinking_mode=value["thinking"],
        tools=[ToolDefinition(**tool) for tool in value["tools"]],
        tool_choice=value["tool_choice"],
        reasoning_effort=value["effort"],
        response_format=kind if kind == "json_object" else "text",
    )
    out.response_format = kind
    out.response_schema = value["response_format"].get("schema")
    out.response_regex = value["response_format"].get("regex")
    out._raw = value["messages"]
    return out


def _message_of(value: dict[str, Any]) -> Message:
    role, content = value["role"], value["content"]
    sources: list[ImageSource] = []
    data, text, begin = content.encode(), "", 0
    for image in value.get("images", []):
        text += data[begin : image["offset"]].decode() + _IMAGE
        begin = image["offset"]
        kind = {"data_url": DataUrlImageSource, "url": UrlImageSource}.get(image["kind"])
        if kind is None:
            sources.append(BytesImageSource(b"", image["detail"], path=image["path"]))
        else:
            sources.append(kind(image["value"], image["detail"], path=image["path"]))
    text += data[begin:].decode()
    if role == "system":
        tools = value.get("tools")
        return SystemMessage(text, sources, None if tools is None else [ToolDefinition(**tool) for tool in tools])
    if role == "assistant":
        calls = value.get("tool_calls")
        calls = None if calls is None else [ToolCall(**call) for call in calls]
        return AssistantMessage(text, value.get("reasoning"), calls, value.get("prefix", False))
    if role == "tool":
        return ToolMessage(text, value.get("tool_call_id"), sources)
    if role == "latest_reminder":
        return LatestReminderMessage(text)
    return UserMessage(text, sources)
