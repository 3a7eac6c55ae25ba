// SPDX-License-Identifier: MIT
// The store's part of the loop: prompts whose beginning it has wait for it, then their blocks stand in the device's
// pool as cached ones; blocks that become full are handed to it. No step waits for a disk.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "serve/step_loop.h"

namespace deepinfer {
namespace {
constexpr uint64_t kSnapshotsFromOutside = uint64_t{1} << 63;  // the scheduler counts its own from 1
}

BlockKeyChain StepLoop::key_chain(const SequenceRequest& request) const {
  return BlockKeyChain({request.tenant_salt, options_.scheduler.model_revision, options_.scheduler.cache_format});
}

// True when the arrival waits now. A choice that shares another's prompt goes where that one went.
bool StepLoop::fetch_first(Arrival& arrival) {
  if (!options_.store) return false;
  const SequenceRequest& request = arrival.request.sequence;
  if (request.prompt_of) {
    const auto at = fetching_.find(index(*request.prompt_of));
    if (at == fetching_.end()) return false;
    at->second.followers.push_back(std::move(arrival));
    return true;
  }
  if (!request.use_prefix_cache || request.replay == ReplayMode::kOff) return false;
  const bool exact = request.replay == ReplayMode::kExact;
  const auto num_prompt = static_cast<int64_t>(request.prompt.size());
  const std::vector<BlockKey>& keys = arrival.request.sequence.keys =
      key_chain(request).extend(request.prompt, request.media);  // the scheduler need not hash them again
  const int64_t num_usable = std::min<int64_t>(static_cast<int64_t>(keys.size()), (num_prompt - 1) / kBlockTokens);
  const int64_t num_present = cache_.probe_tokens(keys, num_prompt, exact) / kBlockTokens;
  const TailRange tails =
      useful_tails(engine_.replay_geometry(), request.replay, num_usable * kBlockTokens, num_prompt);
  const int64_t num_tail_max = cache_.tails().is_on() && !tails.empty() ? tails.best / kBlockTokens : 0;
  StoreMiss reason = StoreMiss::kNone;
  const bool started = options_.store->start(index(arrival.id),
                                             {.tenant_salt = request.tenant_salt,
                                              .tenant_was_deleted = arrival.request.tenant_was_deleted,
                                              .keys = keys,
                                              .num_present = num_present,
                                              .num_usable = num_usable,
                                              .num_tail_max = num_tail_max,
                                              .exact_only = exact},
                                             reason);
  arrival.request.store_reason = std::string(to_string(reason));
  if (!started) return false;
  const uint64_t id = index(arrival.id);
  fetching_.emplace(id, Fetching{std::move(arrival), {}, clock_.monotonic_ns()});
  return true;
}

Status StepLoop::finish_fetches() {
  if (!options_.store) return {};
  for (StoreFetch& fetch : options_.store->take_finished()) {
    const auto at = fetching_.find(fetch.ticket);
    if (at == fetching_.end()) continue;  // cancelled meanwhile
    Fetching waiting = std::move(at->second);
    fetching_.erase(at);
    ASSIGN_OR_RETURN(const int64_t num_blocks, adopt(fetch));
    if (fetch.tail) cache_.tails().put(fetch.keys[static_cast<size_t>(fetch.tail->num_blocks - 1)], fetch.tail->tail);
    waiting.arrival.request.num_store_tokens = num_blocks * kBlockTokens;
    waiting.arrival.request.store_wait_ns = clock_.monotonic_ns() - waiting.begin_ns;
    waiting.arrival.request.store_reason = std::string(to_string(fetch.reason));
    if (!fetch.full.empty()) resume_behind(fetch, waiting.arrival.request);
    accept(std::move(waiting.arrival));
    for (Arrival& follower : waiting.followers) accept(std::move(follower));
  }
  return {};
}

// Puts fetched blocks into the pool as cached ones. Fewer when there is no room; what is there already stays.
Result<int64_t> StepLoop::adopt(const StoreFetch& fetch) {
  const auto block_bytes = static_cast<size_t>(options_.store->block_bytes());
  BlockPool& pool = cache_.pool();
  int64_t num_adopted = 0;
  std::vector<BlockId> held;  // until all are in: a later one must not push out an earlier one
  for (int64_t i = 0; i < fetch.blocks.size(); ++i) {
    const BlockKey& key = fetch.keys[static_cast<size_t>(fetch.blocks.begin + i)];
    const bool fast = fetch.fast_replay[static_cast<size_t>(i)] != 0;
    if (const auto present = pool.find(key); present && (fast || !present->behind_fast_replay)) {
      pool.hold(present->block);
      held.push_back(present->block);
      continue;
    }
    const auto block = pool.allocate(1);
    if (!block) break;
    held.push_back(block->front());
    // The block may have been evicted for this: what it held is on its way to host memory, and goes first.
    if (const std::vector<BlockCopy> offloads = cache_.take_offloads(); !offloads.empty()) {
      mover_.start(offloads);
      mover_.wait_for_all();
    }
    TRY(engine_.write_block(block->front(),
                            std::span(fetch.bytes).subspan(static_cast<size_t>(i) * block_bytes, block_bytes)));
    pool.publish(block->front(), key, fast);
    ++num_adopted;
  }
  for (size_t i = held.size(); i-- > 0;) pool.release(held[i]);  // the first ends as the most recently used
  return num_adopted;
}

// Whoever waits for the store when it is cancelled ends here; the scheduler never knew it. False for others.
bool StepLoop::cancel_fetch(SequenceId id) {
  const auto end = [](const Arrival& arrival) {
    arrival.on_update(
        {.id = arrival.id, .tokens = {}, .logprobs = {}, .finished = SequenceEnd::kCancelled, .refused = {}});
  };
  if (const auto at = fetching_.find(index(id)); at != fetching_.end()) {
    Fetching gone = std::move(at->second);
    fetching_.erase(at);
    end(gone.arrival);
    for (Arrival& follower : gone.followers) accept(std::move(follower));  // each computes the prompt itself
    return true;
  }
  for (auto& [key, fetching] : fetching_) {
    const auto at = std::ranges::find(fetching.followers, id, &Arrival::id);
    if (at == fetching.followers.end()) continue;
    end(*at);
    fetching.followers.erase(at);
    return true;
  }
  return false;
}

// Blocks that the last commit made full. Reading them is a copy in memory; the writing is the store's threads'.
Status StepLoop::save_published() {
  if (!options_.store) return {};
  const int64_t block_bytes = options_.store->block_bytes();
  for (const PublishedBlocks& published : cache_.take_published()) {
    const auto root = roots_.find(published.keys.front());
    if (root == roots_.end()) continue;  // a prompt shorter than a block: nobody will ask for it again
    const std::string& salt = root->second.tenant_salt;
    if (options_.store->has(salt, published.keys, !published.behind_fast_replay)) continue;
    std::vector<uint8_t> bytes(published.ids.size() * static_cast<size_t>(block_bytes));
    for (size_t i = 0; i < published.ids.size(); ++i)
      TRY(engine_.read_block(published.ids[i], std::span(bytes).subspan(i * static_cast<size_t>(block_bytes),
                                                                        static_cast<size_t>(block_bytes))));
    options_.store->save(salt, published.keys, published.blocks, std::move(bytes), published.behind_fast_replay,
                         root->second.ttl_class);
  }
  return {};
}

// At the end of an agent's turn, the last windows kept of its prompt and of all of it: the next turn goes on behind one
// of them, behind the prompt where a client sends the answer back changed. Records are large, so nobody else's are
// written.
void StepLoop::save_tails(const Live& live, std::span<const BlockKey> keys) {
  const SequenceRequest& request = live.request.sequence;
  if (!options_.store || live.request.ttl_class != TtlClass::kAgent || !cache_.tails().is_on()) return;
  const int64_t num_prompt_blocks =
      std::min(static_cast<int64_t>(request.prompt.size()) / kBlockTokens, static_cast<int64_t>(keys.size()));
  for (const Range blocks : {Range{0, num_prompt_blocks}, Range{num_prompt_blocks, static_cast<int64_t>(keys.size())}})
    for (int64_t n = blocks.end; n > blocks.begin; --n) {
      const BlockKey& key = keys[static_cast<size_t>(n - 1)];
      const Tail* const tail = cache_.tails().look(key);
      if (!tail || tail->behind_fast_replay) continue;
      options_.store->save_tail(request.tenant_salt, key, tail->bytes);
      break;
    }
}

void StepLoop::pin_prompt(const Live& live, std::span<const BlockKey> keys) {
  if (!options_.store || !live.request.pins) return;
  const auto num_blocks = live.request.sequence.prompt.size() / static_cast<size_t>(kBlockTokens);
  if (!options_.store->pin(keys.first(std::min(num_blocks, keys.size())), *live.request.pins))
    log_line(LogLevel::kWarning, "a prompt was not pinned: too much is", {});
}

// The end of an agent's turn, whole: its next turn goes on right there. In exact mode that saves the replay of
// 128 + (k - 1) * 127 rows for k decoder layers, where a tail spares the encoder's alone; in fast mode it would spare
// 128 rows, and a state that depends on where a turn began is no cold run's. A state whose windows are cut short or are
// not held any more is none.
Status StepLoop::hand_over(const StateMove& move) {
  const std::string& salt = live_.at(index(move.id)).request.sequence.tenant_salt;
  const int64_t window_begin = std::max<int64_t>(0, move.position - engine_.replay_geometry().window);
  const RowLimits& limits = move.limits;
  if (std::max({limits.window_begin, limits.decoder_window_begin, limits.decoder_begin}) > window_begin) return {};
  if (options_.store->has_full(salt, move.last_full_key)) return {};
  SequenceFrame frame = describe(move.id);
  for (const SequenceDelta& delta : deltas_)  // of the step that ended it, not delivered yet
    if (delta.id == move.id) frame.tokens.insert(frame.tokens.end(), delta.tokens.begin(), delta.tokens.end());
  CHECK(static_cast<int64_t>(frame.tokens.size()) >= move.position);
  frame.tokens.resize(static_cast<size_t>(move.position));
  frame.num_prompt_tokens = std::min(frame.num_prompt_tokens, move.position);
  frame.model = options_.scheduler.model_revision;
  frame.moment = {move.position, {}};
  auto bytes = export_sequence(engine_, move.lane, std::move(frame), move.blocks);
  if (!bytes.ok()) return bytes.status().code() == StatusCode::kInvalidArgument ? Status() : bytes.status();
  options_.store->save_full(salt, move.last_full_key, std::move(bytes).value());
  return {};
}

// Only behind the very tokens that the prompt begins with. Whatever does not fit is left: the prompt is hit or
// computed.
void StepLoop::resume_behind(StoreFetch& fetch, LoopRequest& request) {
  const auto decoded = decode_sequence_frame(fetch.full);
  if (!decoded.ok()) return;
  const SequenceFrame& frame = decoded.value();
  SequenceRequest& sequence = request.sequence;
  const int64_t position = frame.moment.position;
  const bool fits = frame.kind == LaneRecordKind::kFull && frame.moment == LaneMoment{position, {}} &&
                    position / kBlockTokens == fetch.num_full_blocks &&
                    position < static_cast<int64_t>(sequence.prompt.size()) &&
                    frame.num_blocks == BlockTable::blocks_for(position) - fetch.num_full_blocks &&
                    static_cast<int64_t>(frame.tokens.size()) >= position &&
                    std::equal(frame.tokens.begin(), frame.tokens.begin() + position, sequence.prompt.begin());
  const bool has_image = std::ranges::any_of(sequence.media, [&](const MediaSpan& span) {
    return span.begin < position && span.end > fetch.num_full_blocks * kBlockTokens;  // its key holds no digest of it
  });
  if (!fits || has_image || !check_sequence_frame(frame, engine_, options_.scheduler.model_revision).ok()) return;
  sequence.resume = ResumePoint{static_cast<SnapshotId>(kSnapshotsFromOutside | index(sequence.id)), position};
  snapshots_.adopt(sequence.resume->snapshot, std::move(fetch.full));
}

// Whose a chain is follows from its first block, which no two tenants share.
void StepLoop::note_root(const LoopRequest& request) {
  if (!options_.store || static_cast<int64_t>(request.sequence.prompt.size()) < kBlockTokens) return;
  const auto first = std::span(request.sequence.prompt).first(static_cast<size_t>(kBlockTokens));
  Root& root = roots_[key_chain(request.sequence).extend(first, request.sequence.media).front()];
  root.tenant_salt = request.sequence.tenant_salt;
  root.ttl_class = request.ttl_class;
  if (roots_.size() > kRootsMax) std::erase_if(roots_, [&](const auto& item) { return &item.second != &root; });
}

}  // namespace deepinfer
