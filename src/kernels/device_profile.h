// SPDX-License-Identifier: MIT
// The times of ops on a device: behind every op a point is put on the stream, also into graphs; what passes between two
// points is the later one's, launches and gaps included. Costs are worked out from sizes, since tables of a step stand
// in the device's memory. Points between ops keep them from overlapping, so a step with them is longer than one
// without. Thread: the device's caller.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/op_profile.h"
#include "tensor/stream_marks.h"

namespace deepinfer {

class DeviceProfile {
 public:
  // `marks` is not null.
  DeviceProfile(const KernelTable& kernels, std::unique_ptr<StreamMarks> marks)
      : kernels_(kernels), marks_(std::move(marks)) {}

  const KernelTable& kernels() const { return kernels_; }
  // `kernels()` with every op followed by its point, for contexts whose profile has this object.
  static KernelTable marked(const KernelTable& kernels);

  void begin();                                          // in front of the first op
  void passed(std::string name, const Cost& cost = {});  // behind one
  void clear();  // in front of a step that is run or recorded anew; graphs from before must not run any more
  // Of the step that ran last, once it has been waited for. Adds to profile.ops.
  void read(OpProfile& profile) const;

 private:
  struct Passed {
    std::string name;
    Cost cost;
  };
  KernelTable kernels_;
  std::unique_ptr<StreamMarks> marks_;
  bool has_begun_ = false;
  std::vector<Passed> passed_;
};

}  // namespace deepinfer
