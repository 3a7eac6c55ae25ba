"""Our prompt rendering and encoding against the published encoder (package deepseek-recipe, used by this test only).

    python3 -m train.tests.test_prompt TOKENIZER_FOLDER
"""
import random
import sys

from deepseek_recipe import ChatCompletionRequest, ConversionOptions, DeepseekV41Encoding, SpecialTokens, Tokenizer

from .. import chat_bodies, prompt
from ..families import arithmetic, chat, extraction, images, injection, lists, tools
from ..tokenizer import PromptTokenizer

NUM_DIALOGUES = 300


def main(folder):
    path = f"{folder}/tokenizer.json"
    encoder = DeepseekV41Encoding().with_special_tokens(SpecialTokens(image=prompt.IMAGE)).with_tokenizer(Tokenizer.from_file(path))
    ours, rng, compared = PromptTokenizer(path), random.Random("prompt test"), 0
    for make in (arithmetic.make, chat.make, extraction.make, images.make, injection.make, lists.make, tools.make):
        for _ in range(NUM_DIALOGUES // (10 if make is images.make else 1)):
            dialogue = make(rng)
            for count in [n for n, message in enumerate(dialogue.messages) if message["role"] == "assistant"]:
                runs = prompt.render(dialogue, count)
                body = chat_bodies.request_body(dialogue, count)
                conversation = ChatCompletionRequest(body).convert(ConversionOptions()).conversation
                theirs = encoder.render_conversation(conversation).prompt.replace("<｜image｜>", prompt.IMAGE)
                assert prompt.text_of(runs) == theirs, (prompt.text_of(runs), theirs)
                if not dialogue.images:
                    assert list(ours.encode_runs(runs)[0]) == encoder.encode(conversation)
                compared += 1
    print(compared, "prompts equal, byte for byte and id for id")


if __name__ == "__main__":
    main(*sys.argv[1:])
