// Runs a layer whose parameters are cut over ranks, which are threads, and puts
// together what they have: as far as rounding goes it is to be what one rank
// has that is alone.
//
//   const CutCase mlp{.build = LayerOf<Mlp>({.dim = 8, .hidden = 12}),
//                     .B = 2, .T = 4, .D = 8};
//   ExpectSame(RunCut(mlp, {.ranks = 2}), RunCut(mlp, {}), 1e-13);
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "framework/module/module.h"
#include "framework/module/scope.h"
#include "tests/testing/model_runner.h"
#include "tests/testing/visit_runner.h"

namespace delink::testing {

struct CutCase {
  // Declares the layer's parameters and makes it, once on each rank. Of a loss
  // the layer returns an undefined Var.
  std::function<VisitRunner::Layer(const Scope&)> build;
  int64_t B = 0, T = 0, D = 0;  // of x [B, T, D]
  bool loss = false;
  std::vector<int32_t> tokens = {};  // [B, T]: x, where not empty
  std::vector<int32_t> targets = {};
  // [B, T], as VisitInputs', or none. Where ranks have their own rows those of
  // tokens are given as in a run.
  std::vector<int32_t> positions = {};
  std::vector<int32_t> documents = {};
  // In place of random numbers: [passes, B, T, D], one after the other for each
  // of CutOptions::times, and parameters by name.
  std::vector<double> x = {};
  std::map<std::string, std::vector<double>> weights = {};
};

// The layer that is a module.
template <typename M, typename Config = typename M::Config>
std::function<VisitRunner::Layer(const Scope&)> LayerOf(const Config& config) {
  return [config](const Scope& s) {
    const auto module = std::make_shared<M>(s / "layer", config);
    return [module](Var x) { return (*module)(x); };
  };
}

// The blocks of a model, one behind the other.
std::function<VisitRunner::Layer(const Scope&)> BlocksOf(
    const ModelRunner::Build& build);
// All of a model in one visit, from tokens to the loss.
std::function<VisitRunner::Layer(const Scope&)> LossOf(
    const ModelRunner::Build& build);

struct CutOptions {
  int ranks = 1;           // of VisitGroups::tensor
  bool sequence = false;   // likewise
  int context = 1;         // ranks of VisitGroups::context, each of `ranks`
  int expert = 1;          // of all of these neighbours so many have experts
  double expert_room = 0;  // VisitInputs::expert_room
  bool expert_overlap = false;
  int nodes = 1;             // VisitGroup::nodes of experts
  bool same_tokens = false;  // of VisitGroups; experts are of tensor ranks
  DType dtype = DType::kF64;
  bool bf16_gradients = false;
  MemoryMode memory = MemoryMode::kHeap;
  bool halves = false;  // of backward
  bool remake = true;   // VisitInputs::remake
  bool training = true;
  bool all_counted = false;  // VisitInputs::all_counted
  int times = 1;             // gradients of so many passes are added up
};

struct CutResult {
  LossRecord loss;            // `lost` of all passes, each two forwards
  std::vector<double> sums;   // Tape::Sums, likewise
  std::vector<double> y, dx;  // all rows
  struct OfRank {
    std::vector<int64_t> tokens;  // by row: number in [B, T]
    double lost = 0;
  };
  std::vector<OfRank> ranks;
  std::map<std::string, std::vector<double>> gradients;  // whole, by name
};

// Inputs, gradients of outputs and parameters are numbers that bf16 holds, the
// same in every type. What several ranks have alike must be the same bits, and
// what they exchange what the meta device's visits ask for.
CutResult RunCut(const CutCase& c, const CutOptions& options);

// By the norms of tensors.
void ExpectSame(const CutResult& cut, const CutResult& whole, double tolerance);

}  // namespace delink::testing
