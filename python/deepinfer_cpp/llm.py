# SPDX-License-Identifier: MIT
"""A model in this process: many prompts at once, answers as lists."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, cast

from . import _engine
from ._progress_bar import ProgressBar
from .engine_error import RequestRefused
from .outputs import RequestOutput, request_output
from .sampling_params import SamplingParams

Prompt = str | Sequence[int] | Mapping[str, Any]
Messages = Sequence[Mapping[str, Any]]


def _is_one_prompt(prompts: Any) -> bool:
    if isinstance(prompts, (str, Mapping)):
        return True
    return len(prompts) > 0 and isinstance(prompts[0], int)


def _prompt_body(prompt: Prompt) -> dict[str, Any]:
    if isinstance(prompt, str):
        return {"prompt": prompt}
    if isinstance(prompt, Mapping):
        if set(prompt) == {"prompt_token_ids"}:
            return {"prompt_token_ids": list(prompt["prompt_token_ids"])}
        if set(prompt) == {"prompt"}:
            return {"prompt": prompt["prompt"]}
        raise ValueError("a prompt is a text, token ids, {'prompt': text} or {'prompt_token_ids': ids}")
    return {"prompt_token_ids": [int(token) for token in prompt]}


class LLM:
    """A loaded model. One thread at a time; close it, or use it in a `with` statement, to give its memory back."""

    def __init__(
        self,
        model: str | os.PathLike[str] = "mini",
        *,
        max_model_len: int | None = None,
        max_num_seqs: int = 8,
        num_threads: int = 0,
        kv_tokens: int | None = None,
        host_kv_tokens: int = 0,
        speculative: bool = True,
        replay: str = "fast",
        deterministic: bool = False,
        seed: int = 0,
        expert_memory: str = "all",
        expert_parallel_size: int = 1,
        data_parallel_size: int = 1,
        context_parallel_size: int = 1,
        gpu_memory_utilization: float | None = None,
    ) -> None:
        """`model`: a checkpoint folder, or "mini", the small model inside the library.

        `max_model_len` tokens of a prompt with its answer, `max_num_seqs` sequences at once, `kv_tokens` kept in memory
        and `host_kv_tokens` beyond that, `replay` "fast", "exact" or "off" behind a prefix hit; `deterministic` is exact
        replay: every answer then depends on its request alone. `seed` is for requests that bring none.
        `expert_memory`: "all", or GB ("24") or "free" to keep only that much of the routed experts in memory and to read
        the others from the files when a token needs them.

        The parallel sizes are accepted as 1; `gpu_memory_utilization` means nothing without a GPU."""
        for name, size in (
            ("expert_parallel_size", expert_parallel_size),
            ("data_parallel_size", data_parallel_size),
            ("context_parallel_size", context_parallel_size),
        ):
            if size not in (0, 1):
                raise ValueError(f"{name} is {size}: this build runs one rank")
        if gpu_memory_utilization is not None:
            warnings.warn("gpu_memory_utilization has no meaning here; use kv_tokens", stacklevel=2)
        settings: dict[str, Any] = {
            "model": os.fspath(model),
            "threads": num_threads,
            "sequences": max_num_seqs,
            "host_kv_tokens": host_kv_tokens,
            "drafts": speculative,
            "replay": "exact" if deterministic else replay,
            "seed": seed,
            "expert_memory": expert_memory,
        }
        if max_model_len is not None:
            settings["context"] = max_model_len
        if kv_tokens is not None:
            settings["kv_tokens"] = kv_tokens
        self._native: _engine.Engine | None = _engine.Engine(json.dumps(settings))

    def close(self) -> None:
        """Gives the model's memory back. The object cannot be used any more."""
        if self._native is not None:
            self._native.close()
            self._native = None

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def describe(self) -> dict[str, Any]:
        """Sizes and kernels of the engine."""
        return cast("dict[str, Any]", json.loads(self._engine().describe()))

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        progress: bool = True,
    ) -> list[RequestOutput]:
        """Continues prompts as they are, without a template: texts, or lists of token ids. One answer per prompt, in
        their order. `sampling_params`: one for all, or one each. Raises `RequestRefused` for a prompt that cannot run,
        when the others are done."""
        listed = cast("list[Prompt]", [prompts] if _is_one_prompt(prompts) else list(cast("Sequence[Prompt]", prompts)))
        bodies = [_prompt_body(prompt) for prompt in listed]
        texts = [body.get("prompt") for body in bodies]
        return self._run(bodies, texts, sampling_params, progress)

    def chat(
        self,
        messages: Messages | Sequence[Messages],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        thinking: bool = False,
        progress: bool = True,
    ) -> list[RequestOutput]:
        """Answers conversations in the form of Chat Completions: one list of messages, or several. Images are `image_url`
        parts with data: URLs."""
        first = messages[0] if len(messages) > 0 else None
        conversations = cast(
            "list[Messages]", [messages] if first is None or isinstance(first, Mapping) else list(messages)
        )
        bodies: list[dict[str, Any]] = []
        for conversation in conversations:
            body: dict[str, Any] = {"messages": [dict(message) for message in conversation]}
            body["thinking"] = {"type": "enabled" if thinking else "disabled"}
            if tools:
                body["tools"] = [dict(tool) for tool in tools]
            bodies.append(body)
        return self._run(bodies, [None] * len(bodies), sampling_params, progress)

    def _engine(self) -> _engine.Engine:
        if self._native is None:
            raise RuntimeError("this LLM has been closed")
        return self._native

    def _run(
        self,
        bodies: list[dict[str, Any]],
        prompts: list[Any],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None,
        progress: bool,
    ) -> list[RequestOutput]:
        engine = self._engine()
        if sampling_params is None or isinstance(sampling_params, SamplingParams):
            params = [sampling_params or SamplingParams()] * len(bodies)
        else:
            params = list(sampling_params)
            if len(params) != len(bodies):
                raise ValueError(f"{len(params)} sampling parameters for {len(bodies)} prompts")
        # All of them are checked before the first one runs.
        texts = [json.dumps({**body, **one.to_request()}) for body, one in zip(bodies, params, strict=True)]
        _, _, prompt_before, output_before = engine.progress()
        ids = [engine.submit(text) for text in texts]
        results = self._finish(ids, prompt_before, output_before, progress)
        outputs = []
        for request_id, prompt in zip(ids, prompts, strict=True):
            result = results[request_id]
            if "error" in result:
                raise RequestRefused(result["error"], result["param"])
            outputs.append(request_output(result, prompt))
        return outputs

    def _finish(
        self, ids: list[int], prompt_before: int, output_before: int, progress: bool
    ) -> dict[int, dict[str, Any]]:
        engine = self._engine()
        results: dict[int, dict[str, Any]] = {}
        bar = ProgressBar("generate", len(ids)) if progress else None
        try:
            runs = True
            while runs:
                runs = engine.step()
                while (text := engine.take()) is not None:
                    result = json.loads(text)
                    results[result["id"]] = result
                if bar is not None:
                    _, _, prompt_tokens, output_tokens = engine.progress()
                    bar.update(
                        len(results), prompt_tokens - prompt_before, output_tokens - output_before, force=not runs
                    )
        except BaseException:  # Ctrl-C above all: nothing goes on behind the caller's back
            self._abandon(ids, results)
            raise
        finally:
            if bar is not None:
                bar.close()
        return results

    def _abandon(self, ids: list[int], results: dict[int, dict[str, Any]]) -> None:
        engine = self._engine()
        for request_id in ids:
            if request_id not in results:
                engine.cancel(request_id)
        while engine.step():
            pass
        while engine.take() is not None:
            pass
