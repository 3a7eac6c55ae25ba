"""Renders dialogues as V4.1 prompts: control tokens are explicit, everything else is plain text.

A rendered prompt is a list of runs. A run is either one control token or a stretch of plain text; neighbouring plain
texts are joined, because the tokenizer sees all text between two control tokens as one piece.
"""
import json
from dataclasses import dataclass

from .dialogue import EFFORT_NUMBER

BOS, EOS, PAD = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"
SYSTEM, USER, ASSISTANT = "<｜System｜>", "<｜User｜>", "<｜Assistant｜>"
THINK, END_THINK, DSML = "<think>", "</think>", "｜DSML｜"
REMINDER, IMAGE = "<｜latest_reminder｜>", "<｜deepseek_image｜>"

TOOLS_HEAD = f"""## Tools

You have access to a set of tools to help answer the user's question. You can invoke tools by writing a "<{DSML} calls>" block like the following:

<{DSML} calls>
<{DSML} invoke name="$TOOL_NAME">
<{DSML} parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{DSML} parameter>
...
</{DSML} invoke>
<{DSML} invoke name="$TOOL_NAME2">
...
</{DSML} invoke>
</{DSML} calls>

String parameters should be specified as is and set `string="true"`. For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set `string="false"`.

If thinking_mode is enabled (triggered by {THINK}), you MUST output your complete reasoning inside {THINK}...{END_THINK} BEFORE any tool calls or final response.

Otherwise, output directly after {END_THINK} with tool calls or final response.

### Available Tool Schemas

"""
TOOLS_TAIL = "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.\n"
FORMAT_HEAD = "\n\n## Response Format:\n\nYou MUST strictly adhere to the following schema to reply:\n"


@dataclass
class Run:
    text: str
    special: bool
    target: bool          # the model is meant to produce this run
    image: int = None     # index of the image behind an image placeholder


class Writer:
    """Collects runs; plain text next to plain text becomes one run."""

    def __init__(self):
        self.runs = []

    def special(self, text, target=False, image=None):
        self.runs.append(Run(text, True, target, image))

    def plain(self, text, target=False):
        if not text:
            return
        last = self.runs[-1] if self.runs else None
        if last and not last.special:
            last.text += text
            last.target = last.target or target
        else:
            self.runs.append(Run(text, False, target))

    def markup(self, text, target=False):
        """Template text in which DSML and the thinking marks are control tokens."""
        while text:
            hits = [(text.find(mark), mark) for mark in (DSML, THINK, END_THINK) if mark in text]
            if not hits:
                self.plain(text, target)
                return
            position, mark = min(hits)
            self.plain(text[:position], target)
            self.special(mark, target)
            text = text[position + len(mark):]


def spell_json(value):
    return json.dumps(value, ensure_ascii=False)


def schema_line(tool):
    return spell_json({"name": tool["name"], "description": tool.get("description") or "",
                       "parameters": tool.get("parameters") or {}})


def effort_text(thinking):
    if thinking == "off":
        return ""
    return (f"Reasoning Effort: {EFFORT_NUMBER[thinking]} (range 1-100, the higher the value, "
            "the more thorough the reasoning)\n\n")


def write_calls(out, calls, target):
    out.plain("\n\n<", target)
    out.special(DSML, target)
    out.plain(" calls>\n", target)
    for _, name, arguments in calls:
        out.plain("<", target)
        out.special(DSML, target)
        out.plain(f' invoke name="{name}">\n', target)
        for key, value in arguments.items():
            is_string = isinstance(value, str)
            out.plain("<", target)
            out.special(DSML, target)
            out.plain(f' parameter name="{key}" string="{"true" if is_string else "false"}">'
                      f'{value if is_string else spell_json(value)}</', target)
            out.special(DSML, target)
            out.plain(" parameter>\n", target)
        if not arguments:
            out.plain("\n", target)
        out.plain("</", target)
        out.special(DSML, target)
        out.plain(" invoke>\n", target)
    out.plain("</", target)
    out.special(DSML, target)
    out.plain(" calls>", target)


def write_head(out, dialogue):
    """BOS, effort, the first system message, tools text and response format. Returns how many messages it used."""
    first = dialogue.messages[0]
    has_system = first["role"] == "system"
    effort = effort_text(dialogue.thinking)
    out.special(BOS)
    if not (has_system or effort or dialogue.tools or dialogue.response_schema):
        return 0
    out.special(SYSTEM)
    out.plain(effort)
    if has_system:
        out.plain(first["content"])
    if dialogue.tools:
        out.plain("\n\n")
        out.markup(TOOLS_HEAD)
        out.plain("\n".join(schema_line(tool) for tool in dialogue.tools))
        out.plain(TOOLS_TAIL)
    if dialogue.response_schema:
        out.plain(FORMAT_HEAD + spell_json(dialogue.response_schema))
    return 1 if has_system else 0


def write_content(out, content):
    if isinstance(content, str):
        out.plain(content)
        return
    for position, block in enumerate(content):
        if position:
            out.plain("\n\n")
        if block["type"] == "image":
            out.special(IMAGE, image=block["index"])
        else:
            out.plain(block["text"])


def write_assistant(out, message, keep_reasoning):
    out.special(ASSISTANT)
    if keep_reasoning:
        out.special(THINK)
        out.plain(message["reasoning_content"] or "", target=True)
        out.special(END_THINK, target=True)
    else:
        out.special(END_THINK)
    out.plain(message["content"], target=True)
    if message["calls"]:
        write_calls(out, message["calls"], target=True)
    out.special(EOS, target=True)


def render(dialogue, num_messages=None):
    """Runs of the first `num_messages` messages (default: all).

    When the last of them is an assistant message it is written as the model would produce it, reasoning included;
    otherwise the header of the answer to come is written.
    """
    messages = dialogue.messages[:num_messages]
    out = Writer()
    start = write_head(out, dialogue)
    for index in range(start, len(messages)):
        message, role = messages[index], messages[index]["role"]
        after_user = index > 0 and messages[index - 1]["role"] in ("user", "tool")
        if role == "system":
            out.special(SYSTEM)
            out.plain(message["content"])
        elif role == "assistant":
            is_last = index == len(messages) - 1
            write_assistant(out, message, dialogue.thinking != "off" and (bool(dialogue.tools) or is_last))
        else:
            out.plain("\n\n") if after_user else out.special(USER)
            if role == "tool":
                out.plain(f"<tool_result>{message['content']}</tool_result>")
            else:
                write_content(out, message["content"])
    if messages[-1]["role"] != "assistant":
        out.special(ASSISTANT)
        out.special(END_THINK if dialogue.thinking == "off" else THINK)
    return out.runs


def text_of(runs):
    return "".join(run.text for run in runs)
