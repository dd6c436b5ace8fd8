// The validator's rules of slots that are stored: they go when their forward is
// through, and are there again for their backward. Part of ValidateProgram.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/step/instruction.h"

namespace delink {

// Follows a program through its steps and keeps which slots are away. Rules
// return what is wrong, or nothing.
class StoredRules {
 public:
  // The shape must outlive it.
  explicit StoredRules(const ProgramShape& shape) : shape_(shape) {}

  void BeginStep();
  // Of a kStoreSlot or kLoadSlot; what of the visit has run, the first half of
  // its backward included.
  std::string Check(const Instruction& instruction, bool forward,
                    bool backward);
  // What a backward, or a half of it, reads is there.
  std::string Use(const Instruction& visit) const;

 private:
  enum class Slot : uint8_t { kHere, kAway, kBack };

  const ProgramShape& shape_;
  std::vector<std::vector<Slot>> slots_;  // by layer and micro-batch
};

}  // namespace delink
