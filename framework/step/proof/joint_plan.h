// The programs of all stages of a pipeline. Every rank writes and proves all of
// them from the same inputs, and compares only their digest with other ranks.
// So all are known to fit, without sending programs between ranks.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/step/plan/planner.h"
#include "framework/step/program/instruction.h"

namespace delink {

class JointPlan {
 public:
  // Plans passes of these kinds, in this order, and proves each as
  // ValidateStages does.
  static absl::StatusOr<JointPlan> Create(const Planner& planner,
                                          const ProgramShape& shape,
                                          std::span<const PassKind> kinds);

  // By stage.
  const std::vector<Program>& Of(PassKind kind) const {
    return programs_.at(kind);
  }
  // How many ranks it is for.
  int ranks() const;
  // A line for each thing in which plans may differ. If visits exchange
  // something: kExchangesTitle, then an exchange a line. By kind and stage: a
  // title, the shape, then an instruction a line.
  static constexpr char kExchangesTitle[] = "what visits exchange";
  std::string Text() const;
  // Of the text.
  std::string Digest() const;

 private:
  std::map<PassKind, std::vector<Program>> programs_;
};

}  // namespace delink
