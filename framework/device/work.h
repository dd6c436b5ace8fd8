// The work of kernel calls, as a list that the planner makes and prices.
//
// The stream of a meta device notes the calls that it is given, and a timed
// device records the same of real calls (layers/kernels/timed).
// layers/kernels/work.h counts the work.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace delink {

enum class DType : uint8_t;

struct Work {
  // As Kernels (layers/kernels/kernels.h) calls it, or "fill_zero" and "copy"
  // for the device's own work.
  std::string_view kernel;
  DType dtype{};  // of the table of kernels
  double flops = 0;
  double read = 0;     // bytes
  double written = 0;  // bytes
  // Of products [m, k] x [k, n]: the sizes and which operands are transposed;
  // else 0. Grouped products have the rows of all experts together; attention
  // has queries, keys and the width of a head.
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;

  double bytes() const { return read + written; }
  bool product() const { return flops > 0; }
  friend bool operator==(const Work&, const Work&) = default;
};

struct KernelCall {
  Work work;
  int64_t count = 1;  // of equal calls
  friend bool operator==(const KernelCall&, const KernelCall&) = default;
};

// Collects the calls of a stream. Belongs to the thread of the stream.
class WorkNotes {
 public:
  // Where later calls are added, equal ones as one; null: nowhere.
  void NoteIn(std::vector<KernelCall>* calls) { calls_ = calls; }
  bool noting() const { return calls_ != nullptr; }
  void Add(const Work& work) {
    if (calls_ == nullptr) return;
    const auto known = std::ranges::find(*calls_, work, &KernelCall::work);
    if (known != calls_->end()) {
      ++known->count;
    } else {
      calls_->push_back({.work = work});
    }
  }

 private:
  std::vector<KernelCall>* calls_ = nullptr;
};

inline Work WorkOfZeroing(int64_t bytes) {
  return {.kernel = "fill_zero", .written = static_cast<double>(bytes)};
}
inline Work WorkOfCopy(int64_t bytes) {
  return {.kernel = "copy",
          .read = static_cast<double>(bytes),
          .written = static_cast<double>(bytes)};
}

}  // namespace delink
