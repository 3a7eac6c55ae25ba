"""Worker processes that make training buffers, and the thread that brings them to the GPU."""
import gzip
import multiprocessing
import queue
import threading
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import torch

from . import mini, packing
from .tokenizer import PromptTokenizer

SLOTS = 40                      # finished buffers that may wait
AHEAD = 4                       # buffers already on the GPU
FEEDERS = 2
HAYSTACK_CHARACTERS = 1_000_000
ALIGNMENT = 64


def make_source(seed, folder, text_path, faces, characters=HAYSTACK_CHARACTERS):
    tokenizer = PromptTokenizer(f"{folder}/tokenizer.json")
    config, _ = mini.load_config(folder)
    with gzip.open(text_path) as file:
        text = file.read().decode()[:characters]
    return packing.Source(seed, tokenizer, config, text, np.array(tokenizer.encode_plain(text), np.int32), faces)


class Slots:
    """Buffers in one shared block of memory; only slot numbers travel between the processes."""

    def __init__(self, template, number, name=None):
        self.fields, size = [], 0
        for field, array in template.items():
            self.fields.append((field, array.shape, array.dtype, size))
            size += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        self.size = size
        self.memory = SharedMemory(name=name) if name else SharedMemory(create=True, size=size * number)

    def arrays(self, slot):
        return {field: np.ndarray(shape, dtype, self.memory.buf, slot * self.size + offset)
                for field, shape, dtype, offset in self.fields}


def template_of(tokens, config):
    return packing.Packer(tokens, config).finish(np.random.default_rng(0))


def work(number, seed, folder, text_path, faces, tokens, shares, name, free, full):
    source = make_source(f"train {seed} {number}", folder, text_path, faces)
    slots = Slots(template_of(tokens, source.config), SLOTS, name)
    rng = np.random.default_rng([seed, number])
    while True:
        made = packing.pack(source, tokens, rng, shares)
        slot = free.get()
        for field, array in slots.arrays(slot).items():
            array[...] = made[field]
        full.put(slot)


class Loader:
    def __init__(self, num_workers, seed, folder, text_path, faces, tokens, config, shares=None):
        context = multiprocessing.get_context("spawn")
        self.slots = Slots(template_of(tokens, config), SLOTS)
        self.free, self.full, self.ready = context.Queue(), context.Queue(), None
        for slot in range(SLOTS):
            self.free.put(slot)
        self.workers = [context.Process(target=work, daemon=True, args=(number, seed, folder, text_path, faces, tokens, shares,
                                                                        self.slots.memory.name, self.free, self.full))
                        for number in range(num_workers)]
        for worker in self.workers:
            worker.start()

    def first(self, device):
        """One buffer, fetched in the foreground."""
        slot = self.full.get()
        batch = {name: torch.tensor(value, device=device) for name, value in self.slots.arrays(slot).items()}
        self.free.put(slot)
        return batch

    def start_feeding(self, device):
        self.ready = queue.Queue(AHEAD)
        for _ in range(FEEDERS):
            threading.Thread(target=self.feed, args=(device,), daemon=True).start()

    def feed(self, device):
        stream = torch.cuda.Stream()
        while True:
            slot = self.full.get()
            with torch.cuda.stream(stream):
                batch = {name: torch.from_numpy(value).to(device) for name, value in self.slots.arrays(slot).items()}
            stream.synchronize()
            self.free.put(slot)
            self.ready.put(batch)

    def next(self, device):
        return self.ready.get() if self.ready else self.first(device)

    def stop(self):
        for worker in self.workers:
            worker.terminate()
        self.slots.memory.unlink()
