#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/layers/kernels/cases.h"

namespace delink::testing {
namespace {

using T = BFloat16;

// An offset in 32 bits is negative, outside the memory.
constexpr int64_t kFar = int64_t{1} << 31;
constexpr int64_t kWide = int64_t{1} << 17;  // elements of a row or matrix
constexpr int64_t kBefore = kFar / kWide;    // rows or matrices in front of it
constexpr int64_t kIn = 512;                 // of a matrix

// Memory of a device, which takes it only where it is written.
class Memory {
 public:
  Memory(Device& device, int64_t elements)
      : device_(device),
        stream_(device.NewStream()),
        bytes_(elements * static_cast<int64_t>(sizeof(T))) {
    const auto memory = device.Allocate(bytes_, "a test");
    if (memory.ok()) data_ = *memory;
  }
  ~Memory() {
    if (there()) device_.Free(data_, bytes_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  bool there() const { return data_ != nullptr; }
  template <typename V>
  V* Put(int64_t element, const std::vector<V>& values) const {
    V* const to = static_cast<V*>(data_) + element;
    device_.CopyFromHost(*stream_, to, values.data(),
                         static_cast<int64_t>(values.size() * sizeof(V)));
    stream_->Synchronize();
    return to;
  }
  std::vector<float> Get(int64_t element) const {
    std::vector<T> values(kWide);
    device_.CopyToHost(*stream_, values.data(),
                       static_cast<T*>(data_) + element, kWide * sizeof(T));
    stream_->Synchronize();
    return {values.begin(), values.end()};
  }

 private:
  Device& device_;
  std::unique_ptr<Stream> stream_;
  int64_t bytes_;
  void* data_ = nullptr;
};

}  // namespace

void ExpectFarElements(const Kernels& kernels, Device& device,
                       bool all_gradients) {
  const Memory far(device, kFar + kWide), x(device, kWide), y(device, kWide),
      w(device, kWide), numbers(device, 2 * (kBefore + 2));
  if (!far.there()) GTEST_SKIP() << "no addresses for 4 GiB";
  const std::unique_ptr<Stream> stream = device.NewStream();
  const std::vector<T> of_x = Normals<T>("x", kWide),
                       of_y = Normals<T>("y", kWide),
                       of_w = Normals<T>("w", kWide);

  // The matrix of the last expert, which alone has a row, with and without
  // others in front of it.
  for (const GroupedForm form :
       {GroupedForm::kForward, GroupedForm::kInput, GroupedForm::kWeight}) {
    const bool weight = form == GroupedForm::kWeight;
    if (weight && !all_gradients) continue;
    const auto product = [&](int64_t experts, const Memory& of, int64_t last) {
      std::vector<int32_t> offsets(static_cast<size_t>(experts + 1));
      offsets.back() = 1;
      GroupedMatmulArgs args = {.E = experts,
                                .cap = 1,
                                .in = kIn,
                                .out = kWide / kIn,
                                .form = form,
                                .offsets = numbers.Put(0, offsets),
                                .x = x.Put(0, of_x),
                                .y = y.Put(0, of_y),
                                .w = of.Put(last, of_w) - last,
                                .accumulate = weight,
                                .narrow = weight};
      kernels.grouped_matmul(*stream, args);
      stream->Synchronize();
      return weight ? of.Get(last)
                    : (form == GroupedForm::kForward ? y : x).Get(0);
    };
    EXPECT_EQ(product(kBefore + 1, far, kFar), product(1, w, 0))
        << static_cast<int>(form);
  }

  // A token, a row and a bias.
  const auto expect_x = [&](const char* what) {
    stream->Synchronize();
    EXPECT_EQ(y.Get(0), std::vector<float>(of_x.begin(), of_x.end())) << what;
  };
  T* const of_far = far.Put(kFar, of_x) - kFar;
  constexpr auto kLast = static_cast<int32_t>(kBefore);
  kernels.gather_rows(*stream, {.E = 1,
                                .k = 1,
                                .cap = 1,
                                .D = kWide,
                                .offsets = numbers.Put<int32_t>(0, {0, 1}),
                                .pairs = numbers.Put<int32_t>(2, {kLast}),
                                .x = of_far,
                                .y = y.Put(0, of_y)});
  expect_x("token");
  kernels.combine_rows(*stream, {.N = 1,
                                 .k = 1,
                                 .D = kWide,
                                 .rows = numbers.Put<int32_t>(0, {kLast}),
                                 .x = of_far,
                                 .y = y.Put(0, of_y)});
  expect_x("row");
  std::vector<int32_t> offsets(kBefore + 2);
  offsets.back() = 1;
  kernels.grouped_bias(*stream,
                       {.E = kBefore + 1,
                        .cap = 1,
                        .D = kWide,
                        .offsets = numbers.Put(0, offsets),
                        .pairs = nullptr,
                        .b = of_far,
                        .y = y.Put(0, std::vector<T>(kWide, T(0.0F)))});
  expect_x("bias");
}

}  // namespace delink::testing
