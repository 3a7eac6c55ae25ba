# SPDX-License-Identifier: MIT
"""One line on a terminal that says how far a run is."""

from __future__ import annotations

import sys
import time
from typing import TextIO


class ProgressBar:
    """Draws on standard error, and only when that is a terminal or `stream` is given."""

    def __init__(self, label: str, total: int, *, stream: TextIO | None = None, interval_s: float = 0.1) -> None:
        self._label, self._total = label, total
        self._stream = stream if stream is not None else sys.stderr
        self._draws = stream is not None or self._stream.isatty()
        self._interval_s, self._begin, self._last = interval_s, time.monotonic(), 0.0
        self._width = 0

    def update(self, done: int, prompt_tokens: int, output_tokens: int, *, force: bool = False) -> None:
        now = time.monotonic()
        if not self._draws or (not force and now - self._last < self._interval_s):
            return
        self._last = now
        filled = 24 * done // self._total if self._total else 24
        rate = output_tokens / max(now - self._begin, 1e-9)
        line = (
            f"{self._label} [{'#' * filled}{'.' * (24 - filled)}] {done}/{self._total}, "
            f"{prompt_tokens} prompt and {output_tokens} output tokens, {rate:.0f} tokens/s"
        )
        self._stream.write("\r" + line.ljust(self._width))
        self._stream.flush()
        self._width = len(line)

    def close(self) -> None:
        """Ends the line."""
        if self._draws and self._width:
            self._stream.write("\n")
            self._stream.flush()
