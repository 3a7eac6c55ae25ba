"""Engram hashing: the token map, the primes and the multipliers, derived from the tokenizer and the configuration."""
import re
import unicodedata

import numpy as np

WHITE_SPACE = {chr(code) for code in [9, 10, 11, 12, 13, 32, 0x85, 0xa0, 0x1680, *range(0x2000, 0x200b), 0x2028, 0x2029,
                                      0x202f, 0x205f, 0x3000]}
SEED_STEP = 10007


def byte_characters():
    """Byte-level alphabet: byte value for each character of a vocabulary piece."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, shifted = {}, 0
    for byte in range(256):
        if byte in kept:
            table[chr(byte)] = byte
        else:
            table[chr(256 + shifted)] = byte
            shifted += 1
    return table


def normalise(text):
    text = unicodedata.normalize("NFD", unicodedata.normalize("NFKC", text))
    text = "".join(char for char in text if not unicodedata.category(char).startswith("M"))
    text = re.sub(r"[ \t\r\n]+", " ", "".join(char.lower() for char in text))
    if text == " ":
        return text
    start, end = 0, len(text)
    while start < end and text[start] in WHITE_SPACE:
        start += 1
    while end > start and text[end - 1] in WHITE_SPACE:
        end -= 1
    return text[start:end]


def token_map(tokenizer_document):
    """One compressed id per token id, numbered in order of first appearance of the normal form."""
    to_byte = byte_characters()
    special = {token["id"]: token["content"] for token in tokenizer_document["added_tokens"]}
    pieces = {number: piece for piece, number in tokenizer_document["model"]["vocab"].items()}
    numbers, result = {}, []
    for token in range(max(max(special), max(pieces)) + 1):
        text = special.get(token) or bytes(to_byte[char] for char in pieces[token]).decode("utf-8", "replace")
        key = (special.get(token) or pieces[token]) if "\ufffd" in text else (normalise(text) or text)
        result.append(numbers.setdefault(key, len(numbers)))
    return np.array(result, np.int64)


def is_prime(number):
    return number > 1 and all(number % divisor for divisor in range(2, int(number ** 0.5) + 1))


def primes(num_layers, max_ngram, num_heads, start):
    """[layer][n - 2][head]; no prime is used twice in the model."""
    used, layers = set(), []
    for _ in range(num_layers):
        layers.append([])
        for _ in range(max_ngram - 1):
            row, candidate = [], start - 1
            while len(row) < num_heads:
                candidate += 1
                if candidate not in used and is_prime(candidate):
                    used.add(candidate)
                    row.append(candidate)
            layers[-1].append(row)
    return layers


def multipliers(layer_id, num_compressed, count=4):
    bound = max(1, ((2 ** 63 - 1) // num_compressed) // 2)
    draws = np.random.default_rng(SEED_STEP * layer_id).integers(0, bound, size=count)
    return [2 * int(draw) + 1 for draw in draws]


def hash_rows(context_ids, is_image, positions, pad, config):
    """Rows of every engram table for a flat array of tokens.

    context_ids: compressed ids; pad: the compressed id of the pad token; positions restart at every document.
    -> int64 [layers, tokens, columns]
    """
    blocked = is_image.copy()
    shifted = [np.where(blocked, pad, context_ids)]
    for distance in range(1, config.engram_max_ngram_size):
        previous = np.roll(context_ids, distance)
        blocked = blocked | (positions < distance) | np.roll(is_image, distance)
        shifted.append(np.where(blocked, pad, previous))
    layers = []
    for layer, table_primes in zip(config.engram_layer_ids, config.engram_primes):
        factors = multipliers(layer, config.engram_compressed_vocab_size, config.engram_max_ngram_size)
        mixed, columns, offset = shifted[0] * factors[0], [], 0
        for row, distance in zip(table_primes, range(1, config.engram_max_ngram_size)):
            mixed = mixed ^ (shifted[distance] * factors[distance])
            for prime in row:
                columns.append(mixed % prime + offset)
                offset += prime
        layers.append(np.stack(columns, 1))
    return np.stack(layers)
