# SPDX-License-Identifier: MIT
"""The DeepSeek V4 and V4.1 chat codec: requests of three protocols to token ids, token ids to three streams.

`deepinfer_cpp.recipe` has the public names of deepseek-recipe 0.2.0 on top of it.
"""

from . import _codec
from .codec import Codec, Event, Request, Stream, Usage
from .codec_error import CodecError
from .tokenizer import Detokenizer, Tokenizer

__version__ = _codec.version

__all__ = [
    "Codec",
    "CodecError",
    "Detokenizer",
    "Event",
    "Request",
    "Stream",
    "Tokenizer",
    "Usage",
    "__version__",
]
