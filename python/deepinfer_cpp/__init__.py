# SPDX-License-Identifier: MIT
"""DeepSeek-V4.1-Flash from Python: `LLM` runs a model in this process; `Codec` turns requests of three protocols into token
ids and token ids into their streams.

`deepinfer_cpp.recipe` has the public names of deepseek-recipe 0.2.0 on top of the codec. The engine is loaded with the
first use of `LLM`; the codec needs nothing of it.
"""

from typing import TYPE_CHECKING, Any

from . import _codec
from .codec import Codec, Event, Request, Stream, Usage
from .codec_error import CodecError
from .engine_error import EngineError, RequestRefused
from .outputs import CompletionOutput, RequestOutput, TokenLogprob
from .sampling_params import SamplingParams
from .tokenizer import Detokenizer, Tokenizer

if TYPE_CHECKING:
    from .llm import LLM

__version__ = _codec.version

__all__ = [
    "LLM",
    "Codec",
    "CodecError",
    "CompletionOutput",
    "Detokenizer",
    "EngineError",
    "Event",
    "Request",
    "RequestOutput",
    "RequestRefused",
    "SamplingParams",
    "Stream",
    "TokenLogprob",
    "Tokenizer",
    "Usage",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "LLM":
        from .llm import LLM

        return LLM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
