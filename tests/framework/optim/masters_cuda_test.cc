// AdamW on parameters and moments in all their forms: on CUDA the CPU's bits.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/framework/optim/adamw_forms.h"
#include "tests/framework/optim/optim_on_cuda.h"

namespace delink::testing::masters_cuda_test {
namespace {

constexpr UpdateControl kControl = {
    .lr = 0.02, .clip_value = 0.9, .clip_factor = 0.7};

// The arrays of AdamWForms on the device; `offset` elements from where they
// would be aligned.
struct OnDevice {
  OnDevice(Device& device, const AdamWForms& f, int64_t offset)
      : p(device, f.p, offset),
        g(device, f.g, offset),
        m(device, f.m, offset),
        v(device, f.v, offset),
        m_scales(device, f.m_scales),
        v_scales(device, f.v_scales),
        w(device, f.w, offset),
        low(device, f.low, offset),
        m16(device, f.m16, offset),
        v16(device, f.v16, offset),
        // The emulated device tells races apart by words.
        m8(device, f.m8, 4 * offset),
        v8(device, f.v8, 4 * offset) {}

  void ReadInto(AdamWForms& f, Stream& stream) {
    f.p = p.Values(stream);
    f.m = m.Values(stream);
    f.v = v.Values(stream);
    f.w = w.Values(stream);
    f.low = low.Values(stream);
    f.m16 = m16.Values(stream);
    f.v16 = v16.Values(stream);
    f.m8 = m8.Values(stream);
    f.v8 = v8.Values(stream);
    f.m_scales = m_scales.Values(stream);
    f.v_scales = v_scales.Values(stream);
  }

  DeviceArray<float> p, g, m, v, m_scales, v_scales;
  DeviceArray<uint16_t> w, low, m16, v16;
  DeviceArray<uint8_t> m8, v8;
};

class FormsCuda : public OptimOnCuda {
 protected:
  // In calls that end at `cuts`, and a last one.
  AdamWForms Updated(AdamWForms planes, const UpdateControl& control,
                     int64_t offset, std::vector<int64_t> cuts = {}) {
    OnDevice arrays(*device_, planes, offset);
    DeviceArray<UpdateControl> record(*device_, {control});
    cuts.push_back(planes.n);
    int64_t begin = 0;
    for (const int64_t end : cuts) {
      kernels_->adamw(*stream_, planes.Args(begin, end, record.data(), arrays));
      begin = end;
    }
    arrays.ReadInto(planes, *stream_);
    return planes;
  }

  AdamWForms OnHost(AdamWForms planes, const UpdateControl& control) {
    cpu_.adamw(*host_stream_, planes.Args(0, planes.n, &control));
    return planes;
  }
};

TEST_F(FormsCuda, TheBitsOfTheCpu) {
  for (const Form form : AllForms()) {
    for (const int64_t n : {1, 7, 256, 1009}) {
      for (const auto& [in_block, first] :
           {std::pair{0, int64_t{0}}, std::pair{192, int64_t{1} << 34 | 64}}) {
        const AdamWForms start(form, n, in_block, first);
        const AdamWForms expected = OnHost(start, kControl);
        for (const int64_t offset : {0, 1, 4}) {
          ASSERT_TRUE(Updated(start, kControl, offset).SameAs(expected))
              << n << " elements from " << in_block << " of a block, offset "
              << offset << ", master " << static_cast<int>(form.master)
              << ", moments " << static_cast<int>(form.moments);
        }
      }
    }
  }
}

TEST_F(FormsCuda, CutWhereBlocksAre) {
  for (const Form form : AllForms()) {
    const AdamWForms start(form, 3000, 64, 128);
    EXPECT_TRUE(Updated(start, kControl, 0, {192, 448, 2496})
                    .SameAs(OnHost(start, kControl)));
  }
}

TEST_F(FormsCuda, RowsOfAMatrixAreOneCall) {
  constexpr int64_t kCount = 1009;
  const ElementNumbers numbers = {
      .first = 64, .columns = 24, .pitch = 56, .in_row = 8};
  for (const Form form : AllForms()) {
    if (form.moments == StateStorage::kBlock8) continue;
    const AdamWForms start(form, kCount);
    AdamWForms expected = start;
    AdamWArgs args = expected.Args(0, kCount, &kControl);
    args.numbers = numbers;
    cpu_.adamw(*host_stream_, args);
    for (const int64_t offset : {0, 1}) {
      AdamWForms planes = start;
      OnDevice arrays(*device_, planes, offset);
      DeviceArray<UpdateControl> record(*device_, {kControl});
      args = planes.Args(0, kCount, record.data(), arrays);
      args.numbers = numbers;
      kernels_->adamw(*stream_, args);
      arrays.ReadInto(planes, *stream_);
      EXPECT_TRUE(planes.SameAs(expected)) << offset;
    }
  }
}

TEST_F(FormsCuda, SkippingWritesNothing) {
  const UpdateControl skip = {.lr = 0.1, .clip_factor = 1, .skip = 1};
  for (const Form form : AllForms()) {
    const AdamWForms start(form, 300);
    EXPECT_TRUE(Updated(start, skip, 0).SameAs(start));
  }
}

}  // namespace
}  // namespace delink::testing::masters_cuda_test
