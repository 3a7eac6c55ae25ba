"""The fast packed model against the reference forward pass on the same weights.

    python3 -m train.tests.test_trunk TOKENIZER_FOLDER [cpu|cuda] [TOKENS] [sparse]

With `sparse` a top-k so small that selection and candidate filter bite in short documents; without it dense attention.
"""
import random
import sys
import tempfile

import numpy as np
import torch

from .. import checkpoint, mini, packing, parameters, reference
from ..tokenizer import PromptTokenizer
from ..trunk import Trunk


def lively(values, biases):
    """Random weights whose mixes, gates and biases are not at their neutral starting points."""
    generator = torch.Generator().manual_seed(5)
    for name, value in values.items():
        if value.dim() == 2 and "norm" in name:
            value.mul_(1 + 0.2 * torch.randn(value.shape, generator=generator))
        elif name.endswith("attn_sink") or name in ("draft_markov_head", "draft_confidence"):
            value.copy_(0.5 * torch.randn(value.shape, generator=generator))
    for value in biases.values():
        value.copy_(0.1 * torch.randn(value.shape, generator=generator))


def packed_batch(tokenizer, config, tokens, device):
    source = packing.Source("test", tokenizer, config, "some words " * 3000, np.arange(300, 3000, dtype=np.int32), (None,))
    packer, documents = packing.Packer(tokens, config), []
    families = ["images", "tools", "chat", "quote", "json", "arithmetic thinking"]
    while True:
        encoded = source.draw(families[len(documents) % len(families)])
        if not packer.add(encoded):
            break
        documents.append(encoded)
    arrays = packer.finish(np.random.default_rng(1))
    return documents, {name: torch.as_tensor(value).to(device) for name, value in arrays.items()}


def compare(trunk, model, documents, batch):
    with torch.no_grad():
        hidden, _ = trunk.forward(batch)
    begin, errors = 0, []
    for encoded in documents:
        spans = [(0, span.position, model.encode_image(span.canvas)) for span in encoded.spans]
        wanted = model.logits(model.forward(encoded.ids[None], spans)[0][0])
        mine = model.logits(hidden[begin:begin + len(encoded.ids)].to(model.device))
        error = float((mine - wanted).norm() / wanted.norm())
        agree = float((mine.argmax(-1) == wanted.argmax(-1)).float().mean())
        errors.append(error)
        print(f"{len(encoded.ids):5d} tokens {len(spans)} images: relative {error:.4f} argmax {agree:.3f}")
        begin += len(encoded.ids) + len(encoded.ids) % 2
    return errors


def main(folder, device="cpu", tokens="1024", sparse=""):
    tokens = int(tokens)
    tokenizer = PromptTokenizer(f"{folder}/tokenizer.json")
    config, token_map = mini.load_config(folder, **(dict(index_topk=32, candidate_topk_blocks=8) if sparse else {}))
    values, biases = parameters.initial(config)
    lively(values, biases)
    with tempfile.TemporaryDirectory() as saved:
        checkpoint.write(saved, values, biases, config, folder)
        model = reference.Reference.from_folder(saved, device)
    model.round_weights = False
    values = {name: value.to(device).requires_grad_() for name, value in values.items()}
    biases = {name: value.to(device) for name, value in biases.items()}
    trunk = Trunk(config, values, biases, token_map, tokens, compiled=device == "cuda")
    trunk.sparse = bool(sparse)
    documents, batch = packed_batch(tokenizer, config, tokens, device)
    errors = compare(trunk, model, documents, batch)
    loss, index_loss, *_ = trunk.losses(batch)
    (loss + index_loss).backward()
    missing = [name for name, value in values.items() if value.grad is None and not name.startswith("draft_")]
    print(f"loss {float(loss):.3f} index {float(index_loss):.3f}; no gradient: {missing}")
    # random weights are chaotic: one rounding that falls the other way grows from layer to layer
    assert not missing and min(errors) < (1e-3 if device == "cpu" else 0.2) and max(errors) < 0.6, errors


if __name__ == "__main__":
    main(*sys.argv[1:])
