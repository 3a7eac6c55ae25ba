# SPDX-License-Identifier: MIT
"""How the tokens of a request are picked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class SamplingParams:
    """Every member may be left alone. The same seed gives the same tokens, whatever else runs beside the request."""

    n: int = 1
    """Choices of one prompt; the prompt is computed once."""
    temperature: float = 1.0
    """0 takes the likeliest token."""
    top_p: float = 1.0
    top_k: int = 0
    """0 or -1: all tokens."""
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] | None = None
    """Added to the logits of these token ids."""
    seed: int | None = None
    seq_seed: int | None = None
    """The same as `seed`, by its name in DeepInfer."""
    max_tokens: int | None = 16
    """None: as many as the context allows."""
    min_tokens: int = 0
    stop: str | Sequence[str] | None = None
    """Texts that end the answer and are no part of it, wherever token borders fall."""
    stop_token_ids: Sequence[int] | None = None
    ignore_eos: bool = False
    bad_words: Sequence[str] | None = None
    """Texts that may not be said, as the tokenizer writes them at a beginning or behind a space."""
    logprobs: int | None = None
    """Log probabilities of the tokens, with so many alternatives each (0 to 20)."""
    response_format: Mapping[str, Any] | None = None
    """As in Chat Completions."""

    def to_request(self) -> dict[str, Any]:
        """The members of a Chat Completions body."""
        if self.seed is not None and self.seq_seed is not None and self.seed != self.seq_seed:
            raise ValueError("seed and seq_seed are two names of one value")
        body: dict[str, Any] = {"n": self.n, "temperature": self.temperature, "top_p": self.top_p}
        if self.top_k > 0:
            body["top_k"] = self.top_k
        body["min_p"] = self.min_p
        body["repetition_penalty"] = self.repetition_penalty
        body["presence_penalty"] = self.presence_penalty
        body["frequency_penalty"] = self.frequency_penalty
        if self.logit_bias:
            body["logit_bias"] = {str(token): float(bias) for token, bias in self.logit_bias.items()}
        seed = self.seed if self.seed is not None else self.seq_seed
        if seed is not None:
            body["seed"] = seed
        if self.max_tokens is not None:
            body["max_tokens"] = self.max_tokens
        if self.min_tokens:
            body["min_tokens"] = self.min_tokens
        if self.stop:
            body["stop"] = self.stop if isinstance(self.stop, str) else list(self.stop)
        if self.stop_token_ids:
            body["stop_token_ids"] = list(self.stop_token_ids)
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.bad_words:
            body["bad_words"] = list(self.bad_words)
        if self.logprobs is not None:
            body["logprobs"] = True
            body["top_logprobs"] = self.logprobs
        if self.response_format is not None:
            body["response_format"] = dict(self.response_format)
        return body
