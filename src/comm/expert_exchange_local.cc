// SPDX-License-Identifier: MIT
#include <string>

#include "comm/expert_exchange.h"

namespace deepinfer {
namespace {

class LocalExpertExchange final : public ExpertExchange {
 public:
  Result<DispatchedRows> dispatch(View<const bf16, dim::tokens, dim::hidden> x,
                                  const ExpertAssignments& assignments) override {
    if (assignments.weight.size != assignments.row.size)
      return invalid_argument("expert exchange: " + std::to_string(assignments.weight.size[0]) + " weights for " +
                              std::to_string(assignments.num_assignments()) + " assignments");
    num_assignments_ = assignments.num_assignments();
    return DispatchedRows{x, assignments};
  }

  Result<View<const bf16, dim::entries, dim::hidden>> combine(View<const bf16, dim::entries, dim::hidden> y) override {
    if (y.size[0] != num_assignments_)
      return invalid_argument("expert exchange: " + std::to_string(y.size[0]) + " results for " +
                              std::to_string(num_assignments_) + " assignments");
    return y;
  }

 private:
  int64_t num_assignments_ = 0;
};

}  // namespace

std::unique_ptr<ExpertExchange> make_local_expert_exchange() { return std::make_unique<LocalExpertExchange>(); }

}  // namespace deepinfer
