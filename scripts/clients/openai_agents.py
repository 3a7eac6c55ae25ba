"""A tool loop of the OpenAI Agents SDK, over Responses (its default) and over Chat Completions.
Settings: OPENAI_BASE_URL, OPENAI_API_KEY in the environment."""
import agents
from agents import Agent, ModelSettings, Runner, function_tool

agents.set_tracing_disabled(True)  # its traces go to OpenAI
called = []


@function_tool
def calculate(x: int, y: int) -> int:
    """Multiply two numbers"""
    called.append((x, y))
    return x * y


for api in ("responses", "chat_completions"):
    called.clear()
    agents.set_default_openai_api(api)
    agent = Agent(name="Calculator", instructions="Use the tools.", model="DeepSeek-V4.1-Flash", tools=[calculate],
                  model_settings=ModelSettings(temperature=0, max_tokens=300))
    result = Runner.run_sync(agent, "Use the tool for 326 times 509.", max_turns=4)
    print(api, "called", called, "and said", repr(result.final_output))
    assert called == [(326, 509)]
    assert result.final_output
