"""Muon for the matrices inside the network, Adam for the rest, on flat buffers and without waiting for the GPU.

Nothing here reads a value back to the CPU, so a whole training step can be captured once and replayed.
"""
import torch

from .parameters import FP4_STACKS, FP8_STACKS

MUON = set(FP8_STACKS) | set(FP4_STACKS) | {"engram_wkv", "compressor_wkv", "patch_weight", "vision_wqkv", "vision_wo", "vision_w1",
                                            "vision_w2", "aligner_w1", "aligner_w2", "main_proj"}
MUON_MOMENTUM, MUON_DECAY, MUON_GAIN = 0.95, 0.1, 0.2
NEWTON_STEPS, NEWTON = 5, (3.4445, -4.7750, 2.0315)
BETA1, BETA2, ADAM_EPS = 0.9, 0.95, 1e-10
# learning rate of a parameter relative to the base of Adam
FACTORS = [("engram_table", 2.0), ("hc_attn_fn", 0.08), ("hc_ffn_fn", 0.08), ("hc_", 0.3), ("attn_sink", 0.3), ("gate", 0.15),
           ("indexer_w", 0.1), ("compressor_wgate", 0.3), ("head", 0.5), ("markov_head", 0.5), ("confidence", 0.5)]
BIAS_RATE = 2e-3
NORM_MEMORY, CLIP = 0.98, 2.0


def bare(name):
    return name.removeprefix("draft_")


def factor(name):
    for start, value in FACTORS:
        if bare(name).startswith(start):
            return value
    return 1.0


def orthogonal(update):
    """Newton-Schulz iteration on a stack of matrices [n, rows, columns]."""
    x = update.bfloat16()
    tall = x.shape[-2] > x.shape[-1]
    if tall:
        x = x.transpose(-2, -1)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    a, b, c = NEWTON
    for _ in range(NEWTON_STEPS):
        square = x @ x.transpose(-2, -1)
        x = a * x + (b * square + c * (square @ square)) @ x
    return x.transpose(-2, -1) if tall else x


class Optimiser:
    """Takes over the storage of the named parameters."""

    def __init__(self, values, names, muon_rate, adam_rate):
        self.names = sorted(names, key=lambda name: (bare(name) in MUON, not name.startswith("indexer"), name))
        self.muon_names = [name for name in self.names if bare(name) in MUON]
        device = values[self.names[0]].device
        self.muon_rate, self.adam_rate = torch.tensor(muon_rate, device=device), torch.tensor(adam_rate, device=device)
        total = sum(values[name].numel() for name in self.names)
        self.flat, self.grad = torch.empty(total, device=device), torch.zeros(total, device=device)
        self.views, self.grad_views, position, num_indexer = {}, {}, 0, 0
        for name in self.names:
            value, end = values[name], position + values[name].numel()
            view = self.flat[position:end].view(value.shape)
            view.copy_(value.detach())
            value.data = view
            self.views[name], self.grad_views[name] = view, self.grad[position:end].view(value.shape)
            position = end
            if bare(name) not in MUON:
                self.num_adam = end
            if name.startswith("indexer"):
                num_indexer = end
        rates = [torch.full((values[name].numel(),), factor(name)) for name in self.names if bare(name) not in MUON]
        self.rates = torch.cat(rates).to(device)
        self.first, self.second = torch.zeros(self.num_adam, device=device), torch.zeros(self.num_adam, device=device)
        self.momentum = torch.zeros(total - self.num_adam, device=device)
        self.momentum_views = {}
        for name in self.muon_names:
            start = self.grad_views[name].storage_offset() - self.num_adam
            self.momentum_views[name] = self.momentum[start:start + self.grad_views[name].numel()].view(self.grad_views[name].shape)
        self.steps = torch.zeros((), device=device)
        self.parts = [(num_indexer, total)] + ([(0, num_indexer)] if num_indexer else [])
        self.usual_norms = torch.zeros(len(self.parts), device=device)
        self.pace = torch.ones((), device=device)        # learning rate relative to its top

    def take_gradients(self, loss, values):
        leaves = [values[name] for name in self.names]
        grads = torch.autograd.grad(loss, leaves, allow_unused=True)
        self.grad.zero_()
        for name, grad in zip(self.names, grads):
            if grad is not None:
                self.grad_views[name].copy_(grad)

    @torch.no_grad()
    def clip(self):
        """Scales each part of the gradient down to twice its usual norm; a part that is not finite is left out.

        The indexer learns from a loss of its own, so it has a norm of its own: a wild step of the one must not touch the
        other. -> norms of all parts
        """
        norms = []
        for place, (start, end) in enumerate(self.parts):
            grad, usual = self.grad[start:end], self.usual_norms[place]
            norm = grad.norm()
            fine = torch.isfinite(norm)
            known = torch.where(usual > 0, usual, norm)
            fresh = NORM_MEMORY * known + (1 - NORM_MEMORY) * torch.minimum(norm, CLIP * known)
            usual.copy_(torch.where(fine, fresh, usual))
            scale = (CLIP * usual / (norm + 1e-6)).clamp(max=1.0)
            grad.copy_(torch.where(fine, grad * scale, torch.zeros_like(grad)))
            norms.append(norm)
        return norms

    @torch.no_grad()
    def step(self):
        self.steps += 1
        grad, value = self.grad[:self.num_adam], self.flat[:self.num_adam]
        self.first.lerp_(grad, 1 - BETA1)
        self.second.lerp_(grad * grad, 1 - BETA2)
        size = (self.second / (1 - BETA2 ** self.steps)).sqrt() + ADAM_EPS
        value.sub_(self.rates * (self.first / (1 - BETA1 ** self.steps)) / size * (self.pace * self.adam_rate))
        rate = self.pace * self.muon_rate
        self.flat[self.num_adam:].mul_(1 - rate * MUON_DECAY)
        self.momentum.lerp_(self.grad[self.num_adam:], 1 - MUON_MOMENTUM)
        for name in self.muon_names:
            momentum, grad = self.momentum_views[name], self.grad_views[name]
            update = grad.lerp(momentum, MUON_MOMENTUM)
            shape = update.shape
            turned = orthogonal(update.reshape(-1, *shape[-2:])).view(shape)
            self.views[name].sub_(turned * (rate * MUON_GAIN * max(shape[-2:]) ** 0.5))

    def slow_down(self):
        self.muon_rate.mul_(0.5)
        self.adam_rate.mul_(0.5)

    def state(self):
        return dict(names=self.names, flat=self.flat, first=self.first, second=self.second, momentum=self.momentum, steps=self.steps,
                    usual_norms=self.usual_norms)

    def load(self, state):
        assert state["names"] == self.names
        for name in ("flat", "first", "second", "momentum", "steps", "usual_norms"):
            getattr(self, name).copy_(state[name])


@torch.no_grad()
def balance(bias, bias_image, loads, pace):
    """Router biases move against the load error of the step; loads: per layer [2, experts]."""
    step = BIAS_RATE * pace.clamp(min=0.1)
    for layer, load in enumerate(loads):
        bias[layer] += step * torch.sign(load[0].mean() - load[0])
        bias_image[layer] += step * torch.sign(load[1].mean() - load[1])
