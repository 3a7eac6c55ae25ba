# SPDX-License-Identifier: MIT
"""The exceptions of the engine."""


class EngineError(RuntimeError):
    """A call of the engine that could not be done: wrong settings, a missing checkpoint, no memory. `code` is the C ABI's
    name of the kind, such as "invalid_argument" or "not_found"."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class RequestRefused(ValueError):
    """A prompt or its parameters that the model cannot run. `param` names the member at fault, where there is one."""

    def __init__(self, message: str, param: str = "") -> None:
        super().__init__(message if not param else f"{param}: {message}")
        self.param = param
