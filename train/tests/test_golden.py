"""The reference forward pass against the recorded golden values of model A.

    python3 -m train.tests.test_golden [MODEL_A_FOLDER] [DEVICE]
"""
import sys

import numpy as np
import torch

from .. import checkpoint, reference

NEAR_EXACT_PREFILL, NEAR_EXACT_DECODE = (1, 2, 3, 15, 16, 17), (1, 2, 3, 15)


def array(entry):
    tag, data = entry
    return (data.astype(np.uint32) << 16).view(np.float32) if tag == "BF16" else data


def relative(mine, golden):
    mine, golden = mine.float().cpu().numpy().reshape(golden.shape), golden.astype(np.float32)
    return float(np.sqrt(np.square(mine - golden).sum() / max(np.square(golden).sum(), 1e-30)))


def check_prompts(model, folder):
    golden = {name: array(entry) for name, entry in checkpoint.load_safetensors(f"{folder}/golden/prompts.safetensors").items()}
    pooled = []
    for length in (1, 2, 3, 15, 16, 17, 31, 33, 64, 97, 200):
        tokens, fed = golden[f"p{length}.tokens"], golden[f"p{length}.decode_tokens"]
        hidden, state = model.forward(np.concatenate((tokens, fed))[None])
        logits = model.logits(hidden[0]).cpu().numpy()
        prefill = np.abs(logits[length - 1] - golden[f"p{length}.logits"]).max()
        wanted = golden[f"p{length}.decode_logits"]
        decode = np.abs(logits[length:] - wanted).max()
        rms = np.sqrt(np.square(logits[length:] - wanted).mean())
        agree = (logits[:length].argmax(-1) == golden[f"p{length}.argmax"]).mean()
        rings, same, conf = model.draft_rings(state), 0, 0.0
        for step in range(len(fed)):
            drafted, confidence, _ = model.draft(rings, length + step, int(golden[f"p{length}.draft_anchor"][step]))
            same += int(drafted == golden[f"p{length}.draft_ids"][step].tolist())
            conf = max(conf, abs(confidence[0] - golden[f"p{length}.draft_conf"][step][0]))
        print(f"p{length}: prefill max {prefill:.4f} decode max {decode:.4f} rms {rms:.4f} argmax {agree:.2f} "
              f"drafts {same}/{len(fed)} confidence {conf:.3f}")
        assert length not in NEAR_EXACT_PREFILL or prefill <= 0.05
        assert length not in NEAR_EXACT_DECODE or decode <= 0.15
        assert rms <= 0.4 and agree >= 0.8
        pooled.append(rms)
    assert np.sqrt(np.mean(np.square(pooled))) <= 0.3


def check_layers(model, folder):
    golden = {name: array(entry) for name, entry in checkpoint.load_safetensors(f"{folder}/golden/trace_prefill.safetensors").items()}
    tokens = golden["tokens"] if "tokens" in golden else None
    state = model.start_pass(np.asarray(tokens)[None], trace={})
    for layer in range(model.config.num_hidden_layers):
        x = torch.from_numpy(golden[f"L{layer}.x_in"]).bfloat16()[None].to(model.device)
        pre = torch.tensor(golden[f"L{layer}.pre_in"])[None].to(model.device)
        path = f"layers.{layer}."
        out, _ = model.block(x, pre, layer, path, lambda u: model.attend(u, layer, path, state), state.is_image,
                             model.config.num_experts_per_tok)
        wanted = golden.get(f"L{layer}.x_out", golden.get(f"L{layer + 1}.x_in"))
        if layer + 1 in model.config.engram_layer_ids and f"L{layer}.x_out" not in golden:
            wanted = None            # the next entry already has the engram added
        error = relative(out, wanted) if wanted is not None else float("nan")
        attention = relative(state.trace[f"L{layer}.attn_o"], golden[f"L{layer}.attn_o"]) if f"L{layer}.attn_o" in golden else 0.0
        line = f"layer {layer}: x_out {error:.2e} attn_o {attention:.2e}"
        if f"L{layer}.topk" in golden:
            line += f" topk equal {np.array_equal(np.sort(state.trace[f'L{layer}.topk'][0].cpu().numpy()), np.sort(golden[f'L{layer}.topk']))}"
        print(line)
        assert not error > 1e-3 and attention <= 1e-3


def check_vision(model, folder):
    golden = {name: array(entry) for name, entry in checkpoint.load_safetensors(f"{folder}/golden/vision.safetensors").items()}
    spans = [model.encode_image(golden[f"img{k}.canvas"]) for k in (0, 2)]
    tokens, types = golden["mm.tokens"], golden["mm.types"]
    starts = np.flatnonzero(types == 0)
    for start, span in zip(starts, spans):
        error = relative(span, golden["mm.embed_rows"][start:start + len(span)])
        print(f"image rows {error:.2e}")
        assert error <= 0.01
    hidden, _ = model.forward(np.asarray(tokens)[None], [(0, start, span) for start, span in zip(starts, spans)])
    error = np.sqrt(np.square(model.logits(hidden[0, -1]).cpu().numpy() - golden["mm.logits"].reshape(-1)).mean())
    print(f"prompt with images: logits rms {error:.3f}")
    assert error <= 0.4


def main(folder="testdata/model_a", device="cpu"):
    model = reference.Reference.from_folder(folder, device)
    check_layers(model, folder)
    check_prompts(model, folder)
    check_vision(model, folder)
    print("golden A: ok")


if __name__ == "__main__":
    main(*sys.argv[1:])
