// SPDX-License-Identifier: MIT
#include "model/expert_residency.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"

namespace deepinfer {
namespace {

// Four experts of one layer in a mapped file, 3 pages each and a bit, so that neighbours share pages.
class ExpertFile {
 public:
  static constexpr size_t kExperts = 4, kBytes = 3 * 4096 + 100;
  ExpertFile() : path_(std::filesystem::temp_directory_path() / ("expert_residency_" + std::to_string(::getpid()))) {
    std::vector<uint8_t> bytes(kExperts * kBytes);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7 + i / 256);
    expected_ = bytes;
    EXPECT_TRUE(write_file_atomically(path_.string(), bytes).ok());
    map_ = std::make_unique<MappedFile>(std::move(MappedFile::open(path_.string()).value()));
  }
  ~ExpertFile() { std::filesystem::remove(path_); }
  std::vector<ExpertResidency::Pieces> experts() const {
    std::vector<ExpertResidency::Pieces> experts;
    for (size_t e = 0; e < kExperts; ++e)
      experts.push_back(
          {map_->bytes().subspan(e * kBytes, 100), map_->bytes().subspan(e * kBytes + 100, kBytes - 100)});
    return experts;
  }
  bool is_intact() const { return std::equal(expected_.begin(), expected_.end(), map_->bytes().begin()); }

 private:
  std::filesystem::path path_;
  std::vector<uint8_t> expected_;
  std::unique_ptr<MappedFile> map_;
};

}  // namespace

TEST(ExpertResidency, ForgetsTheLeastRecentlyUsedBeyondTheBudget) {
  const ExpertFile file;
  ThreadPool pool(2);
  ExpertResidency residency(2 * static_cast<int64_t>(ExpertFile::kBytes));
  residency.add_layer(file.experts());
  const auto require = [&](std::vector<int32_t> experts) { residency.require(0, experts, &pool); };
  require({0, 1});
  EXPECT_EQ(residency.traffic().misses, 2);
  require({0});
  EXPECT_EQ(residency.traffic().hits, 1);
  require({2});  // pushes out 1
  require({0, 2});
  EXPECT_EQ(residency.traffic().hits, 3);
  require({1});
  EXPECT_EQ(residency.traffic().misses, 4);
  EXPECT_EQ(residency.traffic().bytes_read, 4 * static_cast<int64_t>(ExpertFile::kBytes));
  EXPECT_EQ(residency.traffic().bytes_resident, 2 * static_cast<int64_t>(ExpertFile::kBytes));
  EXPECT_TRUE(file.is_intact());
}

TEST(ExpertResidency, KeepsWhatOneCallNeedsWhateverTheBudget) {
  const ExpertFile file;
  ExpertResidency residency(1);
  residency.add_layer(file.experts());
  residency.require(0, std::vector<int32_t>{0, 1, 3}, nullptr);
  EXPECT_EQ(residency.traffic().bytes_resident, 3 * static_cast<int64_t>(ExpertFile::kBytes));
  residency.require(0, std::vector<int32_t>{3}, nullptr);
  EXPECT_EQ(residency.traffic().hits, 1);
  EXPECT_EQ(residency.traffic().bytes_resident, static_cast<int64_t>(ExpertFile::kBytes));
  EXPECT_TRUE(file.is_intact());
}

}  // namespace deepinfer
