// SPDX-License-Identifier: MIT
#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <numeric>

namespace deepinfer {

TEST(ThreadPool, RunsEveryItemOnceForAnyNumberOfThreads) {
  for (const int num_threads : {1, 2, 5}) {
    ThreadPool pool(num_threads);
    for (int round = 0; round < 200; ++round) {
      std::vector<int> hits(static_cast<size_t>(round), 0);
      pool.parallel_for(round, [&](int64_t i) { ++hits[static_cast<size_t>(i)]; });
      EXPECT_EQ(std::accumulate(hits.begin(), hits.end(), 0), round);
    }
  }
}

TEST(ThreadPool, NestedLoopsRunInline) {
  ThreadPool pool(3);
  std::atomic<int> sum{0};
  pool.parallel_for(8, [&](int64_t) { pool.parallel_for(8, [&](int64_t i) { sum += static_cast<int>(i); }); });
  EXPECT_EQ(sum.load(), 8 * 28);
}

}  // namespace deepinfer
