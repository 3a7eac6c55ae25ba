// SPDX-License-Identifier: MIT
// The device's picks against the host's, for every kind of law: tokens, errors, logprobs and drafts to the bit. Skipped
// on machines without a device.
#include "sampler/device_sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/philox.h"
#include "base/token_masks.h"

namespace deepinfer {
namespace {

struct Law {
  const char* name;
  void (*set)(SamplingParams&);
};
constexpr Law kLaws[] = {
    {"greedy", [](SamplingParams& p) { p.temperature = 0; }},
    {"temperature", [](SamplingParams&) {}},
    {"high temperature", [](SamplingParams& p) { p.temperature = 3; }},
    {"top-k", [](SamplingParams& p) { p.top_k = 40; }},
    {"top-k of everything", [](SamplingParams& p) { p.top_k = 1 << 20; }},
    {"top-k, top-p", [](SamplingParams& p) { p.top_k = 300, p.top_p = 0.7f; }},
    {"top-p", [](SamplingParams& p) { p.top_p = 0.9f; }},
    {"top-p of a flat law", [](SamplingParams& p) { p.top_p = 0.97f, p.temperature = 40; }},
    {"top-p, min-p", [](SamplingParams& p) { p.top_p = 0.95f, p.min_p = 0.05f; }},
    {"min-p", [](SamplingParams& p) { p.min_p = 0.02f, p.temperature = 2; }},
    {"logprobs", [](SamplingParams& p) { p.top_logprobs = 20; }},
    {"logprobs of the processed law",
     [](SamplingParams& p) { p.top_logprobs = 5, p.logprob_source = LogprobSource::kProcessed, p.temperature = 0.6f; }},
    {"bias",
     [](SamplingParams& p) {
       p.logit_bias = {{3, 4.f}, {17, -100.f}, {900, 9.f}};
     }},
    {"penalties",
     [](SamplingParams& p) { p.repetition_penalty = 1.3f, p.presence_penalty = 0.4f, p.frequency_penalty = 0.7f; }},
    {"everything",
     [](SamplingParams& p) {
       p.repetition_penalty = 0.8f, p.frequency_penalty = 0.3f, p.logit_bias = {{5, 2.f}};
       p.min_tokens = 1000, p.eos_ids = {1, 2}, p.stop_ids = {2, 40}, p.top_p = 0.9f, p.top_k = 500;
       p.top_logprobs = 3;
     }},
    {"bad words, greedy",
     [](SamplingParams& p) {
       p.bad_words = {{7}, {8, 9}}, p.temperature = 0;
     }},
    {"bad words and everything else",
     [](SamplingParams& p) {
       p.bad_words = {{11}, {650}}, p.repetition_penalty = 1.2f, p.top_k = 200, p.logit_bias = {{11, 50.f}};
       p.ignore_eos = true, p.eos_ids = {11, 12}, p.top_logprobs = 4;
       p.logprob_source = LogprobSource::kProcessed;
     }},
    {"ends masked",
     [](SamplingParams& p) {
       p.ignore_eos = true, p.eos_ids = {0, 1, 2, 3}, p.temperature = 0;
     }},
};

struct Case {
  SamplingParams params;
  TokenHistory history;
  std::vector<TokenId> drafted;
  TokenMasks mask;
};

std::vector<float> random_logits(Rng& rng, int64_t rows, int64_t vocab) {
  std::vector<float> logits(static_cast<size_t>(rows * vocab));
  for (float& logit : logits)  // coarse, so that there are equals
    logit = std::round((rng.uniform() + rng.uniform() + rng.uniform() - 1.5f) * 60) / 10;
  return logits;
}

// Words of every length that stand before some row: up to the history's newest token, up to a draft, longer than what
// is kept of the history; their last tokens many, so that the likeliest are among them. And some that differ in a
// token.
void add_bad_words(Rng& rng, int64_t vocab, Case& c) {
  std::vector<TokenId> before(c.history.tail().begin(), c.history.tail().end());
  before.insert(before.end(), c.drafted.begin(), c.drafted.end());
  for (size_t end = before.size() - c.drafted.size(); end <= before.size(); ++end)
    for (int i = 0; i < 60; ++i) {
      const size_t length = std::min<size_t>(end, rng.below(5) == 0 ? kBadWordTokensMax - 1 : rng.below(6));
      std::vector<TokenId> word(before.begin() + static_cast<int64_t>(end - length),
                                before.begin() + static_cast<int64_t>(end));
      if (length > 0 && rng.below(3) == 0) word[rng.below(length)] ^= 1;
      word.push_back(static_cast<TokenId>(rng.below(static_cast<uint64_t>(vocab))));
      c.params.bad_words.push_back(word);
    }
}

std::vector<Case> make_cases(Rng& rng, int64_t vocab) {
  std::vector<Case> cases;
  const auto token = [&] {
    return static_cast<TokenId>(rng.below(static_cast<uint64_t>(std::min<int64_t>(vocab, 700))));
  };
  for (int repeat = 0; repeat < 2; ++repeat)
    for (const Law& law : kLaws) {
      Case& c = cases.emplace_back();
      law.set(c.params);
      c.params.seed = rng.next_u64();
      c.params.choice = static_cast<uint32_t>(repeat);
      std::vector<TokenId> prompt;
      for (int i = 0; i < 100; ++i) prompt.push_back(token());
      c.history.append_prompt(prompt);
      for (int i = 0; i < 30; ++i) c.history.append_output(token());
      for (int i = 0; i < 4; ++i) c.drafted.push_back(i == 3 ? c.drafted[0] : token());
      if (!c.params.bad_words.empty()) add_bad_words(rng, vocab, c);
      if (repeat == 0) continue;
      c.mask = TokenMasks(1, vocab);
      for (int i = 0; i < 50; ++i) allow(c.mask.row(0), static_cast<TokenId>(rng.below(static_cast<uint64_t>(vocab))));
    }
  return cases;
}

// Rows of a sequence: as many as drafts are verified, and one more.
std::vector<SampleRow> rows_of(std::span<const Case> cases, int64_t num_each) {
  std::vector<SampleRow> rows;
  for (const Case& c : cases)
    for (int64_t i = 0; i < num_each; ++i) {
      SampleRow row{.params = &c.params, .history = &c.history, .output_position = 30 + i};
      row.drafted = std::span(c.drafted).first(static_cast<size_t>(i));
      if (i == 0 && c.mask.num_rows() > 0) row.mask = c.mask.row(0);
      rows.push_back(row);
    }
  return rows;
}

class OnDevice {
 public:
  OnDevice(Device& device, std::span<const float> values)
      : buffer_(device.memory(), static_cast<int64_t>(values.size())) {
    device.copy(buffer_.data(), values.data(), buffer_.size_bytes());
    static_cast<void>(device.wait());
  }
  PickLogits view(int64_t first, int64_t rows, int64_t vocab) {
    return {buffer_.data() + first * vocab, {rows, vocab}};
  }

 private:
  Buffer<float> buffer_;
};

void expect_same(const SampledToken& device, const SampledToken& host, const std::string& what) {
  EXPECT_EQ(device.error, host.error) << what;
  if (host.error != SampleError::kNone || device.error != host.error) return;
  EXPECT_EQ(device.id, host.id) << what;
  EXPECT_EQ(device.logprob, host.logprob) << what;
  EXPECT_EQ(device.num_top_logprobs, host.num_top_logprobs) << what;
  for (size_t i = 0; i < static_cast<size_t>(host.num_top_logprobs); ++i)
    EXPECT_EQ(device.top_logprobs[i], host.top_logprobs[i]) << what << ", likeliest " << i;
}

// What the host would draft behind the rows' tokens, position by position.
std::vector<TokenId> host_drafts(const Case& c, std::span<const SampledToken> picked, std::span<const float> logits,
                                 int64_t block, int64_t stride, int64_t vocab, int64_t& position, TokenId& anchor) {
  TokenHistory history = c.history;
  size_t num = 0;
  while (num < picked.size()) {
    history.append_output(picked[num].id);
    anchor = picked[num].id;
    if (++num == picked.size() || c.drafted[num - 1] != anchor) break;
  }
  position -= static_cast<int64_t>(picked.size() - num);
  Sampler sampler(vocab);
  ThreadPool pool(1);
  std::vector<TokenId> drafts;
  for (int64_t i = 0; i < block; ++i) {
    const SampleRow row{.params = &c.params,
                        .history = &history,
                        .drafted = drafts,
                        .output_position = 30 + static_cast<int64_t>(num) + i};
    SampledToken out;
    sampler.sample({logits.data() + i * stride * vocab, {1, vocab}}, {&row, 1}, pool, {&out, 1});
    drafts.push_back(out.error == SampleError::kNone ? out.id : 0);
  }
  return drafts;
}

// Of sequences that end at position 500 and the following, `num_rows` logits rows each.
std::vector<DraftRow> draft_rows_of(const std::vector<Case>& cases, int64_t num_rows) {
  std::vector<DraftRow> rows;
  for (const Case& c : cases) {
    const auto s = static_cast<int64_t>(rows.size());
    rows.push_back({.params = &c.params,
                    .history = &c.history,
                    .first_row = s * num_rows,
                    .num_rows = num_rows,
                    .position_end = 500 + s,
                    .output_position = 30});
  }
  return rows;
}

template <typename T>
std::vector<T> host_copy(Device& device, const Buffer<T>& buffer) {
  std::vector<T> values(static_cast<size_t>(buffer.size()));
  device.copy(values.data(), buffer.data(), buffer.size_bytes());
  static_cast<void>(device.wait());
  return values;
}

}  // namespace

TEST(DeviceSampler, PicksAndDraftsWhatTheHostWould) {
  auto opened = open_cuda_device();
  if (!opened.ok()) GTEST_SKIP() << opened.status().message();
  Device& device = *opened.value();
  constexpr int64_t kEach = 3, kBlock = 4;
  for (const int64_t vocab : {1001, 6144, 129280}) {
    Rng rng(static_cast<uint64_t>(vocab));
    auto cases = make_cases(rng, vocab);
    const auto rows = rows_of(cases, kEach);
    const int64_t num = static_cast<int64_t>(cases.size()), num_rows = num * kEach;
    auto sampler = DeviceSampler::create(device, {vocab, num_rows, num, kEach, kBlock});
    ASSERT_TRUE(sampler.ok() && sampler.value());
    std::vector<float> logits = random_logits(rng, num_rows, vocab);
    const std::vector<float> draft_logits = random_logits(rng, num * kBlock, vocab);
    for (int64_t s = 0; s < num; s += 2)  // every other sequence picks its first draft
      logits[static_cast<size_t>(s * kEach * vocab + cases[static_cast<size_t>(s)].drafted[0])] = 400;
    const std::vector<DraftRow> drafts = draft_rows_of(cases, kEach);
    OnDevice target(device, logits), proposed(device, draft_logits);
    Buffer<int32_t> tokens(device.memory(), num * kBlock), positions(device.memory(), num * kBlock),
        window_end(device.memory(), num * kBlock), previous(device.memory(), num);
    const DraftPlaces places{tokens.data(), positions.data(), window_end.data(), previous.data(), kBlock};
    DeviceSampler& picks = *sampler.value();
    ASSERT_TRUE(picks.prepare(rows, drafts));
    picks.upload();
    picks.pick(target.view(0, num_rows, vocab));
    picks.start_drafts(places);
    for (int64_t i = 0; i < kBlock; ++i) picks.pick_drafts(i, proposed.view(i * num, num, vocab), places);
    picks.bring();
    ASSERT_TRUE(device.wait().ok()) << device.status().message();
    std::vector<SampledToken> ours(rows.size()), theirs(rows.size());
    picks.read(ours);
    ThreadPool pool(4);
    Sampler(vocab).sample({logits.data(), {num_rows, vocab}}, rows, pool, theirs);
    const auto where = host_copy(device, positions), first = host_copy(device, tokens);
    for (int64_t s = 0; s < num; ++s) {
      const std::string what = std::string(kLaws[static_cast<size_t>(s) % std::size(kLaws)].name) + ", vocabulary " +
                               std::to_string(vocab) + ", sequence " + std::to_string(s);
      for (int64_t i = 0; i < kEach; ++i)
        expect_same(ours[static_cast<size_t>(s * kEach + i)], theirs[static_cast<size_t>(s * kEach + i)], what);
      int64_t position = 500 + s;
      TokenId anchor = 0;
      const auto expected = host_drafts(
          cases[static_cast<size_t>(s)], std::span(theirs).subspan(static_cast<size_t>(s * kEach), kEach),
          std::span(draft_logits).subspan(static_cast<size_t>(s * vocab)), kBlock, num, vocab, position, anchor);
      EXPECT_EQ(where[static_cast<size_t>(s * kBlock)], position) << what;
      EXPECT_EQ(first[static_cast<size_t>(s * kBlock)], anchor) << what;
      for (int64_t i = 0; i < kBlock; ++i) EXPECT_EQ(picks.draft(i, s), expected[static_cast<size_t>(i)]) << what;
    }
  }
}

TEST(DeviceSampler, TellsRowsThatCannotBePicked) {
  auto opened = open_cuda_device();
  if (!opened.ok()) GTEST_SKIP() << opened.status().message();
  Device& device = *opened.value();
  constexpr int64_t kVocab = 777;
  Rng rng(5);
  std::vector<float> logits = random_logits(rng, 4, kVocab);
  logits[100] = std::numeric_limits<float>::quiet_NaN();
  logits[kVocab + 776] = std::numeric_limits<float>::infinity();
  const SamplingParams params;
  const TokenMasks nothing(1, kVocab);
  std::vector<SampleRow> rows(4, {.params = &params});
  rows[2].mask = nothing.row(0);
  auto sampler = DeviceSampler::create(device, {kVocab, 4, 1, 1, 0});
  ASSERT_TRUE(sampler.ok() && sampler.value()->prepare(rows, {}));
  OnDevice target(device, logits);
  sampler.value()->upload();
  sampler.value()->pick(target.view(0, 4, kVocab));
  sampler.value()->bring();
  ASSERT_TRUE(device.wait().ok());
  std::vector<SampledToken> out(4);
  sampler.value()->read(out);
  EXPECT_EQ(out[0].error, SampleError::kNotFinite);
  EXPECT_EQ(out[1].error, SampleError::kNotFinite);
  EXPECT_EQ(out[2].error, SampleError::kNothingAllowed);
  EXPECT_EQ(out[3].error, SampleError::kNone);
}

// One sequence's bad words always fit; those of five with the most that a request may have do not.
TEST(DeviceSampler, RefusesMoreBadWordsThanItHasRoomFor) {
  auto opened = open_cuda_device();
  if (!opened.ok()) GTEST_SKIP() << opened.status().message();
  SamplingParams words[5];
  for (SamplingParams& p : words) p.bad_words.assign(kBadWordsMax, std::vector<TokenId>(kBadWordTokensMax, 3));
  const TokenHistory history;
  std::vector<SampleRow> rows;
  for (const SamplingParams& p : words) rows.push_back({.params = &p, .history = &history});
  auto sampler = DeviceSampler::create(*opened.value(), {100, 5, 1, 1, 0});
  ASSERT_TRUE(sampler.ok() && sampler.value());
  EXPECT_TRUE(sampler.value()->prepare(std::span(rows).first(1), {}));
  EXPECT_FALSE(sampler.value()->prepare(rows, {}));
}

}  // namespace deepinfer
