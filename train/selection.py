"""Real top-k selection for the packed model: index scores, candidate blocks, and the chosen entries as bits.

A row sees compressed entries of its own document only, so scores and bits are stored by the place of an entry within its
document: scores [T, width] bf16, bits [T, width / 32] int32. Rows that see no more than top-k entries are "free": all they
see is chosen, and nothing is stored for them. Rounding and ties are those of reference.py.
"""
import torch

from . import kernels, quantise

SCORE_ROWS, SCORE_COLUMNS = 64, 128
SIZES = (2048, 8192, 32768)     # a row is handled by the smallest that holds what it sees

if kernels.ON_GPU or kernels.INTERPRETED:
    import triton
    import triton.language as tl

    @triton.jit
    def score_kernel(query, keys, weight, start, free, out, WIDTH: tl.constexpr, RATIO: tl.constexpr, HEADS: tl.constexpr,
                     DIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        first = tl.program_id(1) * COLUMNS
        begin = tl.load(start + row)
        idle = tl.min(tl.load(free + row)) > 0
        lowest, last = tl.min(begin), tl.program_id(0) * ROWS + ROWS - 1
        if (idle == 0) & ((first + COLUMNS) * RATIO > lowest) & (first * RATIO <= last):
            entry = first + tl.arange(0, COLUMNS)
            channel = tl.arange(0, DIM)
            key = tl.load(keys + entry[None] * DIM + channel[:, None]).to(tl.float32)     # exact in TF32
            total = tl.zeros((ROWS, COLUMNS), tl.float32)
            for head in tl.static_range(HEADS):
                q = tl.load(query + row[:, None].to(tl.int64) * (HEADS * DIM) + head * DIM + channel[None]).to(tl.float32)
                w = tl.load(weight + row * HEADS + head)
                dots = tl.maximum(tl.dot(q, key).to(tl.bfloat16).to(tl.float32), 0.0)
                total += (dots * w[:, None]).to(tl.bfloat16).to(tl.float32)
            place = entry[None] - (begin // RATIO)[:, None]
            visible = (place >= 0) & (entry[None] * RATIO + RATIO - 1 <= row[:, None])
            tl.store(out + row[:, None].to(tl.int64) * WIDTH + place, total.to(tl.bfloat16), mask=visible)

    @triton.jit
    def in_order(bits):
        """bf16 bits -> integers that compare like the numbers"""
        bits = bits.to(tl.int32) & 0xFFFF
        return tl.where(bits >= 0x8000, 0xFFFF - bits, bits + 0x8000)

    @triton.jit
    def best(key, place, count, BITS: tl.constexpr):
        """The `count` largest keys >= 0, the lowest place first among equals."""
        threshold = tl.full((), 0, tl.int32)
        for step in tl.static_range(BITS):
            trial = threshold + (1 << (BITS - 1 - step))
            threshold = tl.where(tl.sum((key >= trial).to(tl.int32)) >= count, trial, threshold)
        wanted = count - tl.sum((key > threshold).to(tl.int32))
        end = tl.full((), 0, tl.int32)
        for step in tl.static_range(16):
            trial = end + (1 << (15 - step))
            end = tl.where(tl.sum(((key == threshold) & (place < trial)).to(tl.int32)) <= wanted, trial, end)
        return (key > threshold) | ((key == threshold) & (place < end))

    @triton.jit
    def packed(chosen, SIZE: tl.constexpr):
        return tl.sum(tl.reshape(chosen.to(tl.int32), (SIZE // 32, 32)) << tl.arange(0, 32)[None], 1)

    @triton.jit
    def choose_kernel(scores, candidates, start, out, RATIO: tl.constexpr, TOPK: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
                      LOW: tl.constexpr, HAS_CANDIDATES: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        visible = (row - tl.load(start + row) + 1) // RATIO
        if (visible > LOW) & (visible <= SIZE):
            place = tl.arange(0, SIZE)
            inside = place < visible
            key = in_order(tl.load(scores + row.to(tl.int64) * WIDTH + place, mask=inside, other=0))
            if HAS_CANDIDATES:
                block = place // BLOCK
                word = tl.load(candidates + row.to(tl.int64) * (WIDTH // BLOCK // 32) + block // 32, mask=inside, other=0)
                inside = inside & (((word >> (block % 32)) & 1) == 1)
            chosen = best(tl.where(inside, key, -1), place, TOPK, 16)
            tl.store(out + row.to(tl.int64) * (WIDTH // 32) + tl.arange(0, SIZE // 32), packed(chosen, SIZE))

    @triton.jit
    def candidate_kernel(scores, start, out, RATIO: tl.constexpr, KEPT: tl.constexpr, WIDTH: tl.constexpr, SIZE: tl.constexpr,
                         LOW: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        visible = (row - tl.load(start + row) + 1) // RATIO
        if (visible > LOW) & (visible <= SIZE):
            block = tl.arange(0, SIZE // BLOCK)
            place = block[:, None] * BLOCK + tl.arange(0, BLOCK)[None]
            inside = place < visible
            key = in_order(tl.load(scores + row.to(tl.int64) * WIDTH + place, mask=inside, other=0))
            key = tl.max(tl.where(inside, key, -1), 1)
            key = tl.where(block == (visible - 1) // BLOCK, 0x10000, key)
            kept = best(key, block, KEPT, 17)
            tl.store(out + row.to(tl.int64) * (WIDTH // BLOCK // 32) + tl.arange(0, SIZE // BLOCK // 32), packed(kept, SIZE // BLOCK))


def plain_scores(query, keys, weight, rows, start, ratio, width):
    """What score_kernel computes for some rows of the buffer, and -inf where a row sees nothing."""
    place = torch.arange(width, device=rows.device)[None]
    entry = (start[:, None] // ratio + place).clamp(max=len(keys) - 1)
    total = 0
    for head in range(query.shape[1]):
        dots = torch.relu((query[:, head].float() @ keys.float().t()).bfloat16()).gather(1, entry)
        total = total + (dots * weight[:, head:head + 1].bfloat16()).float()
    visible = place < ((rows - start + 1) // ratio)[:, None]
    return total.bfloat16().float().masked_fill(~visible, float("-inf"))


def plain_bits(chosen):
    shifted = chosen.unflatten(1, (-1, 32)).long() << torch.arange(32, device=chosen.device)
    return shifted.sum(-1).to(torch.int32)


def unpacked(bits):
    return (bits[:, :, None] >> torch.arange(32, device=bits.device) & 1).flatten(1).bool()


def plain_choice(scores, count):
    order = torch.sort(scores, dim=-1, descending=True, stable=True).indices[:, :count]
    return torch.zeros_like(scores, dtype=torch.bool).scatter(1, order, True) & (scores > float("-inf"))


def plain_candidates(scores, visible, kept, size):
    blocks = scores.unflatten(1, (-1, size)).amax(-1)
    blocks = blocks.scatter(1, ((visible - 1) // size).clamp(min=0)[:, None], float("inf"))
    return plain_choice(blocks, kept)


class Selector:
    """Fills the bits of the index sources of one forward pass. `width`: entries of the longest document at ratio 1."""

    def __init__(self, config, tokens, width, device):
        self.config, self.width, self.on_kernels = config, width, device != "cpu" or kernels.INTERPRETED
        c = config
        self.bits = {source: torch.zeros(tokens, width // c.compress_ratios[source] // 32, dtype=torch.int32, device=device)
                     for source in c.index_source_layer_ids}
        self.candidates = torch.zeros(tokens, width // c.candidate_block_size // 32, dtype=torch.int32, device=device)
        self.scratch = torch.zeros(tokens, width, dtype=torch.bfloat16, device=device) if self.on_kernels else None

    @torch.no_grad()
    def select(self, source, query, keys, weight, start, free):
        """query [T, H, d] and keys [E, d] as stored in the index cache, weight [T, H] fp32 holding bf16 values, start [T] int32: first
        token of the document of every row, free [T] int32."""
        c, ratio = self.config, self.config.compress_ratios[source]
        if not self.on_kernels:
            self.select_plainly(source, query, keys, weight, start, ratio)
            return
        tokens, heads, dim = query.shape
        width = self.width // ratio
        query, keys, weight = query.contiguous(), keys.contiguous(), weight.contiguous()
        scores = self.scratch.view(-1)[:tokens * width]
        grid = (tokens // SCORE_ROWS, -(-len(keys) // SCORE_COLUMNS))
        score_kernel[grid](query, keys, weight, start, free, scores, width, ratio, heads, dim, SCORE_ROWS, SCORE_COLUMNS)
        as_bits, low = scores.view(torch.int16), c.index_topk
        for size in [size for size in SIZES if size < width] + [width]:
            if size <= low:
                continue
            if source == c.candidate_source_layer_id:
                candidate_kernel[(tokens,)](as_bits, start, self.candidates, ratio, c.candidate_topk_blocks, width, size, low,
                                            c.candidate_block_size, num_warps=8)
            choose_kernel[(tokens,)](as_bits, self.candidates, start, self.bits[source], ratio, c.index_topk, width, size, low,
                                     0 <= c.candidate_source_layer_id < source, c.candidate_block_size, num_warps=16 if size > 8192 else 4)
            low = size

    def select_plainly(self, source, query, keys, weight, start, ratio):
        rows = torch.arange(len(query))
        scores = plain_scores(query, keys, weight, rows, start.long(), ratio, self.width // ratio)
        candidates, bits = self.plain_rows(source, scores, rows, start.long(), ratio, self.candidates)
        self.candidates.copy_(candidates)
        self.bits[source].copy_(bits)

    def plain_rows(self, source, scores, rows, start, ratio, candidates):
        """-> candidate blocks and chosen entries of some rows, as bits"""
        c = self.config
        if 0 <= c.candidate_source_layer_id < source:
            allowed = unpacked(candidates).repeat_interleave(c.candidate_block_size, 1)
            scores = scores.masked_fill(~allowed, float("-inf"))
        if source == c.candidate_source_layer_id:
            visible = (rows - start + 1) // ratio
            candidates = plain_bits(plain_candidates(scores, visible, c.candidate_topk_blocks, c.candidate_block_size))
        return candidates, plain_bits(plain_choice(scores, c.index_topk))


def index_query(latent, a, wq_b, weights_proj, heads):
    """Index queries before rotation [T, H, d], and head weights as the reference rounds them."""
    quantised = quantise.activation_fp8(latent)
    query = (quantised @ wq_b.t()).unflatten(-1, (heads, -1))
    weight = (a @ weights_proj.bfloat16().t()).float() * (wq_b.shape[0]) ** -0.5
    return query, weight.bfloat16().float()
