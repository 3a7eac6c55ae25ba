// SPDX-License-Identifier: MIT
// Property: any text either compiles as a schema or is refused; what compiles can be stepped and completed, and its
// completion is accepted.
#include <string_view>

#include "base/check.h"
#include "grammar/json_schema.h"
#include "grammar/machine.h"

namespace deepinfer {

int fuzz_schema(const uint8_t* data, size_t size) {
  JsonLimits limits;
  limits.bytes_max = 1 << 16;
  limits.wide_integers = true;
  const auto schema = parse_json(std::string_view(reinterpret_cast<const char*>(data), size), limits);
  if (!schema.ok()) return 0;
  auto program = std::make_unique<GrammarProgram>();
  auto start = add_json_schema(*program, schema.value(), {PropertyOrder::kAny, false});
  if (!start.ok()) return 0;
  program->start = *start;
  program->find_nullable();
  Machine machine(std::move(program), {2'000, size_t{64} << 20});
  StateId state = machine.start();
  for (int i = 0; i < 200 && state != Machine::kDead && !machine.is_accepting(state); ++i) {
    StateId best = Machine::kDead;
    for (int byte = 0; byte < 256; ++byte) {
      const StateId next = machine.step(state, static_cast<uint8_t>(byte));
      if (next == Machine::kDead) continue;
      if (best == Machine::kDead || machine.bytes_to_end(next) < machine.bytes_to_end(best)) best = next;
    }
    state = best;
  }
  return 0;
}

}  // namespace deepinfer
