"""A short look at everything on a GPU: kernels, golden values, some training steps, and packed against reference.

    python3 -m train.tests.smoke MODEL_A_FOLDER -- ARGUMENTS OF train.run
"""
import os
import sys
import time
import traceback

import numpy as np
import torch

from .. import kernels, quantise, reference, run
from . import test_golden, test_trunk


def relative(mine, wanted):
    return float((mine.float() - wanted.float()).norm() / wanted.float().norm())


def check_kernels():
    torch.manual_seed(0)
    x = torch.randn(5000, 4, 256, device="cuda").bfloat16()
    weight = torch.randn(24, 1024, device="cuda")
    products, squares = kernels.mix_dot(x.flatten(1), weight)
    print("mix_dot", relative(products, x.flatten(1).double() @ weight.double().t()), relative(squares, x.double().flatten(1).square().sum(1)))
    logits = torch.randn(5000, 4, 4, device="cuda") * 2
    print("sinkhorn", relative(kernels.sinkhorn(logits).cpu(), kernels.sinkhorn(logits.cpu())))
    pre, comb, y = torch.rand(5000, 4, device="cuda"), torch.rand(5000, 4, 4, device="cuda"), torch.randn(5000, 256, device="cuda").bfloat16()
    print("collapse", relative(kernels.collapse(pre, x).cpu(), kernels.collapse(pre.cpu(), x.cpu())))
    print("spread", relative(kernels.spread(pre, comb, y, x).cpu(), kernels.spread(pre.cpu(), comb.cpu(), y.cpu(), x.cpu())))
    w = torch.randn(3, 256, 128, device="cuda") * torch.rand(3, 256, 1, device="cuda")
    print("fp8 weights differ", int((kernels.quantised_weight(w).float() != quantise.weight_fp8(w)).sum()),
          "fp4", int((kernels.quantised_weight(w, True).float() != quantise.weight_fp4(w)).sum()))


def compare_packed(training, folder):
    model = reference.Reference.from_folder(f"{folder}/mini", "cuda")
    documents, batch = test_trunk.packed_batch(training_tokenizer(training), training.config, training.options.tokens, "cuda")
    print(sorted(test_trunk.compare(training.trunk, model, documents[:24], batch)[0]))


def training_tokenizer(training):
    from ..tokenizer import PromptTokenizer
    return PromptTokenizer(f"{training.options.tokenizer}/tokenizer.json")


def attempt(label, function, *arguments):
    begin = time.time()
    try:
        function(*arguments)
    except Exception:
        traceback.print_exc()
    print(f"== {label}: {time.time() - begin:.1f} s", flush=True)


def main():
    golden = sys.argv[1]
    sys.argv = [sys.argv[0], *sys.argv[3:]]
    attempt("kernels", check_kernels)
    training = run.Run(run.arguments())
    attempt("training", training.train)
    attempt("packed against reference", compare_packed, training, training.options.out)
    attempt("golden", test_golden.main, golden, "cuda")
    training.loader.stop()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
