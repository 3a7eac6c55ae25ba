# SPDX-License-Identifier: MIT
"""The names of deepseek-recipe 0.2.0 on the recorded requests and streams. Where that package is installed, the same
tests run on it, so that they say what it does."""

import gzip
import importlib
import json

import pytest
from conftest import TOKENIZER, joined, normalised, records

MODULES = ["deepinfer_cpp.recipe", "deepseek_recipe"]


@pytest.fixture(scope="module", params=MODULES)
def recipe(request):
    return importlib.import_module(request.param) if request.param == MODULES[0] else pytest.importorskip(request.param)


@pytest.fixture(scope="module")
def tokenizer(recipe):
    return recipe.Tokenizer.from_str(gzip.open(TOKENIZER, "rt", encoding="utf-8").read())


def request_type(recipe, protocol):
    return {
        "chat": recipe.ChatCompletionRequest,
        "responses": recipe.ResponsesRequest,
        "messages": recipe.MessagesRequest,
    }[protocol]


def response_type(recipe, protocol):
    return {
        "chat": recipe.ChatCompletionResponse,
        "responses": recipe.ResponsesResponse,
        "messages": recipe.MessagesResponse,
    }[protocol]


def options_of(recipe, record):
    options = recipe.ConversionOptions()
    for name, value in record.get("options", {}).items():
        if name == "model_alias":
            for alias, version in value.items():
                kind = recipe.ModelVersion
                options = options.with_model_alias(
                    alias, kind.DeepseekV41Flash if version == "v41" else kind.DeepseekV4Pro
                )
        elif name == "reasoning_content_behavior":
            options = options.with_reasoning_content_behavior(getattr(recipe.ReasoningContentBehavior, value))
        elif name.endswith("_web_search"):
            options = getattr(options, "with_" + name)(getattr(recipe.WebSearchBehavior, value))
        else:
            options = getattr(options, "with_" + name)(value)
    return options


def test_every_recorded_request(recipe, tokenizer):
    encodings = {
        "v4": recipe.DeepseekV4Encoding().with_tokenizer(tokenizer),
        "v41": recipe.DeepseekV41Encoding().with_tokenizer(tokenizer),
    }
    for record in records("requests.jsonl.gz"):
        if "known_bug" in record:
            continue
        body = record.get("request_text", record.get("request"))
        expect = record["expect"]
        if expect.get("error", {}).get("stage") == "parse":
            with pytest.raises(ValueError):
                request_type(recipe, record["protocol"])(body).convert(recipe.ConversionOptions())
            continue
        request = request_type(recipe, record["protocol"])(body)
        if "error" in expect:
            with pytest.raises(recipe.ConversionError) as caught:
                request.convert(options_of(recipe, record))
            assert caught.value.status_code == expect["error"]["status"]
            if expect["error"]["exact"]:
                assert json.loads(caught.value.body)["error"]["message"] == expect["error"]["message"]
            continue
        converted = request.convert(options_of(recipe, record))
        encoding, conversation = encodings[expect["version"]], converted.conversation
        rendered = encoding.render_conversation(conversation)
        assert rendered.prompt == expect["prompt"], record["id"]
        ranges = [[len(rendered.prompt[:i].encode()) for i in pair] for pair in rendered.special_ranges]
        assert ranges == expect["special"]
        assert encoding.encode(conversation) == expect["ids"]
        assert [image.kind for image in rendered.image_sources] == [image["kind"] for image in expect["images"]]
        assert [image.path for image in rendered.image_sources] == [image["path"] for image in expect["images"]]
        assert conversation.thinking_mode == expect["thinking"]
        assert conversation.reasoning_effort == expect["effort"]
        assert conversation.tool_choice == expect["tool_choice"]
        assert [tool.name for tool in conversation.tools] == expect["tools"]
        assert conversation.response_format == expect["response_format"]
        assert converted.stream == expect["stream"]
        inference, wanted = converted.inference_options, expect["inference"]
        assert inference.temperature == pytest.approx(wanted["temperature"], rel=1e-6)
        assert inference.top_p == pytest.approx(wanted["top_p"], rel=1e-6)
        for name in ("max_tokens", "logprobs", "top_logprobs", "seed"):
            assert getattr(inference, name) == wanted[name]
        constraint = inference.output_constraint
        assert (constraint and {"kind": constraint.kind, "schema": constraint.schema}) == wanted["constraint"]
        stage = converted.parsing_options.thinking_initial_stage
        wanted_stage = expect["parsing"]["thinking_initial_stage"]
        assert stage == (wanted_stage and getattr(recipe.ThinkingInitialStage, wanted_stage))
        assert converted.parsing_options.stop_sequences == expect["parsing"]["stop_sequences"]
        limit = record.get("context_limit", 1048576)
        if "error" in expect["resolved"]:
            with pytest.raises(recipe.ConversionError):
                converted.resolve_max_tokens(len(expect["ids"]), limit)
        else:
            assert converted.resolve_max_tokens(len(expect["ids"]), limit) == expect["resolved"]["max_tokens"]


def chunk_of(recipe, chunk):
    if "ready" in chunk:
        ready = chunk["ready"]
        usage = recipe.PromptUsage(prompt_tokens=ready["prompt_tokens"], prompt_cache_hit_tokens=ready["cache_hit"])
        return recipe.InferenceChunk.ready(prompt_usage=usage, system_fingerprint=ready["fingerprint"])
    if "ids" in chunk:
        logprobs = chunk.get("logprobs")
        if logprobs is not None:
            logprobs = [(logprob, [tuple(pair) for pair in top]) for logprob, top in logprobs]
        return recipe.InferenceChunk.tokens(chunk["ids"], logprobs)
    if "text" in chunk:
        return recipe.InferenceChunk.text(chunk["text"], chunk["tokens"])
    reason = {"stop": "Stop", "length": "Length", "content_filter": "ContentFilter"}[chunk["finish"]]
    return recipe.InferenceChunk.finish(getattr(recipe.InferenceFinishReason, reason))


def without_nulls(events):
    """The original writes absent members of a Chat chunk as null in `to_json`; the records and servers leave them out."""
    if isinstance(events, list):
        return [without_nulls(item) for item in events]
    if not isinstance(events, dict):
        return events
    return {k: without_nulls(v) for k, v in events.items() if v is not None}


def test_every_recorded_stream(recipe, tokenizer):
    for record in records("responses.jsonl.gz"):
        if {"known_bug", "loose"} & record.keys():
            continue
        for protocol, expect in record["expect"].items():
            kind, answer = request_type(recipe, protocol), response_type(recipe, protocol)
            request = kind(expect["request"])
            extra = {}
            if protocol == "responses":
                extra = {"map": request.namespace_tool_map(recipe.ConversionOptions()), "echo": request.echo()}
            converted = request.convert(recipe.ConversionOptions())
            generator = kind.chunk_generator(converted, "resp-1", expect["request"]["model"])
            if protocol == "responses":
                generator = generator.with_namespace_tool_map(extra["map"]).with_echo(extra["echo"])
            processor = recipe.StreamProcessor(generator, converted.parsing_options, tokenizer)
            chunks, num_read = [], 0
            for chunk in record["chunks"]:
                if processor.finished:
                    break
                num_read += 1
                chunks += processor.push(chunk_of(recipe, chunk))
            chunks += processor.finish()
            events = []
            for chunk in chunks:
                name, data = answer.sse_event_name(chunk), json.loads(chunk.to_json())
                events.append({"event": name, "data": data} if name else data)
            where = (record["id"], protocol)
            if "logprobs" not in record["setup"]:
                assert joined(without_nulls(events)) == joined(without_nulls(expect["events"])), where
            assert num_read == expect["chunks_read"], where
            response = answer("resp-1", expect["request"]["model"], 0, 0, 0)
            for chunk in chunks:
                response.accumulate(chunk)
            assert without_nulls(normalised(json.loads(response.to_json()))) == without_nulls(
                normalised(expect["final"])
            ), where


def test_conversations_built_by_hand(recipe, tokenizer):
    conversation = recipe.Conversation(
        [
            recipe.SystemMessage("Be brief."),
            recipe.UserMessage("What is <｜image｜> and <｜image｜>?", [recipe.UrlImageSource("http://x/y.png")]),
            recipe.AssistantMessage("", "thought", [recipe.ToolCall("c1", "f", '{"a": 1}')]),
            recipe.ToolMessage("42", "c1"),
            recipe.LatestReminderMessage("soon"),
        ],
        tools=[recipe.ToolDefinition("f", "does", {"type": "object"})],
        reasoning_effort="max",
    )
    prompt = recipe.DeepseekV41Encoding().render_conversation(conversation).prompt
    assert prompt.startswith("<｜begin▁of▁sentence｜><｜System｜>Reasoning Effort: 100")
    assert '{"name": "f", "description": "does", "parameters": {"type": "object"}}' in prompt
    ids = recipe.DeepseekV41Encoding().with_tokenizer(tokenizer).encode(conversation)
    assert ids.count(recipe.IMAGE_SPECIAL_TOKEN_ID) == 1
    with pytest.raises(RuntimeError, match="no tokenizer"):
        recipe.DeepseekV41Encoding().encode(conversation)
    with pytest.raises(ValueError):
        recipe.Conversation(response_format="json_object", response_regex="a")
    with pytest.raises(ValueError):
        recipe.UserMessage("a", image_token="")


def test_converted_conversations_show_their_messages(recipe):
    request = recipe.ChatCompletionRequest(
        {
            "model": "DeepSeek-V4.1-Flash",
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "a"},
                                             {"type": "image_url", "image_url": {"url": "http://x/y.png"}}]},
                {"role": "assistant", "content": "x", "reasoning_content": "y", "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]},
                {"role": "tool", "tool_call_id": "c", "content": "r"},
            ],
            "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        }
    )  # fmt: skip
    user, assistant, tool = request.convert(recipe.ConversionOptions()).conversation.messages
    assert (user.role, user.content) == ("user", "a\n\n<｜image｜>")
    assert user.image_sources[0].url == "http://x/y.png" and user.reasoning_content is None
    assert (assistant.content, assistant.reasoning_content, assistant.tool_calls[0].name) == ("x", "y", "f")
    assert (tool.role, tool.tool_call_id, tool.prefix) == ("tool", "c", False)


def test_what_is_used_up_says_so(recipe, tokenizer):
    request = recipe.ChatCompletionRequest(
        {"model": "DeepSeek-V4.1-Flash", "messages": [{"role": "user", "content": "Hi"}]}
    )
    assert request.model == "DeepSeek-V4.1-Flash"
    converted = request.convert(recipe.ConversionOptions())
    with pytest.raises(RuntimeError, match="consumed"):
        request.convert(recipe.ConversionOptions())
    generator = recipe.ChatCompletionRequest.chunk_generator(converted, "resp-1", "m")
    processor = recipe.StreamProcessor(generator, converted.parsing_options)
    with pytest.raises(RuntimeError, match="consumed"):
        recipe.StreamProcessor(generator, converted.parsing_options)
    with pytest.raises(RuntimeError):
        processor.push(recipe.InferenceChunk.tokens([1]))  # without a tokenizer
    with pytest.raises(RuntimeError, match="closed"):
        processor.finish()


def test_tokenizer_and_names(recipe, tokenizer):
    assert tokenizer.encode("<think>a") == [128821, 67]
    assert recipe.SpecialToken.Image.default_str() == "<｜image｜>"
    assert recipe.SpecialTokens().token(recipe.SpecialToken.Bos) == "<｜begin▁of▁sentence｜>"
    assert not recipe.ThinkingInitialStage.ContentContinuation.starts_in_reasoning()
    assert recipe.__version__ == "0.2.0"
    for name in recipe.__all__:
        assert hasattr(recipe, name)
