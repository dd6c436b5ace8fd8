// A kernel at one shape, ready to be called on memory of its own.
//
// What it works on is laid out once for the size and then on each of several
// sets of memory, in turn, so that a call finds nothing of the last one in the
// caches: as in a step, where what a kernel reads was written long before.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/device/backend.h"
#include "framework/tensor/dtype.h"
#include "layers/kernels/work.h"
#include "recipes/bench/shapes.h"

namespace delink::bench {

// Hands out one set's memory front to back; without any, it only counts.
class Pieces {
 public:
  explicit Pieces(char* memory) : memory_(memory) {}
  void* Take(int64_t elements, DType dtype) {
    void* const piece = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += AlignUp(elements * SizeOf(dtype));
    return piece;
  }
  int64_t bytes() const { return bytes_; }
  bool dry() const { return memory_ == nullptr; }

 private:
  char* memory_;
  int64_t bytes_ = 0;
};

struct OpCall {
  Work work;
  std::function<void(Stream&)> run;
  std::function<void()> prepare;  // optional, before the first run
};

struct OpCase {
  std::string name;   // "matmul qkv forward"
  std::string shape;  // "1024 x 2304 x 768"
  DType dtype = DType::kF32;
  // Takes all of a set's memory in an order that depends on shapes only. Where
  // the pieces are not there the call is not to be run.
  std::function<OpCall(Pieces&)> make;
};

// Every kernel of a training step at the shape's sizes, on `step_tokens`
// tokens; those that only the other family of models has, too. `dtype` must
// have kernels.
std::vector<OpCase> OpCases(const ModelShape& shape, DType dtype);

}  // namespace delink::bench
