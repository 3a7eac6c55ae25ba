"""The number formats of the checkpoint and of the caches, as quantise-dequantise functions on tensors.

All scales but one are powers of two, so a dequantised value is exact in bfloat16. `codes_*` return what is stored.
"""
import torch

BLOCK = 32
E4M3_MAX, E2M1_MAX = 448.0, 6.0
ACTIVATION_FLOOR = 1e-4
INDEX_FLOOR = 6.0 * 2.0 ** -126
KV_GROUP, KV_FLOOR = 16, 6.0 * 2.0 ** -9
WEIGHT_FLOOR = 1e-12


def power_of_two_at_least(value):
    """2^ceil(log2(value)) from the bit pattern of a positive normal float."""
    bits = value.contiguous().view(torch.int32)
    exponent = (bits >> 23) + ((bits & 0x7FFFFF) != 0).int()
    return (exponent << 23).view(torch.float32)


def round_e4m3(value):
    return value.clamp(-E4M3_MAX, E4M3_MAX).to(torch.float8_e4m3fn).float()


def round_e2m1(value):
    """Nearest of 0 .5 1 1.5 2 3 4 6; ties to the even code, as rounding half to even inside each step size does."""
    size = value.abs().clamp(max=E2M1_MAX)
    step = torch.where(size < 2, 0.5, torch.where(size < 4, 1.0, 2.0))
    return torch.sign(value) * torch.round(size / step) * step


def scale_for(amax, largest):
    inverse = torch.tensor(1.0 / largest, dtype=torch.float32, device=amax.device)
    return power_of_two_at_least(amax * inverse)


def grouped(value, size):
    return value.float().unflatten(-1, (-1, size))


def activation_fp8(value, floor=ACTIVATION_FLOOR):
    """Blocks of 32, power-of-two scale: activations before a quantised linear, and window KV."""
    groups = grouped(value, BLOCK)
    scale = scale_for(groups.abs().amax(-1, keepdim=True).clamp(min=floor), E4M3_MAX)
    return (round_e4m3(groups / scale) * scale).flatten(-2).to(value.dtype)


def index_fp4(value):
    """Blocks of 32, power-of-two scale: index queries and keys."""
    groups = grouped(value, BLOCK)
    scale = scale_for(groups.abs().amax(-1, keepdim=True).clamp(min=INDEX_FLOOR), E2M1_MAX)
    return (round_e2m1(groups / scale) * scale).flatten(-2).to(value.dtype)


def compressed_kv_fp4(value):
    """Groups of 16 with an E4M3 scale that is not a power of two: the compressed KV cache."""
    groups = grouped(value, KV_GROUP)
    scale = round_e4m3(groups.abs().amax(-1, keepdim=True).clamp(min=KV_FLOOR) / E2M1_MAX)
    return (round_e2m1(groups / scale) * scale).flatten(-2).to(value.dtype)


def tiles(weight):
    rows, columns = weight.shape[-2:]
    return weight.float().unflatten(-1, (columns // BLOCK, BLOCK)).unflatten(-3, (rows // BLOCK, BLOCK))


def codes_weight_fp8(weight):
    """[..., rows, columns] -> values in units of the scale, and the scale per 32 x 32 tile."""
    tiled = tiles(weight)
    scale = scale_for(tiled.abs().amax((-1, -3), keepdim=True).clamp(min=WEIGHT_FLOOR), E4M3_MAX)
    return round_e4m3(tiled / scale), scale


def weight_fp8(weight):
    codes, scale = codes_weight_fp8(weight)
    return (codes * scale).flatten(-4, -3).flatten(-2)


def codes_rows(weight, largest, rounding):
    groups = grouped(weight, BLOCK)
    scale = scale_for(groups.abs().amax(-1, keepdim=True).clamp(min=WEIGHT_FLOOR), largest)
    return rounding(groups / scale), scale


def weight_fp4(weight):
    """Experts: per row, blocks of 32."""
    codes, scale = codes_rows(weight, E2M1_MAX, round_e2m1)
    return (codes * scale).flatten(-2)


def table_fp8(weight):
    """Engram tables: per row, blocks of 32."""
    codes, scale = codes_rows(weight, E4M3_MAX, round_e4m3)
    return (codes * scale).flatten(-2)


def exponent_bytes(scale):
    """Stored form of a power-of-two scale."""
    return ((scale.contiguous().view(torch.int32) >> 23) & 0xFF).to(torch.uint8)


def pack_e2m1(codes):
    """[rows, columns] of E2M1 values -> two codes a byte, even column in the low nibble."""
    magnitudes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6], device=codes.device)
    nibble = torch.searchsorted(magnitudes, codes.abs().contiguous()) + 8 * (codes < 0)
    return (nibble[..., 0::2] | (nibble[..., 1::2] << 4)).to(torch.uint8).view(torch.int8)


def unpack_e2m1(packed):
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], device=packed.device)
    byte = packed.view(torch.uint8).long()
    return table[torch.stack((byte & 15, byte >> 4), -1).flatten(-2)]
