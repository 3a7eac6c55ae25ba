# SPDX-License-Identifier: MIT
"""What comes out of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class TokenLogprob:
    """One picked token and its likeliest alternatives, natural logarithms."""

    token_id: int
    logprob: float
    top: dict[int, float] = field(default_factory=dict)


@dataclass
class CompletionOutput:
    """One choice. `finish_reason`: "stop", "length", "tool_calls" or "abort"."""

    index: int
    text: str
    token_ids: list[int]
    finish_reason: str
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    logprobs: list[TokenLogprob] | None = None
    explain: dict[str, Any] = field(default_factory=dict)
    """What happened on the way: queue, prefix hit, chunks, drafts, preemptions, bytes, and the values that were used."""

    @property
    def cumulative_logprob(self) -> float | None:
        """The logarithm of the probability of the whole choice, where log probabilities were asked for."""
        return None if self.logprobs is None else sum(token.logprob for token in self.logprobs)


@dataclass
class RequestOutput:
    """The answer to one prompt."""

    request_id: int
    prompt: str | None
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int = 0


def _choice(value: dict[str, Any]) -> CompletionOutput:
    logprobs = None
    if "logprobs" in value:
        logprobs = [
            TokenLogprob(one["token_id"], one["logprob"], {top["token_id"]: top["logprob"] for top in one["top"]})
            for one in value["logprobs"]
        ]
    return CompletionOutput(
        index=value["index"],
        text=value["text"],
        token_ids=value["token_ids"],
        finish_reason=value["finish_reason"],
        reasoning=value["reasoning_content"],
        tool_calls=value["tool_calls"],
        logprobs=logprobs,
        explain=value["explain"],
    )


def request_output(result: dict[str, Any], prompt: str | None) -> RequestOutput:
    """From a result of the engine."""
    return RequestOutput(
        request_id=result["id"],
        prompt=prompt,
        prompt_token_ids=result["prompt_token_ids"],
        outputs=[_choice(choice) for choice in result["choices"]],
        num_cached_tokens=result["cached_tokens"],
    )
