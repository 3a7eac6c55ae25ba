"""Sums, differences and products of small numbers, answered at once or with written steps.

Without thinking only what can be looked up is asked: + and - up to 99, products up to 9 x 9. With thinking three-digit
sums and two-digit by one-digit products are added; their steps use nothing but small table facts.
"""
from ..dialogue import Dialogue, assistant, pick_thinking, thought_of, user

WORD = {"+": "plus", "-": "minus", "*": "times"}
QUESTIONS = ["What is {a} {op} {b}?", "{a} {op} {b} =", "{a} {op} {b} = ?", "Calculate {a} {op} {b}.",
             "What is {a} {word} {b}?", "计算 {a} {op} {b}。", "{a} {op} {b}", "{a}{op}{b}=?"]


def value_of(a, op, b):
    return a + b if op == "+" else a - b if op == "-" else a * b


def sum_steps(a, b):
    steps, carry = [], 0
    for _ in range(max(len(str(a)), len(str(b)))):
        digit_a, digit_b, a, b = a % 10, b % 10, a // 10, b // 10
        total = digit_a + digit_b + carry
        steps.append(f"{digit_a} + {digit_b}{' + 1' if carry else ''} = {total}, write {total % 10}"
                     + (", carry 1." if total > 9 else "."))
        carry = total // 10
    return " ".join(steps) + (" Write 1." if carry else "")


def difference_steps(a, b):
    if a < b:
        return f"{a} is less than {b}, so minus. " + difference_steps(b, a)
    steps, borrow = [], 0
    for _ in range(len(str(a))):
        digit_a, digit_b, a, b = a % 10, b % 10, a // 10, b // 10
        total = digit_a - digit_b - borrow
        steps.append(f"{digit_a} - {digit_b}{' - 1' if borrow else ''} = {total}"
                     + (f", borrow, write {total + 10}." if total < 0 else f", write {total}."))
        borrow = int(total < 0)
    return " ".join(steps)


def product_steps(a, b):
    if a < 10:
        return f"{a} * {b} = {a * b}."
    tens, ones = divmod(a, 10)
    low, high = ones * b, tens * b
    carry = low // 10
    steps = f"{ones} * {b} = {low}, write {low % 10}" + (f", carry {carry}. " if carry else ". ")
    steps += f"{tens} * {b} = {high}"
    return steps + (f", {high} + {carry} = {high + carry}, write {high + carry}." if carry else f", write {high}.")


def reasoning(a, op, b, thinking):
    steps = {"+": sum_steps, "-": difference_steps, "*": product_steps}[op](a, b)
    result = value_of(a, op, b)
    check = {"+": f"{result} - {b} = {a}.", "-": f"{result} + {b} = {a}.", "*": f"{b} * {a} = {result}."}[op]
    return thought_of(f"{steps} So {result}.", thinking, check)


def small_task(rng):
    """What is also asked without thinking."""
    op = rng.choice("++--*")
    if op == "*":
        return rng.randrange(10), op, rng.randrange(10)
    top = rng.choice([10, 20, 100, 100, 100, 100])
    a, b = rng.randrange(top), rng.randrange(top)
    if op == "-" and a < b and rng.random() < 0.8:
        a, b = b, a
    return a, op, b


def long_task(rng):
    """Two-digit by one-digit products and three-digit sums."""
    if rng.random() < 0.5:
        return rng.randrange(10, 100), "*", rng.randrange(2, 10)
    return rng.randrange(100, 1000), "+", rng.randrange(100, 1000)


def exchange(rng, task, thinking):
    a, op, b = task
    question = rng.choice(QUESTIONS).format(a=a, b=b, op=op, word=WORD[op])
    return [user(question), assistant(f"{a} {op} {b} = {value_of(a, op, b)}", reasoning(a, op, b, thinking))]


def make(rng, kind=None, thinking=None):
    kind = kind or rng.choice(["small", "small", "long"])
    if thinking is None:
        thinking = pick_thinking(rng, off=0.6) if kind == "small" else pick_thinking(rng, off=0.0)
    task = small_task if kind == "small" else long_task
    messages = []
    for _ in range(rng.choice([1, 2, 3, 4]) if thinking == "off" else 1):
        messages += exchange(rng, task(rng), thinking)
    return Dialogue("arithmetic", messages, thinking)
