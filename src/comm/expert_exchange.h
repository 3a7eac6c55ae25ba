// SPDX-License-Identifier: MIT
// Moves rows to the ranks that hold their experts, and the experts' outputs back. Attention sees only the rows of its
// own rank; everything between dispatch and combine sees only the experts of its own rank.
//
// A batch's choices come sorted by expert id, rows ascending inside one expert ("assignments"). combine() hands every
// output back in the place of its assignment, so the caller adds a row's outputs in ascending expert id whichever rank
// made them and whenever they arrived (decision 1). Thread: one caller at a time.
#pragma once

#include <cstdint>
#include <memory>

#include "base/status.h"
#include "tensor/bfloat16.h"
#include "tensor/view.h"

namespace deepinfer {

struct ExpertAssignments {
  View<const int32_t, dim::experts> begin;  // [experts + 1]: assignments of expert e are [begin(e), begin(e + 1))
  View<const int32_t, dim::entries> row;    // [assignments] row of x
  View<const float, dim::entries> weight;   // [assignments] routing weight
  int64_t num_assignments() const { return row.size[0]; }
};

// What the experts of this rank compute, valid until the next dispatch.
struct DispatchedRows {
  View<const bf16, dim::tokens, dim::hidden> x;
  ExpertAssignments assignments;  // experts of other ranks have empty ranges
};

class ExpertExchange {
 public:
  virtual ~ExpertExchange() = default;
  // x [tokens, hidden] with the assignments of all experts. Errors: invalid_argument, weights and assignments differ in
  // number; whatever the way to another rank reports.
  virtual Result<DispatchedRows> dispatch(View<const bf16, dim::tokens, dim::hidden> x,
                                          const ExpertAssignments& assignments) = 0;
  // y [assignments of the dispatch, hidden]; gives [assignments of the caller, hidden]. Errors: invalid_argument, y has
  // another number of rows; as dispatch().
  virtual Result<View<const bf16, dim::entries, dim::hidden>> combine(
      View<const bf16, dim::entries, dim::hidden> y) = 0;
};

// All experts on this rank: both are a plain hand-over, nothing is copied.
std::unique_ptr<ExpertExchange> make_local_expert_exchange();

}  // namespace deepinfer
