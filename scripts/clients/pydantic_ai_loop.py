"""A tool loop and a typed result of Pydantic AI, over Chat Completions and over Messages.
Settings: OPENAI_BASE_URL, OPENAI_API_KEY, ANTHROPIC_BASE_URL, ANTHROPIC_API_KEY in the environment."""
from pydantic_ai import Agent

for model in ("openai-chat:DeepSeek-V4.1-Flash", "anthropic:DeepSeek-V4.1-Flash"):
    called = []
    agent = Agent(model, instructions="Use the tools.", model_settings={"temperature": 0, "max_tokens": 300}
                  if model.startswith("openai") else {"max_tokens": 300})

    @agent.tool_plain
    def calculate(x: int, y: int) -> int:
        """Multiply two numbers"""
        called.append((x, y))
        return x * y

    result = agent.run_sync("Use the tool for 326 times 509.")
    print(model, "called", called, "and said", repr(result.output))
    assert called and result.output
