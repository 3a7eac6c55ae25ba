# SPDX-License-Identifier: MIT
"""Enumerations and special tokens of deepseek-recipe 0.2.0."""

from __future__ import annotations

import enum

IMAGE_SPECIAL_TOKEN_ID = 129264


class SpecialToken(enum.Enum):
    """A kind of special token; the value is its default spelling."""

    Bos = "<｜begin▁of▁sentence｜>"
    Eos = "<｜end▁of▁sentence｜>"
    ThinkingStart = "<think>"
    ThinkingEnd = "</think>"
    System = "<｜System｜>"
    User = "<｜User｜>"
    Assistant = "<｜Assistant｜>"
    LatestReminder = "<｜latest_reminder｜>"
    Dsml = "｜DSML｜"
    Image = "<｜image｜>"
    Ref = "<｜ref｜>"
    RefEnd = "<｜/ref｜>"
    Box = "<｜box｜>"
    BoxEnd = "<｜/box｜>"
    Point = "<｜point｜>"
    PointEnd = "<｜/point｜>"
    Polygon = "<｜polygon｜>"
    PolygonEnd = "<｜/polygon｜>"

    def default_str(self) -> str:
        return self.value


class SpecialTokens:
    """The spelling of each special token. Only the default spellings are supported: another one is refused here."""

    def __init__(self, **spellings: str | None) -> None:
        by_name = {_snake(token.name): token for token in SpecialToken}
        for name, spelling in spellings.items():
            if name not in by_name:
                raise TypeError(f"unexpected keyword argument {name!r}")
            if spelling is not None and spelling != by_name[name].value:
                raise NotImplementedError(f"{name}: only the default spelling {by_name[name].value!r} is supported")

    def token(self, token: SpecialToken) -> str:
        return token.value


def _snake(name: str) -> str:
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")


class ModelVersion(enum.Enum):
    DeepseekV4Pro = "v4"
    DeepseekV41Flash = "v41"


class ReasoningContentBehavior(enum.Enum):
    Reject = "Reject"
    FillEmpty = "FillEmpty"


class WebSearchBehavior(enum.Enum):
    Drop = "Drop"
    Reject = "Reject"


class InferenceFinishReason(enum.Enum):
    Stop = "stop"
    Length = "length"
    ContentFilter = "content_filter"


class ThinkingInitialStage(enum.Enum):
    ReasoningStart = "ReasoningStart"
    ReasoningContinuation = "ReasoningContinuation"
    ContentContinuation = "ContentContinuation"

    def starts_in_reasoning(self) -> bool:
        return self is not ThinkingInitialStage.ContentContinuation
