// SPDX-License-Identifier: MIT
// Plans steps and commits their results: sequences in, Batch out, StepOutput in, deltas out. The only place where
// sequence state advances.
//
// A step mixes decode rows (anchor and drafts to verify) with prompt chunks. Decode rows come first; chunks get the
// rest of a nanosecond budget by inverting the step-time curve, and at least `chunk_rows_min` rows, so that a new
// prompt never waits for a decode-only stretch. When blocks run out, the sequence with the least output is preempted
// and recomputed later, or its state is kept in host memory meanwhile (state_move.h). Time comes in as an argument; no
// clock, no device, no text.
//
// Up to kStepsMax steps may be under way: planned and not yet committed. A sequence that decodes in one of them follows
// it in the next (batch.h), with blocks for the longest that it may have become. A sequence that ends keeps its blocks
// and its lane until the last step with rows of it is committed; what such a step still gives of it is thrown away.
// Thread: plan.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "cost/step_time.h"
#include "kv/prefix_cache.h"
#include "scheduler/admission.h"
#include "scheduler/batch.h"
#include "scheduler/calibration.h"
#include "scheduler/draft_guard.h"
#include "scheduler/draft_worth.h"
#include "scheduler/foretold_rate.h"
#include "scheduler/scheduler_options.h"
#include "scheduler/sequence.h"
#include "scheduler/state_move.h"
#include "scheduler/verify_budget.h"

namespace deepinfer {

struct SequenceDelta {
  SequenceId id{};
  std::vector<TokenId> tokens;          // new, in order; may be empty when only the end is news
  std::vector<TokenLogprobs> logprobs;  // of `tokens`, where asked for
  std::optional<SequenceEnd> finished;
};

class Scheduler {
 public:
  static constexpr int64_t kStepsMax = 3;

  // `cache` outlives the scheduler. `options.admission` names a policy of the table.
  Scheduler(const SchedulerOptions& options, PrefixCache& cache);

  // Queues a request. Errors: invalid_argument (empty prompt, no output allowed, longer than the context or than the
  // pool, duplicate id), resource_exhausted ("busy": queue full or the predicted time to first token exceeds what was
  // asked).
  Status submit(SequenceRequest request, int64_t now_ns);
  // Ends a sequence at any moment; unknown ids are ignored. Its delta comes with take_finished().
  void cancel(SequenceId id);

  // Unknown ids are ignored, and as to drafts sequences whose drafts are in a step already.
  // The next draft cannot be picked; a grammar proposes others in place of the sequence's own (kForetoldConfidence).
  void cut_drafts(SequenceId id, int64_t num_drafts);
  void foretell_drafts(SequenceId id, std::span<const TokenId> drafts);
  // A grammar proposes so many drafts at most for the step behind the newest that has rows of the sequence.
  void foretell(SequenceId id, int64_t num_drafts);
  // While it is held a sequence that decodes gets no rows: what it may pick is not known yet.
  void hold(SequenceId id, bool is_held);

  // The next step. Every plan() with a non-empty batch is followed by commit() of its output, in the same order.
  // Precondition: fewer than kStepsMax steps are under way.
  // `batch` and `deltas` are overwritten; handing the same objects in again keeps their memory.
  void plan(int64_t now_ns, Batch& batch);
  void commit(const StepOutput& output, int64_t now_ns, std::vector<SequenceDelta>& deltas);
  int64_t num_steps_under_way() const { return num_steps_; }
  // The last plan found no room that it may take while steps are under way: commit them all before planning again.
  bool wants_drain() const { return wants_drain_; }
  // Deltas of sequences that ended without a step: cancelled or past their deadline.
  std::vector<SequenceDelta> take_finished();
  // Measured time of the step just committed, for the curve.
  void add_step_time(int64_t measured_ns);
  int64_t predicted_step_ns() const { return committed_predicted_ns_; }  // of that step, by the curve as it was before
  const StepShape& committed_shape() const { return committed_.shape; }  // what ran in it
  // Copies to start, offloads first, then loads. The offloads must be done before the planned batch runs; sequences
  // that wait for a load run once PrefixCache::finish_copy has been told of it.
  std::vector<BlockCopy> take_copies();
  // To be carried out in order: after plan() before its batch (and before its copies) run, and after commit().
  std::vector<StateMove> take_state_moves();

  int64_t num_drafts() const { return options_.num_drafts; }  // longest draft block
  bool is_idle() const { return sequences_.empty() && num_steps_ == 0; }
  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  const Sequence* find(SequenceId id) const;
  // Finished sequences' records are kept until taken.
  std::optional<SequenceRecord> take_record(SequenceId id);
  // Predicted nanoseconds until the first token of a prompt of which this part is not cached, if it were queued now.
  double predict_ttft_ns(const ChunkShape& uncached) const;
  int64_t num_wasted_rows() const { return num_wasted_rows_; }  // ran for sequences that had ended, or in vain
  const StepTime& curve() const { return fit_.curve(); }
  const StepTimeFit& fit() const { return fit_; }
  const Calibration& calibration() const { return calibration_; }
  int64_t num_draft_pauses() const { return draft_guard_.num_pauses(); }  // hardly a draft stood
  int64_t num_draft_rests() const { return draft_worth_.num_rests(); }    // drafts cost more time than they saved
  void check_invariants() const;

 private:
  struct Planned {
    Sequence* sequence = nullptr;
    SequenceId id{};
    bool is_prompt = false;
    int64_t num_rows = 0;    // at most
    int64_t num_coming = 0;  // output tokens, at least
    bool drafts = false;     // behind its tokens
  };
  struct Step {
    uint64_t number = 0;
    std::vector<Planned> sequences;
    StepShape shape;
  };

  void expire(int64_t now_ns);
  void plan_decode(Batch& batch);
  void plan_prompts(Batch& batch, int64_t now_ns);
  void choose_verify_lengths(Batch& batch);
  double decode_ns() const;
  bool drafts(const Sequence& sequence) const;
  bool verifies(const Sequence& sequence) const;
  bool add_chunk(Batch& batch, Sequence& sequence, double budget_ns);
  static int64_t longest_after(const Sequence& sequence, int64_t num_drafts);
  int64_t drafts_wanted(const Sequence& sequence) const;
  void add_decode_rows(Batch& batch, Sequence& sequence, int64_t num_drafts);
  void add_following_rows(Batch& batch, Sequence& sequence, int64_t num_drafts);
  Step& planning() { return steps_[static_cast<size_t>((first_step_ + num_steps_) % kStepsMax)]; }
  static BatchSequence& add_rows(Batch& batch, const Sequence& sequence);
  static int64_t num_following_rows(const Batch& batch);  // at most
  void note_planned(Sequence& sequence, const Planned& planned);
  bool admit(Sequence& sequence, int64_t now_ns);
  ReplayPlan choose_start(Sequence& sequence, const PrefixHit& hit);
  std::optional<int64_t> tail_wanted(const Sequence& sequence, int64_t num_tokens) const;
  void publish_tail(Sequence& sequence, const SequenceOutput& output);
  Sequence* next_waiting(int64_t now_ns);
  ChunkShape remaining(const Sequence& sequence) const;
  double prompt_ns(const ChunkShape& prompt) const { return fit_.curve().prompt_ns(prompt, options_.rows_max); }
  double remaining_ns(const Sequence& sequence) const { return prompt_ns(remaining(sequence)); }
  double lane_wait_ns(double step_ns) const;
  bool reserve(Sequence& sequence, int64_t num_tokens, bool may_preempt);
  Sequence* preemption_victim(const Sequence& keep);
  void preempt(Sequence& sequence);
  void commit_prompt(Sequence& sequence, const Planned& planned, const SequenceOutput& output, SequenceDelta& delta,
                     int64_t now_ns);
  void commit_decode(Sequence& sequence, const SequenceOutput& output, SequenceDelta& delta);
  void commit_late(Sequence& sequence, const Planned& planned, const SequenceOutput& output);
  void commit_sequence(const Planned& planned, const StepOutput& output, const SequenceOutput& result, int64_t now_ns,
                       SequenceDelta& delta);
  void append_tokens(Sequence& sequence, std::span<const TokenId> tokens, SequenceDelta& delta);
  void take_drafts(Sequence& sequence, const SequenceOutput& output);
  void publish_full_blocks(Sequence& sequence);
  // Keeps blocks and lane while steps have rows of it; retire() gives them back and destroys the sequence.
  void finish(Sequence& sequence, SequenceEnd reason, int64_t now_ns);
  void retire(Sequence& sequence);
  void release_blocks(Sequence& sequence);

  // scheduler_moves.cc
  struct PromptFork {
    SnapshotId snapshot{};
    std::vector<BlockId> blocks;  // full ones of the prompt, held
    int64_t num_tokens = 0, num_cached_tokens = 0;
    RowLimits limits;
    bool behind_fast_replay = false;
    std::optional<int64_t> first_hit_tokens;
    std::vector<SequenceId> choices;  // waiting
  };
  int64_t state_bytes(int64_t num_blocks) const;
  void move_lane(StateMove::Kind kind, SnapshotId snapshot, const Sequence& sequence, int64_t position, Range blocks);
  void save_state(Sequence& sequence);
  void drop_snapshot(Sequence& sequence);
  void take_lane(Sequence& sequence, SequenceState state);
  bool resume_from_snapshot(Sequence& sequence);
  std::optional<bool> start_from_record(Sequence& sequence, int64_t now_ns);  // nullopt: it starts as others do
  void drop_record(Sequence& sequence);
  void hand_over(Sequence& sequence);
  void await_prompt(Sequence& choice);
  bool awaits_prompt(const Sequence& sequence) const;
  void fork_prompt(Sequence& sequence);
  bool start_from_fork(Sequence& sequence, int64_t now_ns);
  void leave_fork(Sequence& sequence);
  void drop_fork(SequenceId first);
  bool drop_any_fork();
  void hand_prompt_on(Sequence& sequence);

  SchedulerOptions options_;
  PrefixCache& cache_;
  const AdmissionPolicy* policy_;
  StepTimeFit fit_;
  Calibration calibration_;
  DraftGuard draft_guard_;
  DraftWorth draft_worth_;
  ForetoldRate foretold_rate_;
  bool step_drafts_ = true;  // of the step being planned
  struct IdHash {
    size_t operator()(SequenceId id) const { return static_cast<size_t>(id); }
  };
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>, IdHash> sequences_;  // alive
  std::vector<std::unique_ptr<Sequence>> ended_;                                 // with rows in steps under way
  std::vector<Sequence*> waiting_;           // in arrival order; a preempted sequence returns to the front
  std::vector<Sequence*> running_;           // in admission order
  std::optional<int64_t> next_deadline_ns_;  // none is earlier
  std::vector<int32_t> free_lanes_;
  std::vector<BlockCopy> loads_;
  std::vector<StateMove> moves_;
  std::unordered_map<SequenceId, PromptFork, IdHash> forks_;  // by the choice that computed the prompt
  uint64_t next_snapshot_ = 1;
  int64_t snapshot_bytes_ = 0;
  SurvivalTable live_survivals_, stale_survivals_;  // the second of the step before: the budget sees nothing newer
  SurvivalTable foretold_survivals_;                // except for these, which are no model's
  std::vector<Sequence*> decoding_;                 // scratch of plan
  std::vector<BlockId> fresh_blocks_;
  std::vector<int32_t> verify_lengths_;
  VerifyScratch verify_scratch_;
  std::array<Step, kStepsMax> steps_;  // under way, a ring from first_step_ on
  int64_t first_step_ = 0, num_steps_ = 0;
  Step committed_;
  int64_t committed_predicted_ns_ = 0;
  bool wants_drain_ = false;
  int64_t now_ns_ = 0;               // of the last call that said it
  double mean_output_tokens_ = 256;  // of the sequences that ended lately; a guess before any has
  double mean_run_tokens_ = 1;       // tokens that a decode step gives a sequence
  int64_t num_wasted_rows_ = 0;
  std::vector<SequenceDelta> finished_;
  std::unordered_map<SequenceId, SequenceRecord, IdHash> records_;
  uint64_t step_ = 0;
};

}  // namespace deepinfer
