// A pass: a program as the engine runs it, with what it implies and what those
// who look on are told.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/device/backend.h"
#include "framework/step/dependencies.h"
#include "framework/step/instruction.h"

namespace delink {

struct Pass {
  Program program;
  Analysis analysis;
  // By instruction: what watches, profilers and traces are told.
  std::vector<std::string> names = {};
  // By instruction: complete on its lane's stream. Null where no other lane
  // waits for it.
  std::vector<std::unique_ptr<Event>> events = {};
  // The program's number in the trace; -1: the pass is not traced.
  int32_t traced = -1;

  // Layers drop out, and note what a backward reads.
  bool training() const { return program.kind != PassKind::kEvaluation; }
};

// Those of a stage.
using Passes = std::map<PassKind, Pass>;

}  // namespace delink
