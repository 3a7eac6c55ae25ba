"""Copying, reversing, sorting and counting words, and quoting one line of a longer text."""
from ..dialogue import Dialogue, assistant, pick_thinking, thought_of, user
from .words import WORDS

THOUGHT = dict(copy="The user wants a copy.", reverse="The user wants the reverse order.",
               sort_words="The user wants the words in order.", sort_numbers="The user wants the numbers in order.",
               quote="The user wants one line.")
KINDS = ["copy", "reverse", "sort_words", "sort_words", "sort_words", "sort_numbers", "sort_numbers", "count", "quote",
         "quote", "quote"]


def some_words(rng, count):
    return [rng.choice(WORDS) for _ in range(count)]


def copy_task(rng):
    if rng.random() < 0.3:
        text = " ".join(some_words(rng, rng.randrange(15, 50)))
        return "Repeat this text exactly: " + text, text, None
    text = rng.choice([" ", ", "]).join(some_words(rng, rng.randrange(1, 13)))
    return rng.choice(["Repeat exactly: ", "Copy this: ", "Say again: ", "Repeat: "]) + text, text, None


def reverse_task(rng):
    words, separator = some_words(rng, rng.randrange(2, 13)), rng.choice([" ", ", "])
    ask = rng.choice(["Reverse the order of these words: ", "Write these words backwards, last first: ", "Reverse: "])
    return ask + separator.join(words), separator.join(words[::-1]), None


def sort_words_task(rng):
    words, separator = rng.sample(WORDS, rng.choice([2, 3, 4, 5, 6, 7, 8, 8])), rng.choice([" ", ", "])
    ask = rng.choice(["Sort these words alphabetically: ", "Put in alphabetical order: ", "Sort these words: "])
    return ask + separator.join(words), separator.join(sorted(words)), None


def sort_numbers_task(rng):
    numbers, separator = [rng.randrange(100) for _ in range(rng.choice([2, 3, 4, 5, 6, 7, 8, 8]))], rng.choice([" ", ", "])
    ask = rng.choice(["Sort these numbers: ", "Sort from small to large: ", "Put these numbers in order: "])
    return ask + separator.join(map(str, numbers)), separator.join(map(str, sorted(numbers))), None


def count_task(rng):
    words = some_words(rng, rng.randrange(1, 13))
    ask = rng.choice(["How many words are in this list: ", "Count the words: "])
    count = len(words)
    answer = f"There {'is' if count == 1 else 'are'} {count} word{'' if count == 1 else 's'}."
    return ask + " ".join(words), answer, " ".join(f"{place + 1} {word}" for place, word in enumerate(words))


def quote_task(rng, num_lines=None):
    count = num_lines or rng.choice([3, 4, 6, 8, 10, 14, 20, 20, 30, 30, 40, 60, 80, 150])
    if rng.random() < 0.5 or count > 100:
        labels, noun = [str(place + 1) for place in range(count)], "line "
    else:
        labels, noun = rng.sample(WORDS, count), "the line "
    lines = [f"{label}: {' '.join(some_words(rng, rng.randrange(3, 9)))}" for label in labels]
    wanted = rng.randrange(count)
    ask = rng.choice(["Quote {}.", "What does {} say?", "Give me {}."]).format(noun + labels[wanted])
    return "\n".join(lines) + "\n\n" + ask, lines[wanted].split(": ", 1)[1], None


TASKS = dict(copy=copy_task, reverse=reverse_task, sort_words=sort_words_task, sort_numbers=sort_numbers_task,
             count=count_task, quote=quote_task)


def quote_dialogue(rng, thinking):
    """One text, several questions: more answers for the same reading."""
    question, answer, _ = quote_task(rng)
    text, ask = question.rsplit("\n\n", 1)
    lines = dict(line.split(": ", 1) for line in text.split("\n"))
    thought = thought_of(THOUGHT["quote"], thinking)
    messages = [user(question), assistant(answer, thought)]
    for label in rng.sample(list(lines), min(len(lines) - 1, 9)):
        noun = f"line {label}" if label.isdigit() else f"the line {label}"
        messages += [user(f"Quote {noun}."), assistant(lines[label], thought)]
    return Dialogue("lists", messages, thinking, check=dict(kind="quote"))


def make(rng, kind=None, single=False):
    kind = kind or rng.choice(KINDS)
    thinking = pick_thinking(rng, off=0.7)
    if kind == "quote" and not single and rng.random() < 0.85:
        return quote_dialogue(rng, thinking)
    question, answer, thought = TASKS[kind](rng)
    thought = thought_of(thought or THOUGHT[kind], thinking)
    return Dialogue("lists", [user(question), assistant(answer, thought)], thinking, check=dict(kind=kind))
