// SPDX-License-Identifier: MIT
// Plain fuzz driver: replays seeds, then mutates them for a bounded time. Without coverage feedback it is a smoke run;
// the `fuzz` preset links libFuzzer instead. Usage: X_fuzz [--target NAME] [--seconds N] [--seeds DIR] [--seed S]
// [FILE...]
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "base/fuzz.h"

namespace deepinfer {
extern const FuzzTarget kFuzzTargetTable[];
}

namespace {
using Bytes = std::vector<uint8_t>;
constexpr size_t kMaxInputBytes = 1 << 16;

Bytes read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  Bytes bytes{std::istreambuf_iterator<char>(in), {}};
  if (bytes.size() > kMaxInputBytes) bytes.resize(kMaxInputBytes);
  return bytes;
}

std::vector<Bytes> read_seeds(const std::filesystem::path& folder) {
  std::vector<Bytes> seeds{{}};
  if (!std::filesystem::is_directory(folder)) return seeds;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.is_regular_file()) seeds.push_back(read_file(entry.path()));
  return seeds;
}

size_t below(std::mt19937_64& rng, size_t bound) { return bound == 0 ? 0 : rng() % bound; }

void mutate_once(Bytes& bytes, const std::vector<Bytes>& seeds, std::mt19937_64& rng) {
  const size_t at = below(rng, bytes.size() + 1);
  switch (rng() % 6) {
    case 0: bytes.insert(bytes.begin() + at, static_cast<uint8_t>(rng())); break;
    case 1:
      if (at < bytes.size()) bytes[at] = static_cast<uint8_t>(rng());
      break;
    case 2:
      if (at < bytes.size()) bytes[at] ^= static_cast<uint8_t>(1u << (rng() % 8));
      break;
    case 3: bytes.erase(bytes.begin() + at, bytes.begin() + at + below(rng, bytes.size() - at + 1)); break;
    case 4: {  // splice a piece of another seed
      const Bytes& other = seeds[below(rng, seeds.size())];
      const size_t from = below(rng, other.size() + 1);
      bytes.insert(bytes.begin() + at, other.begin() + from,
                   other.begin() + from + below(rng, other.size() - from + 1));
      break;
    }
    default: {  // repeat a piece, the cheap way to deep nesting
      const Bytes piece(bytes.begin() + at,
                        bytes.begin() + at + below(rng, std::min<size_t>(bytes.size() - at, 16) + 1));
      for (size_t i = rng() % 8; i > 0; --i) bytes.insert(bytes.begin() + at, piece.begin(), piece.end());
    }
  }
  if (bytes.size() > kMaxInputBytes) bytes.resize(kMaxInputBytes);
}

// A finding ends the process by a signal (CHECK aborts, sanitizers abort): the input at work is written for a replay.
const Bytes* current_input = nullptr;

void write_finding(int signal) {
  if (current_input != nullptr) {
    const int fd = ::open("fuzz_finding.bin", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0 && ::write(fd, current_input->data(), current_input->size()) >= 0) ::close(fd);
    const char note[] = "fuzz: input written to fuzz_finding.bin\n";
    if (::write(2, note, sizeof note - 1) < 0) _exit(1);
  }
  ::signal(signal, SIG_DFL);
  ::raise(signal);
}

struct Arguments {
  std::string target, seeds;
  double seconds = 2;
  uint64_t seed = 1;
  std::vector<std::string> files;
};

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string key = argv[i];
    const auto value = [&] { return ++i < argc ? std::string(argv[i]) : std::string(); };
    if (key == "--target") a.target = value();
    else if (key == "--seconds") a.seconds = std::atof(value().c_str());
    else if (key == "--seeds") a.seeds = value();
    else if (key == "--seed") a.seed = std::strtoull(value().c_str(), nullptr, 10);
    else a.files.push_back(key);
  }
  return a;
}

void run_target(const deepinfer::FuzzTarget& target, const Arguments& a) {
  std::vector<Bytes> seeds = read_seeds(std::filesystem::path(a.seeds) / target.name);
  for (const Bytes& seed : seeds) target.run(seed.data(), seed.size());
  std::mt19937_64 rng(a.seed);
  uint64_t num_runs = 0;
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < a.seconds) {
    Bytes bytes = seeds[below(rng, seeds.size())];
    for (size_t i = 1 + rng() % 8; i > 0; --i) mutate_once(bytes, seeds, rng);
    current_input = &bytes;
    target.run(bytes.data(), bytes.size());
    ++num_runs;
  }
  current_input = nullptr;
  std::printf("%s: %llu inputs, %zu seeds, no finding\n", target.name, static_cast<unsigned long long>(num_runs),
              seeds.size());
}
}  // namespace

int main(int argc, char** argv) {
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) ::signal(signal, write_finding);
  const Arguments a = parse(argc, argv);
  for (const deepinfer::FuzzTarget* target = deepinfer::kFuzzTargetTable; target->name; ++target) {
    if (!a.target.empty() && a.target != target->name) continue;
    for (const std::string& file : a.files) {
      const Bytes bytes = read_file(file);
      target->run(bytes.data(), bytes.size());
    }
    if (a.files.empty()) run_target(*target, a);
  }
}
