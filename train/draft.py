"""Trains the draft head on the finished trunk: five tokens at once after every anchor, by self-distillation.

Anchors are tokens of answers. The rows of one draft block see the target features of the 128 positions before the
anchor and each other. Targets are the trunk's own greedy choices along the data, counted while they agree with it.
"""
import time

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask

from . import kernels, optimiser
from .packing import DRAFT_BLOCK
from .run import Stage
from .trunk import BLOCK, activation, ordered, rms_norm, rounded

PLACE_WEIGHTS = (1.0, 0.9, 0.8, 0.7, 0.6)
CONFIDENCE_WEIGHT = 0.3
WARM_UP, DECAY, LAST_PACE = 100, 0.5, 0.02
STATISTICS = ("loss", "accepted", "hit1", "hit2", "hit3", "hit4", "hit5", "gradient_norm")


def greedy(hidden, norm, head):
    return (rms_norm(hidden, norm).float() @ rounded(head).t()).argmax(-1)


def main_features(features, main_proj, main_norm):
    return rms_norm(activation(features) @ main_proj.t(), main_norm)


def draft_loss(hidden, norm, head, previous, markov_embed, markov_head, confidence, wanted, weight, place_weight):
    """-> loss, hits, confidence before the sigmoid"""
    embedded = markov_embed[previous].bfloat16()
    logits = rms_norm(hidden, norm).float() @ rounded(head).t() + embedded.float() @ rounded(markov_head).t()
    losses = F.cross_entropy(logits, wanted, reduction="none")
    hits = (logits.argmax(-1) == wanted).float()
    probe = (torch.cat((hidden, embedded), -1).float() @ rounded(confidence).t())[:, 0]
    sure = F.binary_cross_entropy_with_logits(probe, hits, reduction="none")
    total = (losses * weight * place_weight).sum() / (weight * place_weight).sum().clamp(min=1)
    return total + CONFIDENCE_WEIGHT * (sure * weight).sum() / weight.sum().clamp(min=1), hits, probe.detach()


class DraftMask:
    """Keys: T feature rows, then the T rows of the draft blocks."""

    def __init__(self, trunk):
        self.trunk, self.tokens = trunk, trunk.tokens
        device = trunk.device
        groups = -(-self.tokens // DRAFT_BLOCK)
        self.anchors = torch.zeros(groups, dtype=torch.int32, device=device)
        document, anchors, tokens, window = trunk.masks.document, self.anchors, self.tokens, trunk.config.sliding_window

        def mask(b, h, q, k):
            group = q // DRAFT_BLOCK
            anchor, feature = anchors[group], k.clamp(max=tokens - 1)
            past = (k < tokens) & (k >= anchor - window) & (k < anchor) & (document[feature] == document[anchor])
            return past | ((k >= tokens) & ((k - tokens) // DRAFT_BLOCK == group))

        self.function, self.lists, self.mask = mask, None, None

    def update(self, anchors):
        self.anchors.copy_(anchors)
        count = self.tokens // BLOCK
        rows = torch.arange(self.tokens, device=anchors.device) // DRAFT_BLOCK
        own = anchors[rows].view(count, BLOCK)
        low, high = own.amin(1)[:, None] - self.trunk.config.sliding_window, own.amax(1)[:, None] - 1
        key = torch.arange(count, device=anchors.device)
        past = (key[None] * BLOCK <= high) & (key[None] * BLOCK + BLOCK - 1 >= low)
        flags = torch.cat((past, (key[:, None] - key[None]).abs() <= 1), 1)
        fresh = ordered(flags) + ordered(flags.T.contiguous())
        if self.lists:
            for kept, new in zip(self.lists, fresh):
                kept.copy_(new)
            return
        self.lists = fresh
        names = ("kv_num_blocks", "kv_indices", "q_num_blocks", "q_indices")
        self.mask = BlockMask(seq_lengths=(self.tokens, 2 * self.tokens), BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=self.function,
                              full_kv_num_blocks=None, full_kv_indices=None, full_q_num_blocks=None, full_q_indices=None,
                              **dict(zip(names, fresh)))


class DraftStage(Stage):
    def __init__(self, trunk, device, muon_rate, adam_rate):
        super().__init__(device)
        self.trunk = trunk
        self.sums = torch.zeros(len(STATISTICS), device=device)
        names = [name for name in trunk.values if name.startswith("draft_")]
        self.optimiser = optimiser.Optimiser(trunk.values, names, muon_rate, adam_rate)
        self.mask = DraftMask(trunk)
        self.greedy, self.main_features, self.draft_loss = (torch.compile(f, dynamic=False) for f in (greedy, main_features, draft_loss))
        place = torch.arange(trunk.tokens, device=device) % DRAFT_BLOCK
        self.place, self.place_weight = place, torch.tensor(PLACE_WEIGHTS, device=device)[place]

    def attend(self, u, weights, features, own_rope, past_rope):
        c, run = self.trunk.config, self.trunk.run
        _, _, q, kv = run.attention_inputs(u, weights["attn_norm"], weights["wq_a"], weights["q_norm"], weights["wq_b"],
                                           weights["wkv"], weights["kv_norm"])
        q = kernels.rope(q.view(-1, c.num_attention_heads, c.head_dim), *own_rope)
        own = run.window_format(kernels.rope(kv, *own_rope))
        past = run.window_format(kernels.rope(run.window_only(features, weights["wkv"], weights["kv_norm"]), *past_rope))
        keys = torch.cat((past, own))[None, None]
        out, lse = run.flex_attention(q.transpose(0, 1)[None], keys, keys, block_mask=self.mask.mask, scale=c.head_dim ** -0.5,
                                      enable_gqa=True, return_lse=True)
        o = run.with_sink(out, lse, weights["attn_sink"])
        return run.project_out(kernels.rope(o, *own_rope, inverse=True), weights["wo_a"], weights["wo_b"], c.o_groups)

    def draft_hidden(self, features, anchor):
        """Hidden state of every draft row."""
        trunk, batch, c = self.trunk, self.static, self.trunk.config
        v = trunk.values
        self.mask.update(batch["anchors"])
        own_rope = trunk.rope_at(False, (batch["positions"][anchor] + self.place).clamp(max=c.max_position_embeddings - 1))
        past_rope = trunk.rope_at(False, batch["positions"])
        ids = torch.where(self.place == 0, batch["ids"][anchor], c.dspark_noise_token_id)
        rows = v["embed"].detach()[ids].bfloat16().requires_grad_()          # so that the compiled functions are the trunk's
        main = self.main_features(features, kernels.quantised_weight(v["draft_main_proj"]), v["draft_main_norm"])
        streams, pre = trunk.start_streams(rows)
        no_image = torch.zeros(trunk.tokens, dtype=torch.bool, device=self.device)
        loads = []
        for weights in trunk.layer_weights("draft_", c.num_nextn_predict_layers):
            attention = lambda u: self.attend(u, weights, main, own_rope, past_rope)
            streams, pre, load = trunk.block(streams, pre, weights, attention, no_image, c.dspark_num_experts_per_tok)
            loads.append(load)
        return kernels.collapse(pre, streams), loads

    @torch.no_grad()
    def targets(self, hidden, anchor):
        """The trunk's choices after every draft row, the token before each, and whether the row counts."""
        batch, v = self.static, self.trunk.values
        choice = self.greedy(hidden, v["norm"], v["head"])
        before = anchor + self.place
        wanted, previous = choice[before], batch["ids"][before]
        inside = (batch["answer_weights"][before] >= 1) & (batch["document"][before] == batch["document"][anchor])
        agrees = wanted == batch["ids"][before + 1]
        whole = self.trunk.tokens // DRAFT_BLOCK * DRAFT_BLOCK
        steps = inside[:whole].view(-1, DRAFT_BLOCK)
        earlier = torch.cat((torch.ones_like(steps[:, :1]), agrees[:whole].view(-1, DRAFT_BLOCK)[:, :-1]), 1)
        counted = F.pad((steps & earlier).float().cumprod(1).flatten(), (0, self.trunk.tokens - whole))
        return wanted, previous, counted

    def drafts(self):
        """-> loss, hits, confidences, and which rows count, for every draft row of the buffer; expert loads"""
        trunk, v = self.trunk, self.trunk.values
        hidden, state = trunk.forward(self.static)
        features, hidden = torch.cat(state["features"], -1), hidden.detach()
        rows = torch.arange(trunk.tokens, device=self.device)
        anchor = self.static["anchors"][rows // DRAFT_BLOCK]
        wanted, previous, counted = self.targets(hidden, anchor)
        drafted, loads = self.draft_hidden(features, anchor)
        loss, hits, probe = self.draft_loss(drafted, v["draft_norm"], v["head"].detach(), previous, v["draft_markov_embed"],
                                            v["draft_markov_head"], v["draft_confidence"], wanted, counted, self.place_weight)
        return loss, hits, probe, counted, loads

    def step(self):
        trunk, v = self.trunk, self.trunk.values
        loss, hits, _, counted, loads = self.drafts()
        self.optimiser.take_gradients(loss, v)
        norm, = self.optimiser.clip()
        self.optimiser.step()
        optimiser.balance(trunk.biases["draft_gate_bias"], trunk.biases["draft_gate_bias_image"], loads, self.optimiser.pace)
        with torch.no_grad():
            whole = trunk.tokens // DRAFT_BLOCK * DRAFT_BLOCK
            good, known = ((t[:whole].view(-1, DRAFT_BLOCK)) for t in (hits * counted, counted))
            full = known.prod(1)
            accepted = (good.cumprod(1).sum(1) * full).sum() / full.sum().clamp(min=1)
            by_place = good.sum(0) / known.sum(0).clamp(min=1)
            self.sums += torch.cat((torch.stack((loss.detach(), accepted)), by_place, norm[None]))

    def means(self):
        result = (self.sums / max(self.count, 1)).tolist()
        self.sums.zero_()
        self.count = 0
        return {name: round(value, 4) for name, value in zip(STATISTICS, result)}


def train_draft(run):
    """Trains for `--draft-seconds` after the steps that compile."""
    seconds = run.options.draft_seconds
    run.stage.graph = None                          # gives its memory back
    stage, steps = DraftStage(run.trunk, run.device, run.options.draft_muon_rate, run.options.draft_adam_rate), 0
    for _ in range(3):
        stage.optimiser.pace.fill_((steps + 1) / WARM_UP)
        stage.run(run.loader.next(run.device))
        torch.cuda.synchronize()
        steps += 1
    if run.options.graph:
        stage.capture()
    run.say(event="draft stage captured")
    begin = reported = time.time()
    stage.means()
    while time.time() - begin < seconds:
        left = 1 - (time.time() - begin) / seconds
        stage.optimiser.pace.fill_(min(1.0, (steps + 1) / WARM_UP) * max(LAST_PACE, min(1.0, left / DECAY)))
        stage.run(run.loader.next(run.device))
        steps += 1
        if time.time() - reported > run.options.report_every:
            torch.cuda.synchronize()
            run.say(event="draft", steps=steps, **stage.means())
            reported = time.time()
    torch.cuda.synchronize()
    run.say(event="draft done", steps=steps)
    if run.options.state:
        run.save()
    run.export()
    from .draft_scores import score_drafts
    score_drafts(run, stage)
