"""Operations of the fast training model that PyTorch has no good single kernel for, each with its gradient.

On a GPU they run as Triton kernels; on a CPU the same functions in plain PyTorch, which also state what they mean.
"""
import os

import torch

from . import quantise

STREAMS = 4
SITES = 24                      # 4 pre, 4 post, 16 comb
MIX_EPS = 1e-6
SINKHORN_STEPS, SINKHORN_BACKWARD_STEPS = 20, 16
ON_GPU = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"       # kernels of selection.py on a CPU, for tests

if ON_GPU:
    import triton
    import triton.language as tl

    @triton.jit
    def mix_dot_kernel(x, high, low, out, squares, tokens, K: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        site = tl.arange(0, 32)
        inside = row[:, None] < tokens
        total = tl.zeros((ROWS, 32), tl.float32)
        square = tl.zeros((ROWS,), tl.float32)
        for start in range(0, K, STEP):
            column = start + tl.arange(0, STEP)
            part = tl.load(x + row[:, None].to(tl.int64) * K + column[None], mask=inside, other=0.0)
            weight = site[None, :] * K + column[:, None]
            known = (site[None, :] < 24) & (column[:, None] < K)
            total = tl.dot(part, tl.load(high + weight, mask=known, other=0.0), total)
            total = tl.dot(part, tl.load(low + weight, mask=known, other=0.0), total)
            wide = part.to(tl.float32)
            square += tl.sum(wide * wide, 1)
        tl.store(out + row[:, None] * 24 + site[None], total, mask=inside & (site[None] < 24))
        tl.store(squares + row, square, mask=row < tokens)

    @triton.jit
    def collapse_kernel(pre, x, out, tokens, D: tl.constexpr, ROWS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, D)
        inside = row[:, None] < tokens
        base = row[:, None].to(tl.int64) * (4 * D) + column[None]
        total = tl.zeros((ROWS, D), tl.float32)
        for stream in tl.static_range(4):
            weight = tl.load(pre + row * 4 + stream, mask=row < tokens, other=0.0)
            total += weight[:, None] * tl.load(x + base + stream * D, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + row[:, None].to(tl.int64) * D + column[None], total.to(tl.bfloat16), mask=inside)

    @triton.jit
    def collapse_backward_kernel(pre, x, grad, grad_x, grad_pre, tokens, D: tl.constexpr, ROWS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, D)
        inside = row[:, None] < tokens
        base = row[:, None].to(tl.int64) * (4 * D) + column[None]
        g = tl.load(grad + row[:, None].to(tl.int64) * D + column[None], mask=inside, other=0.0).to(tl.float32)
        for stream in tl.static_range(4):
            weight = tl.load(pre + row * 4 + stream, mask=row < tokens, other=0.0)
            value = tl.load(x + base + stream * D, mask=inside, other=0.0).to(tl.float32)
            tl.store(grad_x + base + stream * D, (weight[:, None] * g).to(tl.bfloat16), mask=inside)
            tl.store(grad_pre + row * 4 + stream, tl.sum(value * g, 1), mask=row < tokens)

    @triton.jit
    def spread_kernel(post, comb, y, x, out, tokens, D: tl.constexpr, ROWS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, D)
        known = row < tokens
        inside = known[:, None]
        base = row[:, None].to(tl.int64) * (4 * D) + column[None]
        added = tl.load(y + row[:, None].to(tl.int64) * D + column[None], mask=inside, other=0.0).to(tl.float32)
        x0 = tl.load(x + base, mask=inside, other=0.0).to(tl.float32)
        x1 = tl.load(x + base + D, mask=inside, other=0.0).to(tl.float32)
        x2 = tl.load(x + base + 2 * D, mask=inside, other=0.0).to(tl.float32)
        x3 = tl.load(x + base + 3 * D, mask=inside, other=0.0).to(tl.float32)
        for stream in tl.static_range(4):
            total = tl.load(post + row * 4 + stream, mask=known, other=0.0)[:, None] * added
            total += tl.load(comb + row * 16 + stream, mask=known, other=0.0)[:, None] * x0
            total += tl.load(comb + row * 16 + 4 + stream, mask=known, other=0.0)[:, None] * x1
            total += tl.load(comb + row * 16 + 8 + stream, mask=known, other=0.0)[:, None] * x2
            total += tl.load(comb + row * 16 + 12 + stream, mask=known, other=0.0)[:, None] * x3
            tl.store(out + base + stream * D, total.to(tl.bfloat16), mask=inside)

    @triton.jit
    def spread_backward_kernel(post, comb, y, x, grad, grad_post, grad_comb, grad_y, grad_x, tokens,
                               D: tl.constexpr, ROWS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, D)
        known = row < tokens
        inside = known[:, None]
        base = row[:, None].to(tl.int64) * (4 * D) + column[None]
        flat = row[:, None].to(tl.int64) * D + column[None]
        added = tl.load(y + flat, mask=inside, other=0.0).to(tl.float32)
        g0 = tl.load(grad + base, mask=inside, other=0.0).to(tl.float32)
        g1 = tl.load(grad + base + D, mask=inside, other=0.0).to(tl.float32)
        g2 = tl.load(grad + base + 2 * D, mask=inside, other=0.0).to(tl.float32)
        g3 = tl.load(grad + base + 3 * D, mask=inside, other=0.0).to(tl.float32)
        p0 = tl.load(post + row * 4, mask=known, other=0.0)[:, None]
        p1 = tl.load(post + row * 4 + 1, mask=known, other=0.0)[:, None]
        p2 = tl.load(post + row * 4 + 2, mask=known, other=0.0)[:, None]
        p3 = tl.load(post + row * 4 + 3, mask=known, other=0.0)[:, None]
        tl.store(grad_y + flat, (p0 * g0 + p1 * g1 + p2 * g2 + p3 * g3).to(tl.bfloat16), mask=inside)
        tl.store(grad_post + row * 4, tl.sum(added * g0, 1), mask=known)
        tl.store(grad_post + row * 4 + 1, tl.sum(added * g1, 1), mask=known)
        tl.store(grad_post + row * 4 + 2, tl.sum(added * g2, 1), mask=known)
        tl.store(grad_post + row * 4 + 3, tl.sum(added * g3, 1), mask=known)
        for stream in tl.static_range(4):
            value = tl.load(x + base + stream * D, mask=inside, other=0.0).to(tl.float32)
            place = row * 16 + stream * 4
            tl.store(grad_comb + place, tl.sum(value * g0, 1), mask=known)
            tl.store(grad_comb + place + 1, tl.sum(value * g1, 1), mask=known)
            tl.store(grad_comb + place + 2, tl.sum(value * g2, 1), mask=known)
            tl.store(grad_comb + place + 3, tl.sum(value * g3, 1), mask=known)
            total = tl.load(comb + place, mask=known, other=0.0)[:, None] * g0
            total += tl.load(comb + place + 1, mask=known, other=0.0)[:, None] * g1
            total += tl.load(comb + place + 2, mask=known, other=0.0)[:, None] * g2
            total += tl.load(comb + place + 3, mask=known, other=0.0)[:, None] * g3
            tl.store(grad_x + base + stream * D, total.to(tl.bfloat16), mask=inside)

    @triton.jit
    def sinkhorn_kernel(logits, out, tokens, STEPS: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        place = row[:, None, None] * 16 + tl.arange(0, 4)[None, :, None] * 4 + tl.arange(0, 4)[None, None, :]
        inside = row[:, None, None] < tokens
        mix = tl.load(logits + place, mask=inside, other=0.0)
        mix = tl.exp(mix - tl.max(mix, 2)[:, :, None])
        mix = mix / tl.sum(mix, 2)[:, :, None] + EPS
        mix = mix / (tl.sum(mix, 1)[:, None, :] + EPS)
        for _ in range(STEPS - 1):
            mix = mix / (tl.sum(mix, 2)[:, :, None] + EPS)
            mix = mix / (tl.sum(mix, 1)[:, None, :] + EPS)
        tl.store(out + place, mix, mask=inside)

    @triton.jit
    def sinkhorn_backward_kernel(mix, grad, out, tokens, STEPS: tl.constexpr, EPS: tl.constexpr, ROWS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        place = row[:, None, None] * 16 + tl.arange(0, 4)[None, :, None] * 4 + tl.arange(0, 4)[None, None, :]
        inside = row[:, None, None] < tokens
        p = tl.load(mix + place, mask=inside, other=0.25)
        g = tl.load(grad + place, mask=inside, other=0.0)
        row_sums, column_sums = tl.sum(p, 2) + EPS, tl.sum(p, 1) + EPS
        row_part, column_part = tl.sum(p * g, 2), tl.sum(p * g, 1)
        alpha = row_part / row_sums
        beta = column_part * 0.0
        for _ in range(STEPS):
            beta = (column_part - tl.sum(p * alpha[:, :, None], 1)) / column_sums
            alpha = (row_part - tl.sum(p * beta[:, None, :], 2)) / row_sums
        tl.store(out + place, p * (g - alpha[:, :, None] - beta[:, None, :]), mask=inside)

    @triton.jit
    def rope_kernel(x, cos, sin, out, rows, heads, sign, DIM: tl.constexpr, TURNING: tl.constexpr, ROWS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        column = tl.arange(0, DIM)
        inside = row[:, None] < rows
        place = row[:, None].to(tl.int64) * DIM
        own = tl.load(x + place + column[None], mask=inside, other=0.0).to(tl.float32)
        partner = tl.load(x + place + (column ^ 1)[None], mask=inside, other=0.0).to(tl.float32)
        turning = column >= DIM - TURNING
        pair = tl.where(turning, (column - (DIM - TURNING)) // 2, 0)
        angle = (row // heads)[:, None] * (TURNING // 2) + pair[None]
        c = tl.load(cos + angle, mask=inside & turning[None], other=1.0)
        s = tl.load(sin + angle, mask=inside & turning[None], other=0.0) * sign
        s = tl.where((column % 2 == 1)[None], s, -s)
        tl.store(out + place + column[None], (own * c + partner * s).to(tl.bfloat16), mask=inside)

    @triton.jit
    def power_of_two_at_least(value):
        bits = value.to(tl.int32, bitcast=True)
        exponent = (bits >> 23) + tl.where((bits & 0x7FFFFF) != 0, 1, 0)
        return (exponent << 23).to(tl.float32, bitcast=True)

    @triton.jit
    def weight_fp8_kernel(weight, out, columns, FLOOR: tl.constexpr):
        row = tl.program_id(0) * 32 + tl.arange(0, 32)
        column = tl.program_id(1) * 32 + tl.arange(0, 32)
        place = row[:, None] * columns + column[None]
        tile = tl.load(weight + place)
        amax = tl.maximum(tl.max(tl.abs(tile)), FLOOR)
        scale = power_of_two_at_least(amax * (1.0 / 448.0))
        code = tl.minimum(tl.maximum(tile / scale, -448.0), 448.0).to(tl.float8e4nv).to(tl.float32)
        tl.store(out + place, (code * scale).to(tl.bfloat16))

    @triton.jit
    def weight_fp4_kernel(weight, out, groups, FLOOR: tl.constexpr, ROWS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        place = row[:, None] * 32 + tl.arange(0, 32)[None]
        inside = row[:, None] < groups
        value = tl.load(weight + place, mask=inside, other=0.0)
        amax = tl.maximum(tl.max(tl.abs(value), 1), FLOOR)
        scale = power_of_two_at_least(amax * (1.0 / 6.0))[:, None]
        ratio = value / scale
        size = tl.minimum(tl.abs(ratio), 6.0)
        step = tl.where(size < 2.0, 0.5, tl.where(size < 4.0, 1.0, 2.0))
        # adding and taking away 1.5 * 2^23 rounds half to even
        steps = (size / step + 12582912.0) - 12582912.0
        code = steps * step
        tl.store(out + place, (tl.where(ratio < 0, -code, code) * scale).to(tl.bfloat16), mask=inside)


def power(size):
    return 1 << (size - 1).bit_length()


class MixDot(torch.autograd.Function):
    """x [T, K] bf16, weight [24, K] fp32 -> products [T, 24] in fp32 accuracy, and the sum of squares of x."""

    @staticmethod
    def forward(ctx, x, weight):
        high = weight.bfloat16()
        ctx.save_for_backward(x, high)
        if not x.is_cuda:
            return x.float() @ weight.t(), x.float().square().sum(-1)
        low = (weight - high.float()).bfloat16()
        tokens, size = x.shape
        out = x.new_empty(tokens, SITES, dtype=torch.float32)
        squares = x.new_empty(tokens, dtype=torch.float32)
        mix_dot_kernel[(triton.cdiv(tokens, 64),)](x, high, low, out, squares, tokens, size, 64, 128)
        return out, squares

    @staticmethod
    def backward(ctx, grad_out, grad_squares):
        x, high = ctx.saved_tensors
        grad = grad_out.bfloat16()
        grad_x = torch.addcmul(grad @ high, x, (2 * grad_squares).bfloat16()[:, None])
        return grad_x, (grad.t() @ x).float()


class Collapse(torch.autograd.Function):
    """sum_i pre_i x_i: pre [T, 4], x [T, 4, D] -> [T, D]"""

    @staticmethod
    def forward(ctx, pre, x):
        pre = pre.contiguous()
        ctx.save_for_backward(pre, x)
        tokens, _, size = x.shape
        out = x.new_empty(tokens, size)
        collapse_kernel[(triton.cdiv(tokens, 4),)](pre, x, out, tokens, size, 4)
        return out

    @staticmethod
    def backward(ctx, grad):
        pre, x = ctx.saved_tensors
        tokens, _, size = x.shape
        grad_x, grad_pre = torch.empty_like(x), torch.empty_like(pre)
        collapse_backward_kernel[(triton.cdiv(tokens, 4),)](pre, x, grad.contiguous(), grad_x, grad_pre, tokens, size, 4)
        return grad_pre, grad_x


class Spread(torch.autograd.Function):
    """x'_j = post_j y + sum_i comb_ij x_i"""

    @staticmethod
    def forward(ctx, post, comb, y, x):
        post, comb, y = post.contiguous(), comb.contiguous(), y.contiguous()
        ctx.save_for_backward(post, comb, y, x)
        tokens, _, size = x.shape
        out = torch.empty_like(x)
        spread_kernel[(triton.cdiv(tokens, 4),)](post, comb, y, x, out, tokens, size, 4)
        return out

    @staticmethod
    def backward(ctx, grad):
        post, comb, y, x = ctx.saved_tensors
        tokens, _, size = x.shape
        grads = [torch.empty_like(value) for value in (post, comb, y, x)]
        spread_backward_kernel[(triton.cdiv(tokens, 4),)](post, comb, y, x, grad.contiguous(), *grads, tokens, size, 4)
        return tuple(grads)


class Sinkhorn(torch.autograd.Function):
    """20 alternating normalisations of 4 x 4; the gradient solves for the two multipliers instead of unrolling."""

    @staticmethod
    def forward(ctx, logits):
        logits = logits.contiguous()
        out = torch.empty_like(logits)
        tokens = logits.shape[0]
        sinkhorn_kernel[(triton.cdiv(tokens, 128),)](logits, out, tokens, SINKHORN_STEPS, MIX_EPS, 128)
        ctx.save_for_backward(out)
        return out

    @staticmethod
    def backward(ctx, grad):
        mix, = ctx.saved_tensors
        out, tokens = torch.empty_like(mix), mix.shape[0]
        sinkhorn_backward_kernel[(triton.cdiv(tokens, 128),)](mix, grad.contiguous(), out, tokens,
                                                              SINKHORN_BACKWARD_STEPS, MIX_EPS, 128)
        return out


def rope_forward(x, cos, sin, sign):
    x = x.contiguous()
    size = x.shape[-1]
    rows, heads = x.numel() // size, x.shape[1] if x.dim() == 3 else 1
    out = torch.empty_like(x)
    rope_kernel[(triton.cdiv(rows, 16),)](x, cos, sin, out, rows, heads, sign, size, 2 * cos.shape[-1], 16)
    return out


class Rope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, cos, sin, sign):
        ctx.save_for_backward(cos, sin)
        ctx.sign = sign
        return rope_forward(x, cos, sin, sign)

    @staticmethod
    def backward(ctx, grad):
        return rope_forward(grad, *ctx.saved_tensors, -ctx.sign), None, None, None


class StraightThrough(torch.autograd.Function):
    """The second argument forward, the gradient to the first."""

    @staticmethod
    def forward(ctx, x, quantised):
        return quantised.view_as(quantised)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class QuantisedWeight(torch.autograd.Function):
    """fp32 weight -> bf16 copy on the FP8 (32 x 32 tiles) or FP4 (rows of 32) grid; gradient straight through."""

    @staticmethod
    def forward(ctx, weight, is_fp4):
        if not weight.is_cuda:
            return (quantise.weight_fp4(weight) if is_fp4 else quantise.weight_fp8(weight)).bfloat16()
        out = torch.empty_like(weight, dtype=torch.bfloat16)
        columns = weight.shape[-1]
        rows = weight.numel() // columns
        if is_fp4:
            groups = weight.numel() // 32
            weight_fp4_kernel[(triton.cdiv(groups, 64),)](weight, out, groups, quantise.WEIGHT_FLOOR, 64)
        else:
            weight_fp8_kernel[(rows // 32, columns // 32)](weight, out, columns, quantise.WEIGHT_FLOOR)
        return out

    @staticmethod
    def backward(ctx, grad):
        return grad.float(), None


class Lookup(torch.autograd.Function):
    """table[index] with a gradient by atomic adds, which needs no synchronisation with the CPU."""

    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = table.shape[0]
        return table[index]

    @staticmethod
    def backward(ctx, grad):
        index, = ctx.saved_tensors
        grad = grad.float().reshape(index.numel(), -1)
        return torch.zeros(ctx.rows, grad.shape[1], device=grad.device).index_add_(0, index.flatten(), grad), None


def mix_dot(x, weight):
    if not x.is_cuda:
        return x.float() @ weight.t(), x.float().square().sum(-1)
    return MixDot.apply(x, weight)


def collapse(pre, x):
    return Collapse.apply(pre, x) if x.is_cuda else (pre[..., None] * x.float()).sum(1).bfloat16()


def spread(post, comb, y, x):
    if x.is_cuda:
        return Spread.apply(post, comb, y, x)
    return (post[..., None] * y.float()[:, None] + torch.einsum("tij,tid->tjd", comb, x.float())).bfloat16()


def sinkhorn(logits):
    """[T, 4, 4]"""
    if logits.is_cuda:
        return Sinkhorn.apply(logits)
    mix = torch.softmax(logits, -1) + MIX_EPS
    mix = mix / (mix.sum(1, keepdim=True) + MIX_EPS)
    for _ in range(SINKHORN_STEPS - 1):
        mix = mix / (mix.sum(2, keepdim=True) + MIX_EPS)
        mix = mix / (mix.sum(1, keepdim=True) + MIX_EPS)
    return mix


def rope(x, cos, sin, inverse=False):
    """x [T, (heads,) d], cos and sin [T, pairs]"""
    if x.is_cuda:
        return Rope.apply(x, cos, sin, -1.0 if inverse else 1.0)
    if x.dim() == 3:
        cos, sin = cos[:, None], sin[:, None]
    if inverse:
        sin = -sin
    size = 2 * cos.shape[-1]
    even, odd = x[..., -size:].float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    return torch.cat((x[..., :-size], turned.to(x.dtype)), -1)


def straight_through(x, quantised):
    return StraightThrough.apply(x, quantised)


def quantised_weight(weight, is_fp4=False):
    return QuantisedWeight.apply(weight, is_fp4)


def lookup(table, index):
    return Lookup.apply(table, index)
