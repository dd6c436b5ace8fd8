// The validator's rules of stored slots: a slot is stored after its forward and
// loaded before its backward. Part of ValidateProgram.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/step/program/instruction.h"

namespace delink {

// Follows a program through its steps and keeps which slots are stored. Rules
// return what is wrong, or nothing.
class StoredRules {
 public:
  // The shape must outlive it.
  explicit StoredRules(const ProgramShape& shape) : shape_(shape) {}

  void BeginStep();
  // A kStoreSlot or kLoadSlot. `forward`, `backward`: whether these of the
  // visit have run; the first half of a backward counts.
  std::string Check(const Instruction& instruction, bool forward,
                    bool backward);
  // The slot that a backward, or a half of it, reads is there.
  std::string Use(const Instruction& visit) const;

 private:
  enum class Slot : uint8_t { kHere, kAway, kBack };

  const ProgramShape& shape_;
  std::vector<std::vector<Slot>> slots_;  // by layer and micro-batch
};

}  // namespace delink
