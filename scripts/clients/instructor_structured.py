"""Structured output with instructor: a Pydantic model out of a sentence, by tools and by JSON schema.
Settings: OPENAI_BASE_URL, OPENAI_API_KEY in the environment."""
import instructor
from instructor.core.exceptions import InstructorRetryException
from pydantic import BaseModel


class Meeting(BaseModel):
    day: str
    city: str
    people: list[str]
    hour: int


SENTENCE = "Extract the data from this text: Meeting in Lisbon, Monday, 9 o'clock. Guests: Xavier, Mia and Tina."
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_provider("openai/DeepSeek-V4.1-Flash", mode=mode)
    try:
        meeting = client.create(response_model=Meeting, messages=[{"role": "user", "content": SENTENCE}],
                                temperature=0, max_tokens=400, max_retries=2)
        print(mode.value, "gave", meeting)
    except InstructorRetryException as error:  # the client worked; the model's JSON did not fit
        print(mode.value, "was answered", error.n_attempts, "times without a fitting object:", str(error)[:200])
        assert error.n_attempts >= 1
