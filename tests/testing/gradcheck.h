// Holds gradients against central differences, in double: of a function of one
// Var and some parameters, and of whole models. Every check runs over heap
// memory and over planned memory in which nothing survives that should not.
#pragma once

#include <functional>
#include <vector>

#include "framework/module/param.h"
#include "tests/testing/model_runner.h"

namespace delink::testing {

// The error that is allowed, per tensor by norm, and the norm below which it is
// absolute.
inline constexpr double kGradientTolerance = 1e-6;
inline constexpr double kGradientFloor = 1e-2;

// |actual - expected| / max(|expected|, floor), Euclidean norms.
double NormError(const std::vector<double>& actual,
                 const std::vector<double>& expected, double floor = 1e-30);

struct OpCase {
  Shape x;
  std::vector<Shape> params;
  // Returns an undefined Var for a loss.
  std::function<Var(Var, const std::vector<Param*>&)> op;
  bool loss = false;
  std::vector<int32_t> tokens;   // x is these, [x], when not empty
  std::vector<int32_t> targets;  // of a loss
  bool training = true;
  std::vector<int32_t> positions;  // VisitInputs::positions, or none
  int64_t first_position = 0;
};

// Checks d <y, random> / d (x, params), or that of the loss sum; that gradients
// of parameters are written or added to as they should be; and that all phases,
// and a backward in two halves, compute the same bits.
void ExpectGradients(const OpCase& c);

// Checks every tensor of the model, and that recompute and backwards in two
// halves give the same bits.
void ExpectModelGradients(const ModelRunner::Build& build,
                          const ModelRunner::Batch& batch,
                          const SharingMap& sharing = {});

// Random tokens and targets; every `ignore_every`-th target is not counted.
ModelRunner::Batch RandomBatch(int64_t B, int64_t T, int64_t vocab,
                               int ignore_every = 0);

}  // namespace delink::testing
