import base64
import gzip
import hashlib
import json
import struct
import threading
import zlib

import openai
import pytest
from conftest import MODEL, wait_for
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

PLAIN = {"thinking": {"type": "disabled"}}
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


@pytest.fixture(scope="module")
def client(service):
    return openai.OpenAI(base_url=service.url + "/v1", api_key="unused", max_retries=0)


def user(text):
    return [{"role": "user", "content": text}]


def png(width, height, rgb):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + bytes(rgb) * width) * height
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def test_models(client):
    names = [model.id for model in client.models.list()]
    assert MODEL in names
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")


def test_chat_thinks_and_answers(client):
    answer = client.chat.completions.create(model=MODEL, messages=user("What is 12 + 7?"), temperature=0, max_tokens=200)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].message.content == "12 + 7 = 19"
    assert answer.choices[0].message.reasoning_content
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_a_stream_joins_to_the_whole_answer(client):
    asked = dict(model=MODEL, messages=user("What is 31 + 8?"), temperature=0, max_tokens=200)
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == whole.choices[0].message.content
    thought = "".join(getattr(c.choices[0].delta, "reasoning_content", None) or "" for c in chunks)
    assert thought == whole.choices[0].message.reasoning_content
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert len({c.id for c in chunks}) == 1


def test_choices_logprobs_seed_and_stop(client):
    asked = dict(model=MODEL, messages=user("Tell me a fact."), n=3, temperature=1.2, seed=5, max_tokens=12,
                 logprobs=True, top_logprobs=3, extra_body=PLAIN)
    answer = client.chat.completions.create(**asked)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    for choice in answer.choices:
        for token in choice.logprobs.content:
            assert token.logprob <= 0 and len(token.top_logprobs) == 3
    again = client.chat.completions.create(**asked)
    assert [c.message.content for c in again.choices] == [c.message.content for c in answer.choices]
    stopped = client.chat.completions.create(model=MODEL, messages=user("What is 12 + 7?"), temperature=0,
                                             stop=["="], extra_body=PLAIN)
    assert "=" not in stopped.choices[0].message.content and stopped.choices[0].finish_reason == "stop"
    short = client.chat.completions.create(model=MODEL, messages=user("What is 12 + 7?"), max_tokens=2)
    assert short.choices[0].finish_reason == "length" and short.usage.completion_tokens == 2


def test_tools_over_two_turns(client):
    messages = user("What is the weather in Paris?")
    first = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER], temperature=0,
                                           tool_choice="required", max_tokens=200, extra_body=PLAIN)
    assert first.choices[0].finish_reason in ("tool_calls", "length")
    calls = first.choices[0].message.tool_calls
    assert calls and calls[0].id.startswith("call_")
    if first.choices[0].finish_reason == "tool_calls":
        json.loads(calls[0].function.arguments)
    messages.append(first.choices[0].message.model_dump(exclude_none=True))
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "sunny, 20 degrees"} for call in calls]
    second = client.chat.completions.create(model=MODEL, messages=messages, tools=[WEATHER], temperature=0,
                                            max_tokens=100, extra_body=PLAIN)
    assert second.usage.prompt_tokens > first.usage.prompt_tokens


def test_tool_calls_stream(client):
    chunks = client.chat.completions.create(model=MODEL, messages=user("What is the weather in Rome?"), tools=[WEATHER],
                                            temperature=0, tool_choice="required", stream=True, max_tokens=200,
                                            extra_body=PLAIN)
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or []]
    assert calls[0].function.name and calls[0].id
    assert all(call.index == 0 for call in calls if call.index is not None)


def test_images_are_taken_as_data_and_never_fetched(client):
    url = "data:image/png;base64," + base64.b64encode(png(64, 64, (200, 0, 0))).decode()
    content = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    plain = client.chat.completions.create(model=MODEL, messages=user("What is this?"), max_tokens=4, extra_body=PLAIN)
    seen = client.chat.completions.create(model=MODEL, messages=user(content), max_tokens=4, extra_body=PLAIN)
    assert seen.usage.prompt_tokens > plain.usage.prompt_tokens
    content[1]["image_url"]["url"] = "http://127.0.0.1:1/a.png"
    with pytest.raises(openai.BadRequestError, match="Remote image"):
        client.chat.completions.create(model=MODEL, messages=user(content))
    content[1]["image_url"]["url"] = "data:image/png;base64,AAAA"
    with pytest.raises(openai.BadRequestError):
        client.chat.completions.create(model=MODEL, messages=user(content))


def test_json_mode(client):
    answer = client.chat.completions.create(
        model=MODEL, messages=user("Give me JSON with a name."), temperature=0, max_tokens=100,
        response_format={"type": "json_object"}, extra_body=PLAIN)
    assert answer.choices[0].message.content is not None


class Sum(BaseModel):
    reason: str
    sum: int


def test_json_schemas_come_back_parsed(client):
    chat = client.chat.completions.parse(model=MODEL, messages=user("What is 12 + 7?"), response_format=Sum, temperature=0,
                                         max_tokens=300, extra_body=PLAIN)
    assert isinstance(chat.choices[0].message.parsed, Sum)
    answer = client.responses.parse(model=MODEL, input="What is 12 + 7?", text_format=Sum, temperature=0, max_output_tokens=500)
    assert isinstance(answer.output_parsed, Sum)


def test_a_refused_request_is_tried_again_by_the_package(start_service, tmp_path):
    keys = {"keys": [{"name": "a", "sha256": hashlib.sha256(b"sk-a").hexdigest(), "concurrency": 1}]}
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    own = openai.OpenAI(base_url=start_service("--api-keys", str(tmp_path / "keys.json")).url + "/v1", api_key="sk-a", max_retries=0)
    running = own.chat.completions.create(model=MODEL, messages=user("hi"), max_tokens=4000, stream=True,
                                          extra_body={**PLAIN, "ignore_eos": True})
    next(iter(running))
    with pytest.raises(openai.RateLimitError):
        own.chat.completions.create(model=MODEL, messages=user("hi"), max_tokens=1)
    threading.Timer(0.5, running.close).start()
    answer = own.with_options(max_retries=5).chat.completions.create(model=MODEL, messages=user("hi"), max_tokens=1)
    assert answer.usage.completion_tokens == 1


def test_errors_have_their_classes(client):
    with pytest.raises(openai.BadRequestError, match="supported API model names"):
        client.chat.completions.create(model="gpt-5", messages=user("hi"))
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.chat.completions.create(model=MODEL, messages=user("hi"), temperature=3)
    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        client.chat.completions.create(model=MODEL, messages=user("hi"), max_tokens=300_000)
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model=MODEL, input="hi")


def test_a_time_out_cancels(client, service):
    quick = client.with_options(timeout=0.3)
    with pytest.raises(openai.APITimeoutError):
        quick.chat.completions.create(model=MODEL, messages=user("prompt text that must not be logged"),
                                      max_tokens=20_000, extra_body={**PLAIN, "ignore_eos": True})
    wait_for(lambda: "vllm:num_requests_running{model_name=\"mini\"} 0" in metrics(client))


def metrics(client):
    return client._client.get(str(client.base_url).replace("/v1/", "/metrics")).text


def test_completions(client):
    answer = client.completions.create(model=MODEL, prompt="The quick brown", max_tokens=5, temperature=0)
    assert answer.usage.completion_tokens <= 5 and answer.object == "text_completion"
    chunks = list(client.completions.create(model=MODEL, prompt="The quick brown", max_tokens=5, temperature=0, stream=True))
    assert "".join(c.choices[0].text for c in chunks) == answer.choices[0].text


def test_responses_are_stored_and_continued(client):
    first = client.responses.create(model=MODEL, input="What is 12 + 7?", temperature=0, max_output_tokens=200)
    assert first.output_text == "12 + 7 = 19"
    assert [item.type for item in first.output] == ["reasoning", "message"]
    assert client.responses.retrieve(first.id).output_text == first.output_text
    second = client.responses.create(model=MODEL, input="What is 3 + 4?", previous_response_id=first.id, temperature=0,
                                     max_output_tokens=200)
    assert second.usage.input_tokens > first.usage.input_tokens + 5
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def raw_response(client, **more):
    sent = {"model": MODEL, "input": "What is 12 + 7?", "temperature": 0, "max_output_tokens": 60, **more}
    return client.responses.with_raw_response.create(**sent).http_response


def test_the_response_object_is_the_packages_own_and_says_what_was_asked(client):
    """Every member against the types of the package, which its client itself does not check."""
    tool = {"type": "function", "name": "add", "description": "Adds.", "strict": False,
            "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}
    asked = {"instructions": "Be brief.", "metadata": {"run": "7"}, "user": "u", "prompt_cache_key": "k", "safety_identifier": "s",
             "parallel_tool_calls": False, "tools": [tool], "tool_choice": "auto", "top_p": 0.5, "top_logprobs": 2,
             "reasoning": {"effort": "low"}, "text": {"format": {"type": "text"}, "verbosity": "low"}}
    for more in ({}, asked):
        raw = raw_response(client, **more).json()
        Response.model_validate(raw, strict=True)
        for key, value in more.items():
            if key == "tools":
                assert [{name: one[name] for name in tool} for one in raw["tools"]] == value
            elif key in ("reasoning", "text"):
                assert raw[key].items() >= value.items()
            else:
                assert raw[key] == value, key
        assert client.responses.with_raw_response.retrieve(raw["id"]).http_response.json() == raw
    events = [json.loads(line[6:]) for line in raw_response(client, stream=True, **asked).iter_lines() if line.startswith("data: ")]
    for number, event in enumerate(events):
        assert event["sequence_number"] == number
        TypeAdapter(ResponseStreamEvent).validate_python(event)
    assert client.responses.with_raw_response.retrieve(events[-1]["response"]["id"]).http_response.json() == events[-1]["response"]


@pytest.mark.parametrize("asked, stored", [({}, True), ({"store": True}, True), ({"store": False}, False)])
def test_store_is_what_was_asked(client, asked, stored):
    answer = client.responses.create(model=MODEL, input="hi", max_output_tokens=4, **asked)
    assert answer.to_dict()["store"] is stored
    if stored:
        assert client.responses.retrieve(answer.id).to_dict()["store"] is True
        client.responses.delete(answer.id)
    for call in (client.responses.retrieve, client.responses.delete):
        with pytest.raises(openai.NotFoundError):
            call(answer.id)
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model=MODEL, input="hi", previous_response_id=answer.id)


def test_without_room_for_responses_none_says_it_is_stored(start_service):
    own = openai.OpenAI(base_url=start_service("--store-mib", "0").url + "/v1", api_key="unused", max_retries=0)
    answer = own.responses.create(model=MODEL, input="hi", max_output_tokens=4)
    assert answer.to_dict()["store"] is False
    with pytest.raises(openai.NotFoundError):
        own.responses.retrieve(answer.id)


def test_responses_stream(client):
    with client.responses.stream(model=MODEL, input="What is 12 + 7?", temperature=0) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert "response.output_text.delta" in kinds and "response.reasoning_text.delta" in kinds
    assert final.output_text == "12 + 7 = 19"


def test_keys_and_their_limits(start_service, tmp_path):
    keys = {"keys": [{"name": "a", "sha256": hashlib.sha256(b"sk-a").hexdigest(), "requests_per_minute": 2}]}
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    url = start_service("--api-keys", str(tmp_path / "keys.json")).url + "/v1"
    with pytest.raises(openai.AuthenticationError):
        openai.OpenAI(base_url=url, api_key="sk-b", max_retries=0).models.list()
    mine = openai.OpenAI(base_url=url, api_key="sk-a", max_retries=0)
    for _ in range(2):
        mine.chat.completions.create(model=MODEL, messages=user("hi"), max_tokens=1)
    with pytest.raises(openai.RateLimitError):
        mine.chat.completions.create(model=MODEL, messages=user("hi"), max_tokens=1)


def test_compressed_bodies(client):
    body = gzip.compress(json.dumps({"model": MODEL, "messages": user("hi"), "max_tokens": 2}).encode())
    answer = client._client.post(str(client.base_url) + "chat/completions", content=body,
                                 headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})
    assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 2
    bomb = gzip.compress(b" " * (200 << 20))
    answer = client._client.post(str(client.base_url) + "chat/completions", content=bomb,
                                 headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 413
