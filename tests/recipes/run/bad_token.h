// A step in which one token makes a router overflow, and nothing else does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/recipes/run/step_rig.h"

namespace delink::testing {

// Where the token is.
struct BadToken {
  int data = 0;
  int64_t micro_batch = 0, sequence = 0, token = 0;
};

// An embedding, blocks that are x + a mixture of experts of x, and a head.
std::unique_ptr<Sequential> BuildUnnormed(const Scope& s, const GptConfig& c);

// What the diagnosis says after the step. `options` are of BuildUnnormed; the
// router is that of blocks/2. Collective.
absl::StatusOr<std::string> DiagnoseBadToken(Communicator& world,
                                             RigOptions options,
                                             const BadToken& at);

}  // namespace delink::testing
