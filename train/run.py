"""One training run of the mini model on a GPU.

    python3 -m train.run --tokenizer FOLDER --text TEXT.txt.gz --state STATE.pt --out FOLDER --until SECONDS ...

Runs follow one another: each takes up the state the last one left. The learning rate follows the share of the whole
plan (`--plan` seconds of training over all runs) that is done, so a run may end at any time.
"""
import argparse
import json
import os
import sys
import time
import traceback

os.environ.setdefault("TORCHINDUCTOR_FX_GRAPH_CACHE", "1")

import torch

from . import checkpoint, mini, optimiser, packing, parameters, reference
from .loader import Loader
from .trunk import Trunk

FIRST_STEPS = 3                 # run in the open before capture, so that everything is compiled
LAST_PACE = 0.02
MOST_AHEAD = 2                  # steps the CPU may be ahead, so that the schedule follows the real time
STATISTICS = ("loss", "answer_loss", "answer_hits", "index_loss", "gradient_norm", "index_gradient_norm", "load")


def arguments():
    parser = argparse.ArgumentParser()
    add = parser.add_argument
    add("--tokenizer", required=True)
    add("--text", required=True)
    add("--faces", nargs="*", default=[])
    add("--state", default="")
    add("--out", required=True)
    add("--tokens", type=int, default=65536)
    add("--until", type=float, required=True, help="seconds after the start at which the trunk stage ends")
    add("--plan", type=float, default=0.0, help="seconds of trunk training over all runs; 0 = what this run has")
    add("--warm-up", type=int, default=200, help="steps in which the rate rises")
    add("--decay", type=float, default=0.4, help="last share of the plan in which the rate falls")
    add("--muon-rate", type=float, default=2.5e-3)
    add("--adam-rate", type=float, default=2e-3)
    add("--workers", type=int, default=10)
    add("--seed", type=int, default=1)
    add("--graph", type=int, default=1)
    add("--max-steps", type=int, default=10 ** 9)
    add("--save-every", type=float, default=150.0)
    add("--start-from", default="", help="checkpoint folder whose weights training starts from")
    add("--shares", type=json.loads, default={}, help="family shares that differ from the usual ones, as JSON")
    add("--adapt", type=int, default=0, help="give more room to the families that the last run got wrong")
    add("--sparse-from", type=float, default=float("inf"), help="seconds of training in this run after which selection is real")
    add("--needles", default="", help="needle prompts (train.needle_scores) to score at the end, sparse and dense")
    add("--draft-seconds", type=float, default=0.0)
    add("--draft-only", type=int, default=0, help="leave the trunk of --state as it is")
    add("--draft-muon-rate", type=float, default=2.5e-3)
    add("--draft-adam-rate", type=float, default=2e-3)
    add("--report-every", type=float, default=10.0)
    return parser.parse_args()


class Clock:
    """Seconds of training done over all runs, and the pace of the learning rate that goes with them."""

    def __init__(self, plan, decay, warm_up):
        self.plan, self.decay, self.warm_up, self.done, self.started = plan, decay, warm_up, 0.0, None

    def start(self):
        self.started = time.time()

    def trained(self):
        return self.done + (time.time() - self.started if self.started else 0.0)

    def pace(self, steps):
        left = 1 - self.trained() / self.plan if self.plan else 1.0
        return min(1.0, (steps + 1) / self.warm_up) * max(LAST_PACE, min(1.0, left / self.decay))


class Stage:
    """One kind of training step, replayed from a captured graph when that is possible."""

    def __init__(self, device):
        self.device, self.static, self.graph = device, None, None
        self.sums = torch.zeros(len(STATISTICS), device=device)
        self.right, self.judged = (torch.zeros(len(packing.LABELS), device=device) for _ in range(2))
        self.count = 0
        self.stream = torch.cuda.Stream()
        self.finished = []

    def step(self):
        raise NotImplementedError

    def load(self, batch):
        if self.static is None:
            self.static = {name: value.clone() for name, value in batch.items()}
        for name, value in batch.items():
            self.static[name].copy_(value)
            value.record_stream(torch.cuda.current_stream())      # it was made on the loader's stream

    def open_step(self, batch):
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.load(batch)
            self.step()
        torch.cuda.current_stream().wait_stream(self.stream)
        self.count += 1

    def capture(self):
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
            self.step()

    def run(self, batch):
        if self.graph is None:
            self.open_step(batch)
            return
        self.load(batch)
        self.graph.replay()
        self.count += 1
        self.finished.append(torch.cuda.Event())
        self.finished[-1].record()
        if len(self.finished) > MOST_AHEAD:
            self.finished.pop(0).synchronize()

    @torch.no_grad()
    def count_documents(self, rows, answer, hits):
        """Documents whose answers are right at every token, by label."""
        batch, size = self.static, packing.MAX_DOCUMENTS
        document = batch["document"][rows].long()
        wrong = torch.zeros(size, device=self.device).index_add_(0, document, answer * (1 - hits))
        asked = torch.zeros(size, device=self.device).index_add_(0, document, answer)
        judged = ((asked > 0) & (batch["labels"] >= 0)).float()
        self.judged.index_add_(0, batch["labels"].clamp(min=0), judged)
        self.right.index_add_(0, batch["labels"].clamp(min=0), judged * (wrong == 0))

    def whole_documents(self):
        """Percent of documents that were right as a whole since the last call."""
        percent = (100 * self.right / self.judged.clamp(min=1)).tolist()
        self.right.zero_()
        self.judged.zero_()
        return {label: round(value, 1) for label, value in zip(packing.LABELS, percent) if label != "text"}

    def means(self):
        result = (self.sums / max(self.count, 1)).tolist()
        self.sums.zero_()
        self.count = 0
        return dict(zip(STATISTICS, result))


class TrunkStage(Stage):
    def __init__(self, trunk, device, options):
        super().__init__(device)
        self.trunk = trunk
        names = [name for name in trunk.values if not name.startswith("draft_")]
        self.optimiser = optimiser.Optimiser(trunk.values, names, options.muon_rate, options.adam_rate)

    def step(self):
        trunk, batch = self.trunk, self.static
        loss, index_loss, each, hits, state = trunk.losses(batch)
        self.optimiser.take_gradients(loss + index_loss, trunk.values)
        norm, index_norm = self.optimiser.clip()
        self.optimiser.step()
        optimiser.balance(trunk.biases["gate_bias"], trunk.biases["gate_bias_image"], state["loads"], self.optimiser.pace)
        with torch.no_grad():
            answer = (batch["target_weights"] >= 1).float()
            self.count_documents(batch["target_rows"], answer, hits.float())
            total = answer.sum()
            loads = torch.stack([load[0] for load in state["loads"]])
            worst = (loads.amax(1) / loads.mean(1)).max()
            self.sums += torch.stack((loss.detach(), (each * answer).sum() / total, (hits * answer).sum() / total, index_loss.detach(),
                                      norm, index_norm, worst))


class Run:
    def __init__(self, options):
        self.options, self.device, self.started = options, "cuda", time.time()
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
        torch._dynamo.config.recompile_limit = 64
        os.makedirs(options.out, exist_ok=True)
        self.log_file = open(f"{options.out}/train.jsonl", "a", encoding="utf-8")
        self.config, token_map = mini.load_config(options.tokenizer)
        state = torch.load(options.state, map_location=self.device) if options.state and os.path.exists(options.state) else None
        self.percent_right = state["percent_right"] if state else {}
        shares = packing.adapted_shares(self.percent_right) if options.adapt and state else {**packing.SHARES, **options.shares}
        self.say(event="shares", **{family: round(share, 3) for family, share in shares.items()})
        self.loader = Loader(options.workers, options.seed + (state["steps"] if state else 0), options.tokenizer, options.text,
                             tuple(options.faces) or (None,), options.tokens, self.config, shares)
        values, biases = parameters.initial(self.config, options.seed)
        if options.start_from:
            weights = reference.load_weights(options.start_from)
            parameters.take_from_released(values, biases, self.config,
                                          {name: value for name, value in weights.items() if not name.startswith("mtp.")})
        values = {name: value.to(self.device).requires_grad_() for name, value in values.items()}
        biases = {name: value.to(self.device) for name, value in biases.items()}
        self.trunk = Trunk(self.config, values, biases, token_map, options.tokens, compiled=True)
        self.stage = TrunkStage(self.trunk, self.device, options)
        self.steps, self.clock = 0, Clock(options.plan, options.decay, options.warm_up)
        self.lowest, self.healthy = float("inf"), True
        if state:
            self.resume(state)

    def seconds(self):
        return time.time() - self.started

    def say(self, **fields):
        fields = dict(second=round(self.seconds(), 1), **fields)
        print(json.dumps(fields), flush=True)
        self.log_file.write(json.dumps(fields) + "\n")
        self.log_file.flush()

    def resume(self, state):
        self.stage.optimiser.load(state["optimiser"])
        for name, value in state["biases"].items():
            self.trunk.biases[name].copy_(value)
        for name, value in state["draft"].items():
            self.trunk.values[name].data.copy_(value)
        self.steps, self.clock.done = state["steps"], state["trained"]
        self.say(event="resumed", steps=self.steps, trained=round(self.clock.done, 1))

    def save(self):
        values = self.trunk.values
        state = dict(optimiser=self.stage.optimiser.state(), biases=self.trunk.biases, steps=self.steps, trained=self.clock.trained(),
                     percent_right=self.percent_right, draft={name: value.data for name, value in values.items() if name.startswith("draft_")})
        torch.save(state, self.options.state + ".new")
        os.replace(self.options.state + ".new", self.options.state)
        self.say(event="saved", steps=self.steps, trained=round(self.clock.trained(), 1))

    def export(self):
        size = checkpoint.write(f"{self.options.out}/mini", self.trunk.values, self.trunk.biases, self.config, self.options.tokenizer)
        self.say(event="exported", bytes=size)

    def guard(self, answer_loss):
        """Goes back to the last saved state, at half the rate, when training has come apart."""
        self.lowest = min(self.lowest, answer_loss)
        self.healthy = answer_loss < 1.3 * self.lowest + 0.05
        if answer_loss < 2 * self.lowest + 0.3 or not os.path.exists(self.options.state):
            return
        done = self.clock.trained()
        self.resume(torch.load(self.options.state, map_location=self.device))
        self.clock.done = done
        self.clock.start()
        self.stage.optimiser.slow_down()
        self.say(event="went back", answer_loss=answer_loss)

    def prepare(self):
        """Compiles by running some steps in the open, then captures a step."""
        for _ in range(FIRST_STEPS):
            self.stage.optimiser.pace.fill_(self.clock.pace(self.steps))
            self.stage.run(self.loader.first(self.device))
            self.steps += 1
            torch.cuda.synchronize()
            self.say(event="step in the open", steps=self.steps)
        if self.options.graph:
            self.stage.capture()
            self.say(event="captured", memory_gb=round(torch.cuda.max_memory_allocated() / 2 ** 30, 1))
        self.stage.means()
        self.loader.start_feeding(self.device)

    def select_really(self):
        """From here on attention sees the real selection."""
        self.trunk.sparse = True
        self.stage.graph = None
        self.stage.run(self.loader.next(self.device))
        self.steps += 1
        torch.cuda.synchronize()
        if self.options.graph:
            self.stage.capture()
        self.lowest = float("inf")
        self.say(event="selection is real", steps=self.steps, memory_gb=round(torch.cuda.max_memory_allocated() / 2 ** 30, 1))

    @staticmethod
    def finish_with(function, *arguments):
        """For what comes after training: its failure must not take the results along."""
        try:
            function(*arguments)
        except Exception:
            traceback.print_exc()

    def score_needles(self):
        """The needle prompts with real selection and with dense attention."""
        from .needle_scores import NeedleScores, load_prompts
        if not self.options.needles or not os.path.exists(self.options.needles):
            return
        kept, scores = self.trunk.sparse, {}
        prompts = load_prompts(self.options.needles)
        for name, self.trunk.sparse in (("sparse", True), ("dense", False)):
            scores[name] = NeedleScores(self.trunk, self.device).score(prompts, self.options.tokens)
            self.say(event="needles", attention=name, **scores[name])
        self.trunk.sparse = kept
        with open(f"{self.options.out}/needles.json", "w", encoding="utf-8") as file:
            json.dump(scores, file)

    def train(self):
        options = self.options
        self.trunk.sparse = options.sparse_from <= 0
        self.prepare()
        self.score_needles()
        self.clock.start()
        self.clock.plan = self.clock.plan or max(options.until - self.seconds(), 1.0)
        reported, saved, seen, waited = time.time(), time.time(), self.steps, 0.0
        while self.seconds() < options.until and self.steps < options.max_steps:
            begin = time.time()
            if not self.trunk.sparse and begin - self.clock.started > options.sparse_from:
                self.select_really()
            batch = self.loader.next(self.device)
            waited += time.time() - begin
            self.stage.optimiser.pace.fill_(self.clock.pace(self.steps))
            self.stage.run(batch)
            self.steps += 1
            if time.time() - reported > options.report_every:
                torch.cuda.synchronize()
                spent = time.time() - reported
                means = {name: round(value, 4) for name, value in self.stage.means().items()}
                self.say(event="train", steps=self.steps, trained=round(self.clock.trained(), 1), pace=round(self.clock.pace(self.steps), 3),
                         tokens_per_second=int((self.steps - seen) * options.tokens / spent), waited=round(waited, 1), **means)
                self.percent_right = self.stage.whole_documents()
                self.say(event="documents right", **self.percent_right)
                self.guard(means["answer_loss"])
                reported, seen, waited = time.time(), self.steps, 0.0
            if options.state and time.time() - saved > options.save_every and self.healthy:
                self.save()
                self.export()
                saved = time.time()
        torch.cuda.synchronize()
        if options.state:
            self.save()
        self.export()


def main():
    run = Run(arguments())
    if run.options.draft_only:
        run.trunk.sparse = run.options.sparse_from <= 0
        run.loader.start_feeding(run.device)
    else:
        run.train()
        run.finish_with(run.score_needles)
        run.say(event="trunk done")
    if run.options.draft_seconds:
        from .draft import train_draft
        run.finish_with(train_draft, run)
    run.loader.stop()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
