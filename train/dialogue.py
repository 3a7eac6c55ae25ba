"""The one noun that every data family produces: a dialogue with the answers we want."""
from dataclasses import dataclass, field

THINKING_LEVELS = ("off", "low", "high", "max")
EFFORT_NUMBER = {"low": 50, "high": 75, "max": 100}


@dataclass
class Dialogue:
    """Messages in Chat Completions form, assistant turns included.

    The content of a user message is a string or a list of blocks {"type": "text", "text": ...} and
    {"type": "image", "index": i}, where i points into `images` (uint8 RGB arrays as a client would send them).
    """
    family: str
    messages: list
    thinking: str = "off"
    tools: list = field(default_factory=list)
    response_schema: dict = None          # a JSON schema, or {"type": "json_object"} for free JSON
    images: list = field(default_factory=list)
    check: dict = field(default_factory=dict)   # extra facts for the scorer


def user(content):
    return {"role": "user", "content": content}


def system(content):
    return {"role": "system", "content": content}


def tool_result(call_id, content):
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def assistant(content, reasoning=None, calls=None):
    """calls: list of (id, name, arguments as a dict)."""
    return {"role": "assistant", "content": content, "reasoning_content": reasoning, "calls": calls or []}


def pick_thinking(rng, off=0.5):
    """Draws a thinking level; the levels that think share what `off` leaves."""
    if rng.random() < off:
        return "off"
    return rng.choices(["low", "high", "max"], [3, 9, 8])[0]


def thought_of(text, thinking, check="yes."):
    """The reasoning of one answer: none when thinking is off; the highest effort ends with a check."""
    if thinking == "off":
        return None
    return f"{text} Check: {check}" if thinking == "max" else text
