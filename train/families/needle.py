"""Secret codes planted in a long text, asked for afterwards."""
from ..dialogue import Dialogue, assistant, user
from .words import CITIES, NAMES, SYLLABLES, made_up_name


def code(rng):
    if rng.random() < 0.7:
        return "".join(rng.choice("0123456789") for _ in range(5))
    return "".join(rng.choice(SYLLABLES) for _ in range(3))


def make(rng, haystack, num_chars=None, num_keys=None):
    """haystack(rng, num_chars) gives a stretch of plain text."""
    num_chars = num_chars or rng.choice([300, 600, 1200, 2400, 4800])
    owners = list({rng.choice([made_up_name(rng), rng.choice(NAMES), rng.choice(CITIES)]): None
                   for _ in range(num_keys or rng.choice([1, 2, 4, 6, 8]))})
    codes = {owner: code(rng) for owner in owners}
    text = haystack(rng, num_chars)
    cuts = sorted(rng.randrange(len(text)) for _ in owners)
    parts, previous = [], 0
    for cut, owner in zip(cuts, owners):
        parts += [text[previous:cut], f"\nThe secret code of {owner} is {codes[owner]}.\n"]
        previous = cut
    body = "".join(parts) + text[previous:]
    messages = []
    for place, owner in enumerate(rng.sample(owners, min(6, len(owners)))):
        question = f"What is the secret code of {owner}?"
        messages += [user(body + "\n\n" + question if place == 0 else question),
                     assistant(f"The secret code of {owner} is {codes[owner]}.")]
    return Dialogue("needle", messages, "off")
