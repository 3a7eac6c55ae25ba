// SPDX-License-Identifier: MIT
// Tokens per second of one core, by kind of text; worst cases in thread CPU time; loading; two threads on a
// conversation of a million tokens. `--peer` runs bench/peers/tokenizer_peers.py on the same texts in the same run.
// Options: --set text=FILE adds a text of your own; --set tokenizer=FILE; --set python=EXE (default: python3).
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/bench.h"
#include "base/file.h"
#include "base/json.h"
#include "base/peer_bench.h"
#include "base/thread_pool.h"
#include "tokenizer/bench_text.h"
#include "tokenizer/conversation_cache.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {
namespace {

struct Case {
  std::string name, text;
  size_t num_tokens = 0;
  double tokens_per_second = 0;
};

double thread_seconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The whole text in one call, median of seven after a warm-up, thread CPU time.
double encode_seconds(const Tokenizer& tokenizer, const std::string& text, size_t& num_tokens) {
  std::vector<double> seconds;
  std::vector<TokenId> ids;
  for (int i = 0; i < 8; ++i) {
    ids.clear();
    const double begin = thread_seconds();
    tokenizer.encode(text, ids);
    if (i > 0) seconds.push_back(thread_seconds() - begin);
  }
  num_tokens = ids.size();
  std::nth_element(seconds.begin(), seconds.begin() + 3, seconds.end());
  return seconds[3];
}

struct Peer {
  std::string name, text;
  double tokens_per_second = 0, num_tokens = 0;
};

// Runs the script on the texts; empty where it could not run, with a line on stderr.
std::vector<Peer> run_peers(const BenchOptions& options, const std::string& tokenizer, const std::vector<Case>& cases) {
  std::vector<Peer> peers;
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("deepinfer_bench_{}", getpid());
  std::filesystem::create_directories(folder);
  Json manifest = Json::Array{};
  for (const Case& one : cases) {
    const std::string file = (folder / fmt::format("{}.txt", manifest.as_array().size())).string();
    if (!write_file_atomically(file, one.text).ok()) return peers;
    manifest.push_back(Json::Object{{"name", one.name}, {"file", file}});
  }
  const std::string manifest_file = (folder / "manifest.json").string();
  if (!write_file_atomically(manifest_file, to_json(manifest)).ok()) return peers;
  const std::string arguments[] = {tokenizer, manifest_file};
  const std::string output =
      run_peer_script(options, DEEPINFER_TESTDATA "/../bench/peers/tokenizer_peers.py", arguments);
  std::filesystem::remove_all(folder);
  for (size_t begin = 0; begin < output.size();) {
    const size_t end = std::min(output.find('\n', begin), output.size());
    const auto line = parse_json(std::string_view(output).substr(begin, end - begin));
    begin = end + 1;
    if (!line.ok()) continue;
    peers.push_back({line.value().find("peer")->as_string(), line.value().find("name")->as_string(),
                     line.value().find("tokens_per_second")->as_double(), line.value().find("tokens")->as_double()});
  }
  return peers;
}

void report_encoding(const std::vector<Case>& cases, const std::vector<Peer>& peers, BenchReport& report) {
  for (const Case& one : cases) {
    const std::string note = fmt::format("{} tokens, {:.2f} bytes/token", one.num_tokens,
                                         static_cast<double>(one.text.size()) / static_cast<double>(one.num_tokens));
    bool has_peer = false;
    for (const Peer& peer : peers) {
      if (peer.text != one.name) continue;
      has_peer = true;
      report.add({.name = "encode " + one.name,
                  .value = one.tokens_per_second / 1e6,
                  .unit = "Mtokens/s",
                  .peer = BenchPeer{peer.name, peer.tokens_per_second / 1e6},
                  .note = fmt::format("{}, ratio {:.1f}, peer makes {:.0f} tokens", note,
                                      one.tokens_per_second / peer.tokens_per_second, peer.num_tokens)});
    }
    if (!has_peer)
      report.add(
          {.name = "encode " + one.name, .value = one.tokens_per_second / 1e6, .unit = "Mtokens/s", .note = note});
  }
}

void bench_decoding(const Tokenizer& tokenizer, const std::string& text, BenchReport& report) {
  const std::vector<TokenId> ids = tokenizer.encode(text);
  const auto rate = [&](double seconds) { return static_cast<double>(ids.size()) / seconds / 1e6; };
  const double whole = median_seconds(5, [&] { tokenizer.decode(ids); });
  report.add({.name = "decode whole", .value = rate(whole), .unit = "Mtokens/s"});
  const double streamed = median_seconds(5, [&] {
    Detokenizer detokenizer(tokenizer);
    std::string out;
    for (const TokenId id : ids) {
      out.clear();
      detokenizer.push(id, out);
    }
  });
  report.add({.name = "decode by token", .value = rate(streamed), .unit = "Mtokens/s"});
}

// A million tokens in 200 turns: one thread, all threads, and a register-only loop over the same threads as the
// ceiling.
void bench_conversation(const BenchOptions& options, const std::shared_ptr<const Tokenizer>& tokenizer,
                        const std::vector<Case>& cases, BenchReport& report) {
  Prompt prompt;
  const int num_turns = options.quick ? 20 : 200;
  for (int turn = 0; turn < num_turns; ++turn) {
    prompt.add_control(0, "turn");
    for (const Case& one : cases) {
      const size_t share = std::min(one.text.size() / 2, size_t{8192});
      const size_t from = static_cast<size_t>(turn) * 4099 % (one.text.size() - share);
      prompt.add_text(one.text.substr(from, share));
    }
  }
  const int num_threads = std::max(2, options.num_threads);
  ThreadPool pool(num_threads);
  const auto spin = [](int64_t) {
    volatile double sum = 0;
    for (int i = 0; i < 4000000; ++i) sum = sum + 1e-9;
  };
  const double spin_one = median_seconds(3, [&] {
    for (int64_t i = 0; i < 8; ++i) spin(i);
  });
  const double spin_all = median_seconds(3, [&] { pool.parallel_for(8, spin); });
  size_t num_tokens = 0;
  const double one = median_seconds(3, [&] { num_tokens = tokenizer->encode(prompt).size(); });
  const double all = median_seconds(3, [&] { tokenizer->encode(prompt, &pool); });
  report.add({.name = fmt::format("conversation, {} threads", num_threads),
              .value = one / all,
              .unit = "x of one thread",
              .ceiling = spin_one / spin_all,
              .ceiling_name = "register-only loop",
              .note = fmt::format("{} tokens, {:.1f} ms on one thread, {:.1f} ms on {}", num_tokens, one * 1e3,
                                  all * 1e3, num_threads)});
  ConversationCache cache(tokenizer);
  cache.encode(prompt);
  const double again = median_seconds(3, [&] {
    Prompt next = prompt;
    next.add_control(0, "turn");
    next.add_text("What follows from this?\n");
    cache.encode(next);
  });
  report.add({.name = "conversation, next turn",
              .value = again * 1e3,
              .unit = "ms",
              .note = "with the conversation's cache; copies the prompt"});
}

}  // namespace

Status bench_tokenizer(const BenchOptions& options, BenchReport& report) {
  const auto named = options.extra.find("tokenizer");
  const std::string path = named != options.extra.end() ? named->second
                           : options.model.empty()      ? DEEPINFER_TESTDATA "/codec/tokenizer_v41.json.gz"
                                                        : options.model;
  ASSIGN_OR_RETURN(const std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::load(path));
  ASSIGN_OR_RETURN(const std::string json, read_file(path));
  double load = 1e9, load_cpu = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double begin = thread_seconds();
    load = std::min(load, median_seconds(1, [&] { (void)Tokenizer::from_json(json); }));
    load_cpu = std::min(load_cpu, (thread_seconds() - begin) / 2);
  }
  report.add({.name = "load",
              .value = load * 1e3,
              .unit = "ms",
              .note = fmt::format("{} bytes of JSON, CPU time {:.1f} ms", json.size(), load_cpu * 1e3)});

  const size_t num_bytes = options.quick ? 200000 : 2000000;
  std::vector<Case> cases;
  cases.push_back({"english", bench_english(*tokenizer, num_bytes)});
  cases.push_back({"chinese", bench_chinese(*tokenizer, num_bytes)});
  cases.push_back({"code", bench_code(DEEPINFER_TESTDATA "/../src", num_bytes)});
  const size_t num_everyday = cases.size();
  if (const auto text = options.extra.find("text"); text != options.extra.end()) {
    ASSIGN_OR_RETURN(std::string own, read_file(text->second));
    cases.push_back({text->second, std::move(own)});
  }
  for (auto& [name, text] : bench_worst_cases()) cases.push_back({name, std::move(text)});
  for (Case& one : cases) {
    const double seconds = encode_seconds(*tokenizer, one.text, one.num_tokens);
    one.tokens_per_second = static_cast<double>(one.num_tokens) / seconds;
  }
  report_encoding(cases, options.peer ? run_peers(options, path, cases) : std::vector<Peer>{}, report);
  bench_decoding(*tokenizer, cases[0].text + cases[1].text, report);
  cases.resize(num_everyday);
  bench_conversation(options, tokenizer, cases, report);
  return {};
}

}  // namespace deepinfer
