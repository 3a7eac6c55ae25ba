// SPDX-License-Identifier: MIT
#include "kernels/kernel_table.h"

namespace deepinfer {
namespace {

template <typename Params>
Status fill(const char* op, KernelRows<Params> rows, const Target& target, Kernel<Params>& kernel) {
  ASSIGN_OR_RETURN(kernel, resolve<Params>(op, rows, target));
  return {};
}

}  // namespace

Result<KernelTable> KernelTable::resolve(const Target& target) {
  KernelTable table;
#define DEEPINFER_KERNEL_FILL(member, params, rows) TRY(fill<params>(#member, rows(), target, table.member));
  DEEPINFER_KERNELS(DEEPINFER_KERNEL_FILL)
#undef DEEPINFER_KERNEL_FILL
  return table;
}

Status KernelTable::take(const KernelTable& from, std::span<const std::string> ops) {
  for (const std::string& op : ops) {
    bool is_known = false;
#define DEEPINFER_KERNEL_TAKE(member, params, rows) \
  if (op == #member) member = from.member, is_known = true;
    DEEPINFER_KERNELS(DEEPINFER_KERNEL_TAKE)
#undef DEEPINFER_KERNEL_TAKE
    if (!is_known) return invalid_argument("there is no op " + op);
  }
  return {};
}

std::string KernelTable::describe() const {
  std::string text;
#define DEEPINFER_KERNEL_LINE(member, params, rows) text += std::string(#member) + ": " + member.name + "\n";
  DEEPINFER_KERNELS(DEEPINFER_KERNEL_LINE)
#undef DEEPINFER_KERNEL_LINE
  return text;
}

}  // namespace deepinfer
