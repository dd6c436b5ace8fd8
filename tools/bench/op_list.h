// Builds the list of OpCases. Private to it.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "layers/kernels/kernels.h"
#include "tools/bench/op_case.h"

namespace delink::bench {

// Dimensions as layers/kernels/arguments.h names them.
struct OpSizes {
  int64_t B, T, N, D, H, Hkv, Dh;
  int64_t F;   // hidden width of the MLP, or of an expert
  int64_t Fg;  // hidden width of a gated MLP
  int64_t V;
  int64_t E, k;  // experts, or 0
  int64_t block_parameters;
};

class OpList {
 public:
  OpList(const OpSizes& sizes, DeviceKind device, DType dtype);

  // op_cases_large.cc
  void AddMatmuls();
  void AddAttention(int64_t batch, int64_t seq);
  void AddLossAndOptimizer();
  void AddLossOfColumns();
  // op_cases.cc
  void AddLayerNorms();
  void AddRmsNorms();
  void AddQkNorms();
  void AddActivations();
  void AddPointwise();
  void AddEmbedding();
  // op_cases_experts.cc
  void AddRouting();
  void AddRows();
  void AddExperts();

  std::vector<OpCase> Take() { return std::move(cases_); }

 private:
  // Adds a case; `make` makes its arguments from pieces of memory.
  template <typename Args, typename Make>
  void Add(std::string name, std::string shape,
           void (*kernel)(Stream&, const Args&), Make make) {
    const DType dtype = dtype_;
    cases_.push_back(
        {.name = std::move(name),
         .shape = std::move(shape),
         .dtype = dtype,
         .make = [=](Pieces& pieces) -> OpCall {
           const Args args = make(pieces);
           return {.work = pieces.dry() ? Work() : WorkOf(args, dtype),
                   .run = [=](Stream& stream) { kernel(stream, args); }};
         }});
  }
  void AddMatmul(const std::string& name, int64_t m, int64_t in, int64_t out,
                 bool bias, int64_t pitch);
  void AddFusedMatmuls();

  // The type of parameters' gradients, for every type of table.
  static constexpr DType kGradient = DType::kF32;

  const OpSizes sizes_;
  const Kernels* const kernels_;
  const OptimKernels* const optim_;
  const DeviceKind device_;
  const DType dtype_;  // of the table
  std::vector<OpCase> cases_;
};

// "1024 x 768".
template <typename... Sizes>
std::string By(int64_t first, Sizes... more) {
  std::string text = absl::StrCat(first);
  (absl::StrAppend(&text, " x ", more), ...);
  return text;
}

}  // namespace delink::bench
