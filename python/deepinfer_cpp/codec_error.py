# SPDX-License-Identifier: MIT
"""The exception of this package."""


class CodecError(ValueError):
    """A call that could not be done: wrong settings, a missing file, a limit. `code` is the C ABI's name of the kind,
    such as "invalid_argument", "not_found" or "resource_exhausted". A refused request is no error: see `Request`."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
