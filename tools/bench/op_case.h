// A kernel at one shape, ready to be called on memory of its own.
//
// What it works on is laid out once for the size and then on each of several
// sets of memory, in turn, so that a call finds nothing of the last one in the
// caches: as in a step, where what a kernel reads was written long before.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/tensor/dtype.h"
#include "layers/kernels/work.h"
#include "tools/bench/shapes.h"
#include "tools/bench/target.h"

namespace delink::bench {

// Hands out one set's memory of the target front to back; without any, it only
// counts. The memory is filled with numbers (Target::Fill).
class Pieces {
 public:
  Pieces() = default;
  Pieces(Target& target, void* memory)
      : target_(&target), memory_(static_cast<char*>(memory)) {}
  void* Take(int64_t elements, DType dtype) {
    void* const piece = memory_ == nullptr ? nullptr : memory_ + bytes_;
    bytes_ += AlignUp(elements * SizeOf(dtype));
    return piece;
  }
  // With numbers that are not negative.
  void* TakePositive(int64_t elements, DType dtype);
  // With these values.
  template <typename T>
  T* Put(const std::vector<T>& values) {
    const auto bytes = static_cast<int64_t>(values.size() * sizeof(T));
    void* const piece = Take(bytes, DType::kU8);
    Write(piece, values.data(), bytes);
    return static_cast<T*>(piece);
  }
  int64_t bytes() const { return bytes_; }
  bool dry() const { return memory_ == nullptr; }

 private:
  void Write(void* piece, const void* values, int64_t bytes);

  Target* target_ = nullptr;
  char* memory_ = nullptr;
  int64_t bytes_ = 0;
};

struct OpCall {
  Work work;
  std::function<void(Stream&)> run;
};

struct OpCase {
  std::string name;   // "matmul qkv forward"
  std::string shape;  // "1024 x 2304 x 768"
  DType dtype = DType::kF32;
  // Takes all of a set's memory in an order that depends on shapes only. Where
  // the pieces are not there the call is not to be run.
  std::function<OpCall(Pieces&)> make;
};

// Every kernel of a training step at the shape's sizes, on as many tokens as a
// step has on a device of that kind; those that only the other family of models
// has, too. The device must have kernels for `dtype`.
std::vector<OpCase> OpCases(const ModelShape& shape, DeviceKind device,
                            DType dtype);

}  // namespace delink::bench
