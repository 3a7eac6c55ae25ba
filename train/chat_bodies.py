"""Dialogues as Chat Completions request bodies, for engines and for the prompt test."""
import base64
import io

from .prompt import IMAGE, spell_json

MODEL_NAME = "DeepSeek-V4.1-Flash"


def data_url(image):
    from PIL import Image
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def body_content(content, images):
    if isinstance(content, str):
        return content
    return [{"type": "text", "text": block["text"]} if block["type"] == "text" else
            {"type": "image_url", "image_url": {"url": data_url(images[block["index"]])}} for block in content]


def body_message(message, images):
    if message["role"] != "assistant":
        return {**message, "content": body_content(message["content"], images)}
    result = {"role": "assistant", "content": message["content"]}
    if message["reasoning_content"]:
        result["reasoning_content"] = message["reasoning_content"]
    if message["calls"]:
        result["tool_calls"] = [{"id": call_id, "type": "function", "function": {"name": name, "arguments": spell_json(arguments)}}
                                for call_id, name, arguments in message["calls"]]
    return result


def request_body(dialogue, num_messages):
    body = {"model": MODEL_NAME, "temperature": 0,
            "messages": [body_message(message, dialogue.images) for message in dialogue.messages[:num_messages]],
            "thinking": {"type": "disabled" if dialogue.thinking == "off" else "enabled"}}
    if dialogue.thinking != "off":
        body["reasoning_effort"] = dialogue.thinking
    if dialogue.tools:
        body["tools"] = [{"type": "function", "function": tool} for tool in dialogue.tools]
    if dialogue.response_schema == {"type": "json_object"}:
        body["response_format"] = {"type": "json_object"}
    elif dialogue.response_schema:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": dialogue.response_schema}}
    return body
