// SPDX-License-Identifier: MIT
// Property: rules are refused or compile, and every live byte leads to a state that goes on or accepts.
#include <string_view>

#include "base/check.h"
#include "grammar/ebnf.h"

namespace deepinfer {

int fuzz_ebnf(const uint8_t* data, size_t size) {
  if (size > 4'000) return 0;
  auto program = std::make_unique<GrammarProgram>();
  EbnfLimits limits;
  limits.nodes_max = 5'000;
  auto start = add_ebnf(*program, std::string_view(reinterpret_cast<const char*>(data), size), limits);
  if (!start.ok()) return 0;
  program->start = *start;
  program->find_nullable();
  Machine machine(std::move(program), {500, size_t{32} << 20});
  StateId state = machine.start();
  for (size_t i = 0; i < 40 && state != Machine::kDead; ++i) {
    StateId last = Machine::kDead;
    for (int byte = 0; byte < 256; ++byte) {
      const StateId next = machine.step(state, static_cast<uint8_t>((static_cast<size_t>(byte) + i * 37) & 255));
      if (next != Machine::kDead) last = next;
    }
    CHECK(last != Machine::kDead || machine.is_accepting(state) || !machine.failure().empty());
    state = last;
  }
  return 0;
}

}  // namespace deepinfer
