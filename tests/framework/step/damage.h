// Ways to break the programs of a run, each of which the validator must catch.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "framework/step/program/instruction.h"
#include "tests/framework/step/programs.h"

namespace delink::step_test {

struct Damaged {
  // What the message must name: at least one of these.
  std::vector<std::string> names;
};

struct Damage {
  const char* name;
  PassKind kind;  // of the programs
  // Breaks one rank's program (rank 1 where there are two or more and the
  // damage is to their order). Nothing when the programs have no place for it.
  std::optional<Damaged> (*apply)(std::vector<Program>& ranks, Dice& dice);
  bool pipeline = false;  // the programs are of several stages
  bool copies = false;    // or have copies
  bool groups = false;    // or ranks work on the same visits
  bool stores = false;    // or slots go to the host
};

// All kinds.
const std::vector<Damage>& Damages();

}  // namespace delink::step_test
