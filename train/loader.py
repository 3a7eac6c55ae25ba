"""Worker processes that make training buffers, and the thread that brings them to the GPU."""
import gzip
import queue
import threading

import numpy as np
import torch
import torch.multiprocessing as multiprocessing

from . import mini, packing
from .tokenizer import PromptTokenizer

WAITING = 24                    # finished buffers that may wait in shared memory
AHEAD = 3                       # buffers already on the GPU
HAYSTACK_CHARACTERS = 3_000_000


def make_source(seed, folder, text_path, faces, characters=HAYSTACK_CHARACTERS):
    tokenizer = PromptTokenizer(f"{folder}/tokenizer.json")
    config, _ = mini.load_config(folder)
    with gzip.open(text_path) as file:
        text = file.read().decode()[:characters]
    return packing.Source(seed, tokenizer, config, text, np.array(tokenizer.encode_plain(text), np.int32), faces)


def work(number, seed, folder, text_path, faces, tokens, shares, out):
    torch.set_num_threads(1)
    source = make_source(f"train {seed} {number}", folder, text_path, faces)
    rng = np.random.default_rng([seed, number])
    while True:
        out.put({name: torch.from_numpy(value) for name, value in packing.pack(source, tokens, rng, shares).items()})


class Loader:
    def __init__(self, num_workers, seed, folder, text_path, faces, tokens, shares=None):
        context = multiprocessing.get_context("spawn")
        self.buffers = context.Queue(WAITING)
        self.workers = [context.Process(target=work, args=(number, seed, folder, text_path, faces, tokens, shares, self.buffers), daemon=True)
                        for number in range(num_workers)]
        for worker in self.workers:
            worker.start()
        self.ready = None

    def first(self, device):
        """One buffer, fetched in the foreground."""
        return {name: value.to(device) for name, value in self.buffers.get().items()}

    def start_feeding(self, device):
        self.ready = queue.Queue(AHEAD)
        threading.Thread(target=self.feed, args=(device,), daemon=True).start()

    def feed(self, device):
        stream = torch.cuda.Stream()
        while True:
            arrays = self.buffers.get()
            with torch.cuda.stream(stream):
                batch = {name: value.to(device) for name, value in arrays.items()}
            stream.synchronize()
            self.ready.put(batch)

    def next(self, device):
        return self.ready.get() if self.ready else self.first(device)

    def stop(self):
        for worker in self.workers:
            worker.terminate()
