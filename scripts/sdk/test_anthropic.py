import anthropic
import pytest
from conftest import MODEL

OFF = {"type": "disabled"}
GREEDY = {"temperature": 0}
TOOL = {"name": "get_weather", "description": "Weather of a city",
        "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


@pytest.fixture(scope="module")
def client(service):
    return anthropic.Anthropic(base_url=service.url + "/anthropic", api_key="unused", max_retries=0)


def user(text):
    return [{"role": "user", "content": text}]


def test_messages_think_and_answer(client):
    answer = client.messages.create(model=MODEL, messages=user("What is 12 + 7?"), extra_body=GREEDY, max_tokens=1200,
                                    thinking={"type": "enabled", "budget_tokens": 1024})
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert answer.content[1].text == "12 + 7 = 19"
    assert answer.stop_reason == "end_turn" and answer.usage.output_tokens > 0


def test_streams(client):
    with client.messages.stream(model=MODEL, messages=user("What is 12 + 7?"), extra_body=GREEDY, max_tokens=200,
                                thinking=OFF) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == "12 + 7 = 19" == final.content[0].text
    assert final.usage.input_tokens + final.usage.cache_read_input_tokens > 0


def test_tools_over_two_turns(client):
    messages = user("What is the weather in Paris?")
    first = client.messages.create(model=MODEL, messages=messages, tools=[TOOL], extra_body=GREEDY, max_tokens=200,
                                   tool_choice={"type": "tool", "name": "get_weather"}, thinking=OFF)
    uses = [block for block in first.content if block.type == "tool_use"]
    assert uses and uses[0].name == "get_weather" and isinstance(uses[0].input, dict)
    messages.append({"role": "assistant", "content": [block.model_dump(exclude_none=True) for block in first.content]})
    messages.append({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": use.id, "content": "sunny, 20 degrees"} for use in uses]})
    second = client.messages.create(model=MODEL, messages=messages, tools=[TOOL], extra_body=GREEDY, max_tokens=100,
                                    thinking=OFF)
    assert second.stop_reason in ("end_turn", "max_tokens", "tool_use")


def test_counted_tokens_are_those_used(client):
    asked = dict(model=MODEL, messages=user("How many tokens is this?"), system="You are brief.", thinking=OFF)
    counted = client.messages.count_tokens(**asked)
    used = client.messages.create(**asked, max_tokens=1).usage
    assert counted.input_tokens == used.input_tokens + used.cache_read_input_tokens


def test_stop_sequences(client):
    answer = client.messages.create(model=MODEL, messages=user("What is 12 + 7?"), extra_body=GREEDY, max_tokens=100,
                                    stop_sequences=["="], thinking=OFF)
    assert answer.stop_reason == "stop_sequence" and answer.stop_sequence == "="


def test_errors_have_their_classes(client):
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(model="claude", messages=user("hi"), max_tokens=5)
    assert refused.value.body["type"] == "error"
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(model=MODEL, messages=[], max_tokens=5)
    names = [model.id for model in client.models.list()]
    assert MODEL in names
