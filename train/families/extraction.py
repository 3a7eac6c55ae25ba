"""JSON: named fields of a small text, into a given schema."""
from ..dialogue import Dialogue, assistant, pick_thinking, thought_of, user
from ..prompt import spell_json
from .words import ANIMALS, CITIES, COLORS, DAYS, FRUITS, JOBS, NAMES, OBJECTS, made_up_name


def person(rng):
    name = rng.choice(NAMES + [made_up_name(rng)])
    age, city, job, pet = rng.randrange(18, 80), rng.choice(CITIES), rng.choice(JOBS), rng.choice(ANIMALS)
    color, married = rng.choice(COLORS), rng.random() < 0.5
    sentences = [rng.choice([f"{name} is {age} years old.", f"The age of {name} is {age}."]),
                 rng.choice([f"{name} lives in {city}.", f"The home of {name} is {city}."]),
                 rng.choice([f"{name} works as a {job}.", f"{name} is a {job}."]),
                 f"{name} has a {pet}.", f"The favourite colour of {name} is {color}.",
                 f"{name} is {'married' if married else 'not married'}."]
    rng.shuffle(sentences)
    return " ".join(sentences), dict(name=name, age=age, city=city, job=job, pet=pet, color=color, married=married)


def order(rng):
    item, quantity, price = rng.choice(FRUITS + OBJECTS), rng.randrange(1, 60), rng.randrange(1, 200)
    city, paid = rng.choice(CITIES), rng.random() < 0.5
    text = rng.choice([
        f"Order: {quantity} pieces of {item} at {price} dollars each, to be sent to {city}. It is {'' if paid else 'not '}paid.",
        f"Please send {quantity} {item} to {city}, the price is {price} dollars. {'Already paid.' if paid else 'Not yet paid.'}"])
    return text, dict(item=item, quantity=quantity, price=price, city=city, paid=paid)


def meeting(rng):
    day, hour, city = rng.choice(DAYS), rng.randrange(7, 20), rng.choice(CITIES)
    people = rng.sample(NAMES, rng.choice([1, 2, 3]))
    listed = people[0] if len(people) == 1 else ", ".join(people[:-1]) + " and " + people[-1]
    text = rng.choice([f"On {day} at {hour} we meet in {city} with {listed}.",
                       f"Meeting in {city}, {day}, {hour} o'clock. Guests: {listed}."])
    return text, dict(day=day, hour=hour, city=city, people=people)


def type_of(value):
    if isinstance(value, bool):
        return {"type": "boolean"}
    if isinstance(value, list):
        return {"type": "array", "items": {"type": "string"}}
    return {"type": "integer" if isinstance(value, int) else "string"}


ASKS = ["Extract the data from this text: ", "Fill in the schema from: ", "Give me JSON for: ", "Read this: ", ""]


def make(rng):
    text, facts = rng.choice([person, person, order, meeting])(rng)
    keys = rng.sample(list(facts), rng.randrange(2, min(6, len(facts)) + 1))
    values = {key: facts[key] for key in keys}
    thinking = pick_thinking(rng, off=0.65)
    answer = assistant(spell_json(values), thought_of(f"I fill in {', '.join(keys)}.", thinking))
    if rng.random() < 0.15:
        question = f"Give me JSON with {', '.join(keys)} for: {text}"
        return Dialogue("json", [user(question), answer], thinking, response_schema={"type": "json_object"})
    schema = {"type": "object", "properties": {key: type_of(values[key]) for key in keys}, "required": keys}
    if rng.random() < 0.3:
        schema["additionalProperties"] = False
    return Dialogue("json", [user(rng.choice(ASKS) + text), answer], thinking, response_schema=schema)
