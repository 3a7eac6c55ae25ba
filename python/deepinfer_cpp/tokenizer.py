# SPDX-License-Identifier: MIT
"""Text to token ids and back."""

from __future__ import annotations

import os
from collections.abc import Sequence

from . import _codec


class Tokenizer:
    """A loaded tokenizer. Immutable: any number of threads may use one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Loads a tokenizer.json, a tokenizer.json.gz, or a checkpoint folder that holds one of them."""
        self._native = _codec.Tokenizer(os.fspath(path))

    @classmethod
    def from_json(cls, text: str | bytes) -> Tokenizer:
        """Makes a tokenizer from the contents of a tokenizer.json."""
        made = cls.__new__(cls)
        made._native = _codec.Tokenizer.from_json(text.encode() if isinstance(text, str) else text)
        return made

    @property
    def vocab_size(self) -> int:
        """All ids are in range(vocab_size)."""
        return self._native.vocab_size

    def encode(self, text: str, *, with_added: bool = False) -> list[int]:
        """The ids of plain text, in which `<think>` is ordinary text. `with_added` matches added tokens first: for texts
        you wrote yourself only, never for what users or tools wrote."""
        return self._native.encode(text, with_added)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids, control tokens by their spelling, invalid UTF-8 as U+FFFD."""
        return self._native.decode(ids)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token, not always whole UTF-8; empty outside the vocabulary."""
        return self._native.token_bytes(token_id)

    def is_control(self, token_id: int) -> bool:
        """Whether the id is an added token, which plain text never encodes to."""
        return self._native.is_control(token_id)

    def find_control(self, spelling: str) -> int | None:
        """The id of the added token of that spelling."""
        token_id = self._native.find_control(spelling)
        return None if token_id < 0 else token_id

    def detokenizer(self) -> Detokenizer:
        """A fresh detokenizer, for one text that comes id by id."""
        return Detokenizer(self)


class Detokenizer:
    """Ids to text as they come: whole characters, each with the id that completes it. One thread at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._native = _codec.Detokenizer(tokenizer._native)

    def push(self, ids: int | Sequence[int]) -> str:
        """The text completed by these ids."""
        return self._native.push([ids] if isinstance(ids, int) else ids)

    def finish(self) -> str:
        """The end of the text: an incomplete character becomes U+FFFD. The object can be used again."""
        return self._native.finish()
