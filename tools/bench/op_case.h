// A kernel at one shape, ready to be called on its own memory.
//
// Its operands are laid out once to count bytes, and then on each of several
// sets of memory. Calls use these in turn, so that a call finds nothing of the
// last one in the caches. In a step, too, a kernel's inputs were written long
// before.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "framework/tensor/dtype.h"
#include "layers/kernels/work.h"
#include "tools/bench/shapes.h"
#include "tools/bench/target.h"

namespace delink::bench {

// Hands out one set of the target's memory from front to back; without memory
// it only counts bytes. The memory is filled with numbers (Target::Fill).
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
  // Filled with numbers that are not negative.
  void* TakePositive(int64_t elements, DType dtype);
  // Filled with these values.
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
  // Takes all of a set's memory in an order that depends on shapes only. If the
  // pieces have no memory, the call must not be run.
  std::function<OpCall(Pieces&)> make;
};

// Every kernel of a training step at the shape's sizes, on as many tokens as a
// step has on a device of that kind. Kernels that only the other model family
// uses are included. The device must have kernels for `dtype`.
std::vector<OpCase> OpCases(const ModelShape& shape, DeviceKind device,
                            DType dtype);

}  // namespace delink::bench
