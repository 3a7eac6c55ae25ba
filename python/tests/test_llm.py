# SPDX-License-Identifier: MIT
"""LLM on golden model A (random weights: its words mean nothing, its numbers do)."""

import io

import pytest

from deepinfer_cpp import LLM, EngineError, RequestRefused, SamplingParams
from deepinfer_cpp._progress_bar import ProgressBar

from conftest import ROOT

MODEL = ROOT / "testdata" / "model_a"


@pytest.fixture(scope="module")
def llm():
    with LLM(MODEL, num_threads=1, max_model_len=512, max_num_seqs=4) as made:
        yield made


def greedy(**more):
    return SamplingParams(temperature=0, ignore_eos=True, **more)


def test_texts_and_ids_give_one_answer_each_in_order(llm):
    prompts = ["abc", [0, 70, 71, 72], {"prompt_token_ids": [0, 5]}, {"prompt": "abc"}]
    answers = llm.generate(prompts, greedy(max_tokens=6), progress=False)
    assert [answer.prompt for answer in answers] == ["abc", None, None, "abc"]
    assert answers[1].prompt_token_ids == [0, 70, 71, 72]
    assert all(len(answer.outputs[0].token_ids) == 6 for answer in answers)
    assert all(answer.outputs[0].finish_reason == "length" for answer in answers)
    assert answers[0].outputs[0].token_ids == answers[3].outputs[0].token_ids
    alone = llm.generate([0, 70, 71, 72], greedy(max_tokens=6), progress=False)[0]
    assert alone.outputs[0].token_ids == answers[1].outputs[0].token_ids


def test_an_answer_does_not_depend_on_its_company(llm):
    params = [SamplingParams(seed=i, max_tokens=12, ignore_eos=True) for i in range(9)]
    prompts = [[0] + [10 + i] * (3 * i + 1) for i in range(9)]
    together = llm.generate(prompts, params, progress=False)
    for prompt, one, answer in zip(prompts, params, together):
        alone = llm.generate([prompt], [one], progress=False)[0]
        assert alone.outputs[0].token_ids == answer.outputs[0].token_ids
    with LLM(MODEL, num_threads=2, max_model_len=512, speculative=False) as other:
        again = other.generate(prompts, params, progress=False)
    assert [a.outputs[0].token_ids for a in again] == [a.outputs[0].token_ids for a in together]


def test_choices_and_logprobs(llm):
    answer = llm.generate("two of them", SamplingParams(n=3, seed=1, max_tokens=8, logprobs=2), progress=False)[0]
    assert [output.index for output in answer.outputs] == [0, 1, 2]
    assert len({tuple(output.token_ids) for output in answer.outputs}) > 1
    for output in answer.outputs:
        assert len(output.logprobs) == len(output.token_ids)
        for token, logprob in zip(output.token_ids, output.logprobs):
            assert logprob.token_id == token and logprob.logprob <= 0 and len(logprob.top) == 2
        assert output.cumulative_logprob == pytest.approx(sum(one.logprob for one in output.logprobs))
    assert answer.outputs[1].explain["shared_tokens"] == len(answer.prompt_token_ids)


def test_chat_has_the_template(llm):
    answers = llm.chat([{"role": "user", "content": "hi"}], greedy(max_tokens=4), progress=False)
    assert len(answers) == 1 and len(answers[0].prompt_token_ids) > 2
    several = llm.chat([[{"role": "user", "content": "hi"}]] * 2, greedy(max_tokens=4), progress=False)
    assert [a.outputs[0].token_ids for a in several] == [answers[0].outputs[0].token_ids] * 2


def test_stop_ids_and_penalties_reach_the_sampler(llm):
    free = llm.generate("stop here", greedy(max_tokens=8), progress=False)[0].outputs[0].token_ids
    stopped = llm.generate("stop here", greedy(max_tokens=8, stop_token_ids=[free[2]]), progress=False)[0].outputs[0]
    assert stopped.token_ids == free[: free.index(free[2]) + 1] and stopped.finish_reason == "stop"
    banned = greedy(max_tokens=8, logit_bias={free[0]: -100.0})
    assert llm.generate("stop here", banned, progress=False)[0].outputs[0].token_ids[0] != free[0]


def test_what_cannot_run_is_refused(llm):
    with pytest.raises(RequestRefused, match="temperature"):
        llm.generate("a", SamplingParams(temperature=-1), progress=False)
    with pytest.raises(RequestRefused, match="token ids"):
        llm.generate([1, 2, 1 << 30], progress=False)
    with pytest.raises(ValueError, match="2 sampling parameters for 1 prompts"):
        llm.generate("a", [SamplingParams()] * 2, progress=False)
    with pytest.raises(ValueError, match="one rank"):
        LLM(MODEL, expert_parallel_size=4)
    with pytest.raises(EngineError) as error:
        LLM("/no/such/folder")
    assert error.value.code == "not_found"
    assert llm.generate("still works", greedy(max_tokens=2), progress=False)[0].outputs[0].token_ids


def test_the_progress_bar_counts_requests_and_tokens():
    out = io.StringIO()
    bar = ProgressBar("generate", 4, stream=out)
    bar.update(1, 10, 20, force=True)
    bar.update(4, 40, 80, force=True)
    bar.close()
    assert "1/4, 10 prompt and 20 output tokens" in out.getvalue()
    assert "4/4, 40 prompt and 80 output tokens" in out.getvalue() and out.getvalue().endswith("\n")


def test_describe_and_close():
    llm = LLM(MODEL, num_threads=1, max_model_len=256)
    assert llm.describe()["context"] == 256
    llm.close()
    llm.close()
    with pytest.raises(RuntimeError, match="closed"):
        llm.describe()
