"""Secret codes planted in a long text, asked for afterwards."""
from ..dialogue import Dialogue, assistant, user
from .words import CITIES, NAMES, SYLLABLES, WORDS, made_up_name

CHARACTERS_PER_TOKEN = 5.58     # of word salad
LONG_TOKENS = (2_000, 30_000)


def word_salad(rng, num_chars):
    words = rng.choices(WORDS, k=num_chars // 3)
    return " ".join(words)[:num_chars].rsplit(" ", 1)[0]


def code(rng):
    if rng.random() < 0.7:
        return "".join(rng.choice("0123456789") for _ in range(5))
    return "".join(rng.choice(SYLLABLES) for _ in range(3))


def make(rng, haystack, num_chars=None, num_keys=None, num_questions=6):
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
    for place, owner in enumerate(rng.sample(owners, min(num_questions, len(owners)))):
        question = f"What is the secret code of {owner}?"
        messages += [user(body + "\n\n" + question if place == 0 else question),
                     assistant(f"The secret code of {owner} is {codes[owner]}.")]
    return Dialogue("needle", messages, "off", check=dict(codes=codes))


def ask_other(dialogue):
    """The same text, asked about another owner: its prompt shares a long prefix with the dialogue's."""
    question = dialogue.messages[0]["content"]
    body, asked = question.rsplit("\n\n", 1)
    owner = next(owner for owner in dialogue.check["codes"] if f" {owner}?" not in asked)
    messages = [user(f"{body}\n\nWhat is the secret code of {owner}?"),
                assistant(f"The secret code of {owner} is {dialogue.check['codes'][owner]}.")]
    return Dialogue("needle", messages, "off", check=dialogue.check)


def make_long(rng, text_of):
    """Two to thirty thousand tokens, short ones more often; every key is asked for. text_of(rng, num_chars): package text."""
    low, high = LONG_TOKENS
    tokens = low * (high / low) ** rng.random()
    chars = int((tokens - 350) * CHARACTERS_PER_TOKEN)
    haystack = text_of if rng.random() < 0.3 and chars < 40_000 else word_salad
    return make(rng, haystack, chars, rng.choice([1, 2, 4, 8, 12]), 12)


def make_exact(rng, tokens, num_keys):
    """One question over a text of about so many tokens: what is scored."""
    return make(rng, word_salad, int((tokens - 60) * CHARACTERS_PER_TOKEN), num_keys, 1)
