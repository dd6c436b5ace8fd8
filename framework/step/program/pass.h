// A pass: a program as the engine runs it, with its analysis, and its names for
// watches, profilers and traces.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/device/backend.h"
#include "framework/step/program/dependencies.h"
#include "framework/step/program/instruction.h"

namespace delink {

struct Pass {
  Program program;
  Analysis analysis;
  // By instruction, for watches, profilers and traces.
  std::vector<std::string> names = {};
  // By instruction, recorded on its lane's stream behind it. Null: no other
  // lane waits for it.
  std::vector<std::unique_ptr<Event>> events = {};
  // The program's number in the trace; -1: the pass is not traced.
  int32_t traced = -1;

  // Whether dropout is on.
  bool training() const { return program.kind != PassKind::kEvaluation; }
};

// The passes of a stage.
using Passes = std::map<PassKind, Pass>;

}  // namespace delink
