"""Images of simple shapes, one digit or one short word, in several sizes and aspect ratios."""
import numpy as np

from ..dialogue import Dialogue, assistant, pick_thinking, thought_of, user

PALETTE = dict(red=(220, 30, 30), green=(30, 160, 50), blue=(40, 60, 220), yellow=(240, 220, 40), black=(15, 15, 15),
               purple=(140, 40, 160), orange=(245, 140, 20))
BACKGROUNDS = [(255, 255, 255), (245, 240, 220), (225, 235, 245), (200, 200, 200)]
NUMBER_WORDS = ["zero", "one", "two", "three", "four", "five"]
SHORT_WORDS = """CAT DOG SUN RED BUS CUP HAT MAP PEN KEY BOX FOX ICE TEA CAR BED BAG BEE COW EGG FAN GEM JAM LEG MUD NET
OWL PIG RAT TOP""".split()
# width, height of the canvas the model sees; the first five are the ones that are scored
SIZES = [(126, 126), (168, 168), (210, 210), (252, 126), (126, 252)]
EXTRA_SIZES = [(168, 126), (126, 168), (252, 168), (210, 126), (294, 210), (252, 252)]
SHAPES = ["circle", "square", "triangle"]
_fonts = {}


def font(size, face):
    from PIL import ImageFont
    key = (size, face)
    if key not in _fonts:
        _fonts[key] = ImageFont.truetype(face, size) if face else ImageFont.load_default(size=size)
    return _fonts[key]


def draw_shape(draw, shape, x, y, radius, fill):
    if shape == "circle":
        draw.ellipse((x - radius, y - radius, x + radius, y + radius), fill=fill)
    elif shape == "square":
        draw.rectangle((x - radius, y - radius, x + radius, y + radius), fill=fill)
    else:
        draw.polygon([(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)], fill=fill)


def draw_shapes(rng, draw, width, height):
    count, shape, color = rng.randrange(1, 6), rng.choice(SHAPES), rng.choice(list(PALETTE))
    columns, rows = (3, 3) if width == height else (4, 2) if width > height else (2, 4)
    cell_x, cell_y = width / columns, height / rows
    radius_top = min(cell_x, cell_y) / 2
    for cell in rng.sample(range(columns * rows), count):
        radius = radius_top * rng.uniform(0.5, 0.85)
        slack = radius_top - radius
        x = (cell % columns + 0.5) * cell_x + rng.uniform(-slack, slack)
        y = (cell // columns + 0.5) * cell_y + rng.uniform(-slack, slack)
        draw_shape(draw, shape, x, y, radius, PALETTE[color])
    return rng.choice([
        (["What do you see?", "Describe the image.", "What is in this image?"], f"{NUMBER_WORDS[count]} {color} {shape}{'s' if count > 1 else ''}"),
        (["How many shapes are there?", "Count the shapes."], NUMBER_WORDS[count]),
        (["What colour are the shapes?", "Which colour is it?"], color),
        (["What kind of shape is it?", "Which shape is it?"], shape)])


def draw_text(rng, draw, width, height, text, size, face):
    fill = PALETTE[rng.choice(["black", "blue", "red"])]
    box = draw.textbbox((0, 0), text, font=font(size, face))
    slack_x, slack_y = (width - (box[2] - box[0])) / 2, (height - (box[3] - box[1])) / 2
    x = width / 2 + rng.uniform(-1, 1) * max(0, slack_x - 4)
    y = height / 2 + rng.uniform(-1, 1) * max(0, slack_y - 4)
    draw.text((x, y), text, font=font(size, face), fill=fill, anchor="mm")


def draw_image(rng, size, faces):
    """-> array, question, answer"""
    from PIL import Image, ImageDraw
    width, height = size
    image = Image.new("RGB", size, rng.choice(BACKGROUNDS))
    draw = ImageDraw.Draw(image)
    kind, short = rng.random(), min(width, height)
    if kind < 0.5:
        questions, answer = draw_shapes(rng, draw, width, height)
    elif kind < 0.75:
        answer = str(rng.randrange(10))
        draw_text(rng, draw, width, height, answer, int(short * rng.uniform(0.55, 0.85)), rng.choice(faces))
        questions = ["Which digit is shown?", "What digit do you see?", "Read the digit."]
    else:
        answer = rng.choice(SHORT_WORDS)
        draw_text(rng, draw, width, height, answer, int(short * rng.uniform(0.30, 0.38)), rng.choice(faces))
        questions = ["Which word is shown?", "What word do you see?", "Read the word."]
    return np.asarray(image), rng.choice(questions), answer


def make(rng, faces=(None,), sizes=None):
    count = 1 if rng.random() < 0.75 else 2
    pool = sizes or SIZES + SIZES + EXTRA_SIZES
    drawn = [draw_image(rng, rng.choice(pool), faces) for _ in range(count)]
    blocks = [{"type": "image", "index": place} for place in range(count)]
    if count == 1:
        question, answer = drawn[0][1], drawn[0][2] + "."
        answer = answer[0].upper() + answer[1:]
    else:
        question = f"First image: {drawn[0][1]} Second image: {drawn[1][1]}"
        answer = f"First: {drawn[0][2]}. Second: {drawn[1][2]}."
    thinking = pick_thinking(rng, off=0.7)
    thought = "I look at the image." if count == 1 else "I look at both images."
    blocks.append({"type": "text", "text": question})
    if rng.random() < 0.2:
        blocks = blocks[-1:] + blocks[:-1]
    return Dialogue("images", [user(blocks), assistant(answer, thought_of(thought, thinking))], thinking,
                    images=[item[0] for item in drawn])
