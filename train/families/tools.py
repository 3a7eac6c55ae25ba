"""Tool dialogues: the right tool of up to five, right arguments, parallel calls, results, and no tool when none fits.

Names of tools and parameters vary, so the answer has to be read off the schemas in the prompt.
"""
from dataclasses import dataclass

from ..dialogue import Dialogue, assistant, pick_thinking, thought_of, tool_result, user
from .chat import simple_question
from .words import CITIES, DAYS, NAMES, WORDS, is_chinese, made_up_name


@dataclass
class Tool:
    names: list
    description: str
    parameters: list      # per parameter: (spellings, JSON type, draw a value)
    asks: list            # question templates over {0}, {1}, ...
    result: callable      # (rng, values) -> what the tool answers
    final: str            # the closing sentence over {0}, {1}, ... and {r}


def city(rng):
    return rng.choice(CITIES)


def word(rng):
    return rng.choice(WORDS)


def person(rng):
    return rng.choice(NAMES)


def day(rng):
    return rng.choice(DAYS)


def number(low, high):
    return lambda rng: rng.randrange(low, high)


def pick(*texts):
    return lambda rng, values: rng.choice(texts)


TOOLS = [
    Tool(["get_weather", "weather", "current_weather"], "Get the weather of a city",
         [(["city", "location", "place"], "string", city)],
         ["What is the weather in {0}?", "How is the weather in {0} today?", "Is it raining in {0}?", "{0}的天气怎么样？"],
         pick("sunny", "rain", "snow", "cloudy"), "The weather in {0}: {r}."),
    Tool(["get_time", "local_time", "clock"], "Get the local time of a city",
         [(["city", "location", "place"], "string", city)], ["What time is it in {0}?", "Tell me the time in {0}.", "{0}现在几点？"],
         lambda rng, values: f"{rng.randrange(24)}:{rng.randrange(10, 60)}", "It is {r} in {0}."),
    Tool(["search", "web_search", "find_pages"], "Search the web",
         [(["query", "text"], "string", word), (["limit", "count"], "integer", number(1, 30))],
         ["Search the web for {0}, {1} results.", "Find {1} pages about {0}."],
         pick("pages found", "nothing found"), "I searched for {0}: {r}."),
    Tool(["send_mail", "send_email", "mail"], "Send an e-mail",
         [(["to", "recipient"], "string", person), (["text", "body"], "string", lambda rng: f"see you on {day(rng)}")],
         ["Send a mail to {0}: {1}.", "Write to {0}: {1}.", "Mail {0} that {1}."], pick("sent", "delivered"), "The mail to {0} is {r}."),
    Tool(["set_alarm", "alarm", "wake_me"], "Set an alarm",
         [(["hour", "hours"], "integer", number(0, 24)), (["minute", "minutes"], "integer", number(10, 60))],
         ["Wake me at {0}:{1}.", "Set an alarm for {0}:{1}."], pick("ok", "done"), "The alarm for {0}:{1} is set."),
    Tool(["translate", "translate_word", "dictionary"], "Translate a word",
         [(["word", "text"], "string", word), (["language", "to"], "string", lambda rng: rng.choice(["French", "German", "Spanish"]))],
         ["Translate {0} into {1}.", "What is {0} in {1}?"],
         lambda rng, values: made_up_name(rng).lower(), "{0} in {1} is {r}."),
    Tool(["get_stock", "stock", "count_items"], "Number of items in stock",
         [(["item", "product"], "string", word)], ["How many {0} items are in stock?", "Check the stock of {0}."],
         lambda rng, values: str(rng.randrange(100, 1000)), "There are {r} {0} items in stock."),
    Tool(["book_train", "train_ticket", "book_seats"], "Book a train",
         [(["to", "city"], "string", city), (["day", "date"], "string", day), (["seats", "count"], "integer", number(1, 9))],
         ["Book {2} seats on the train to {0} on {1}.", "I need {2} train seats to {0}, {1}."], pick("booked", "sold out"),
         "The train to {0}: {r}."),
    Tool(["lights", "switch_light", "set_lamp"], "Switch the lights of a room",
         [(["room", "place"], "string", word), (["on", "state"], "boolean", lambda rng: rng.random() < 0.5)],
         ["Switch the light in the {0} room {1}.", "Turn the {0} room light {1}."], pick("done", "ok"), "The {0} room light: {r}."),
    Tool(["add_note", "save_note", "note"], "Store a note",
         [(["title", "text"], "string", word)], ["Make a note with the title {0}.", "Note down: {0}."], pick("stored", "saved"), "The note {0} is {r}."),
    Tool(["calculate", "multiply", "product"], "Multiply two numbers",
         [(["a", "x"], "integer", number(10, 1000)), (["b", "y"], "integer", number(10, 1000))],
         ["Multiply {0} and {1} with the tool.", "Use the tool for {0} times {1}."],
         lambda rng, values: str(values[0] * values[1]), "The product of {0} and {1} is {r}."),
    Tool(["play_music", "play", "start_music"], "Play music",
         [(["song", "title"], "string", lambda rng: f"{word(rng)} {word(rng)}"), (["volume", "level"], "integer", number(1, 11))],
         ["Play the song {0} at volume {1}.", "Play {0}, volume {1}."], pick("playing", "started"), "The song {0} is {r}."),
]


@dataclass
class Offer:
    """A tool as this dialogue spells it."""
    tool: Tool
    name: str
    keys: list

    def schema(self):
        properties = {key: {"type": kind} for key, (_, kind, _) in zip(self.keys, self.tool.parameters)}
        return {"name": self.name, "description": self.tool.description,
                "parameters": {"type": "object", "properties": properties, "required": self.keys}}

    def ask(self, rng):
        """-> question, argument values, result, closing sentence"""
        values = [draw(rng) for _, _, draw in self.tool.parameters]
        spoken = [("on" if value else "off") if isinstance(value, bool) else value for value in values]
        result = self.tool.result(rng, values)
        question = rng.choice(self.tool.asks).format(*spoken)
        return question, dict(zip(self.keys, values)), result, self.tool.final.format(*spoken, r=result)


def make_offers(rng, count):
    offers, used = [], set()
    for tool in rng.sample(TOOLS, count):
        name = rng.choice([name for name in tool.names if name not in used])
        used.add(name)
        offers.append(Offer(tool, name, [rng.choice(spellings) for spellings, _, _ in tool.parameters]))
        while len(set(offers[-1].keys)) < len(offers[-1].keys):
            offers[-1].keys = [rng.choice(spellings) for spellings, _, _ in tool.parameters]
    return offers


def turn_without_call(rng, offers, thinking):
    if rng.random() < 0.5:
        offered = {offer.tool.names[0] for offer in offers}
        missing = make_offers(rng, len(TOOLS))
        question = rng.choice([offer for offer in missing if offer.tool.names[0] not in offered]).ask(rng)[0]
        answer, thought = "I have no tool for that.", "No tool fits."
        if is_chinese(question):
            answer, thought = "我没有合适的工具。", "没有合适的工具。"
    else:
        question, answer = simple_question(rng)
        thought = "不需要工具。" if is_chinese(question) else "No tool is needed."
    return [user(question), assistant(answer, thought_of(thought, thinking))]


def turn_with_calls(rng, offers, thinking, turn):
    count = 1 if rng.random() < 0.65 else 2 if rng.random() < 0.8 else 3
    chosen = [rng.choice(offers) for _ in range(count)]
    asked = [offer.ask(rng) for offer in chosen]
    question = rng.choice([" ", " And: ", "\n"]).join(item[0] for item in asked)
    calls = [(f"call_{turn}_{place}", offer.name, item[1]) for place, (offer, item) in enumerate(zip(chosen, asked))]
    names = " and ".join(offer.name for offer in chosen)
    messages = [user(question), assistant("", thought_of(f"I use {names}.", thinking), calls)]
    messages += [tool_result(call[0], item[2]) for call, item in zip(calls, asked)]
    messages.append(assistant(" ".join(item[3] for item in asked), thought_of("I have the result.", thinking)))
    return messages


def make(rng, num_turns=None):
    offers = make_offers(rng, rng.randrange(1, 6))
    thinking = pick_thinking(rng, off=0.6)
    messages = []
    for turn in range(num_turns or rng.choice([1, 2, 3, 4])):
        if rng.random() < 0.25:
            messages += turn_without_call(rng, offers, thinking)
        else:
            messages += turn_with_calls(rng, offers, thinking, turn)
    return Dialogue("tools", messages, thinking, tools=[offer.schema() for offer in offers])
