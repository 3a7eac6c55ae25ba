"""Writes and reads checkpoints in the released layout: config.json, tokenizer files, index and safetensors shards."""
import json
import os
import shutil
import struct

import numpy as np
import torch

from . import config as configuration
from . import quantise
from .parameters import released_tensors

SHARD_BYTES = 15_000_000
NUMPY_TYPE = {"BF16": "<u2", "F32": "<f4", "F8_E4M3": "u1", "F8_E8M0": "u1", "I8": "i1", "U8": "u1", "I32": "<i4", "I64": "<i8"}


def save_safetensors(path, items, metadata=None):
    """items: list of (name, dtype tag, array)."""
    header, position = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, tag, array in items:
        header[name] = {"dtype": tag, "shape": list(array.shape), "data_offsets": [position, position + array.nbytes]}
        position += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, array in items:
            file.write(np.ascontiguousarray(array).tobytes())


def load_safetensors(path):
    """-> {name: (dtype tag, array)}; BF16 as uint16 bits, FP8 and E8M0 as uint8."""
    with open(path, "rb") as file:
        data = file.read()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    result = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        array = np.frombuffer(data, np.uint8, end - begin, 8 + length + begin).view(NUMPY_TYPE[entry["dtype"]])
        result[name] = (entry["dtype"], array.reshape(entry["shape"]))
    return result


def bf16_bits(tensor):
    return tensor.bfloat16().contiguous().view(torch.int16).numpy().view("<u2")


def e4m3_bytes(codes):
    return codes.to(torch.float8_e4m3fn).contiguous().view(torch.uint8).numpy()


def stored(name, kind, tensor):
    """Stored arrays of one tensor: list of (name, dtype tag, array)."""
    if kind == "bf16":
        return [(name, "BF16", bf16_bits(tensor))]
    if kind == "f32":
        return [(name, "F32", tensor.float().contiguous().numpy())]
    if kind == "fp8":
        codes, scale = quantise.codes_weight_fp8(tensor)
        rows, columns = tensor.shape
        return [(name + ".weight", "F8_E4M3", e4m3_bytes(codes.reshape(rows, columns))),
                (name + ".scale", "F8_E8M0", quantise.exponent_bytes(scale).reshape(rows // 32, columns // 32).numpy())]
    largest, rounding = ((quantise.E4M3_MAX, quantise.round_e4m3) if kind == "table" else
                         (quantise.E2M1_MAX, quantise.round_e2m1))
    codes, scale = quantise.codes_rows(tensor, largest, rounding)
    codes = codes.flatten(-2)
    scales = (name + ".scale", "F8_E8M0", quantise.exponent_bytes(scale)[..., 0].numpy())
    if kind == "table":
        return [(name + ".weight", "F8_E4M3", e4m3_bytes(codes)), scales]
    return [(name + ".weight", "I8", quantise.pack_e2m1(codes).numpy()), scales]


def split_shards(items):
    """Engram tables go last, as in the release; shards stay small enough to copy around."""
    items = sorted(items, key=lambda item: ".engram.embed." in item[0])
    shards, size = [[]], 0
    for item in items:
        if size + item[2].nbytes > SHARD_BYTES and shards[-1]:
            shards.append([])
            size = 0
        shards[-1].append(item)
        size += item[2].nbytes
    return shards


def write_json(path, document, indent=1):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=indent, ensure_ascii=False)
        file.write("\n")


def write(folder, values, biases, config, tokenizer_folder):
    os.makedirs(folder, exist_ok=True)
    values = {name: value.detach().float().cpu() for name, value in values.items()}
    biases = {name: value.detach().float().cpu() for name, value in biases.items()}
    items = [item for name, kind, tensor in released_tensors(values, biases, config) for item in stored(name, kind, tensor)]
    shards = split_shards(items)
    weight_map, total = {}, 0
    for number, shard in enumerate(shards, 1):
        file_name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save_safetensors(f"{folder}/{file_name}", shard, {"format": "pt"})
        weight_map.update({name: file_name for name, _, _ in shard})
        total += sum(array.nbytes for _, _, array in shard)
    write_json(f"{folder}/model.safetensors.index.json",
               {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, 0)
    write_json(f"{folder}/config.json", configuration.to_released(config), 2)
    write_json(f"{folder}/generation_config.json",
               {"bos_token_id": 0, "eos_token_id": 1, "do_sample": False, "temperature": 0.0, "max_new_tokens": 512})
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(f"{tokenizer_folder}/{name}", f"{folder}/{name}")
    return total


def read_tensors(folder):
    """All stored arrays of a checkpoint folder: {name: (dtype tag, array)}."""
    result = {}
    for name in sorted(os.listdir(folder)):
        if name.endswith(".safetensors"):
            result.update(load_safetensors(f"{folder}/{name}"))
    return result
