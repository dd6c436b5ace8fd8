// AdamW on parameters and moments in all their forms: on CUDA the CPU's bits.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
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
                     int64_t offset, std::vector<int64_t> cuts = {},
                     bool rounds = true) {
    OnDevice arrays(*device_, planes, offset);
    DeviceArray<UpdateControl> record(*device_, {control});
    cuts.push_back(planes.n);
    int64_t begin = 0;
    for (const int64_t end : cuts) {
      AdamWArgs args = planes.Args(begin, end, record.data(), arrays);
      if (!rounds) args.w = nullptr;
      kernels_->adamw(*stream_, args);
      begin = end;
    }
    arrays.ReadInto(planes, *stream_);
    return planes;
  }

  AdamWForms OnHost(AdamWForms planes, const UpdateControl& control,
                    bool rounds = true) {
    AdamWArgs args = planes.Args(0, planes.n, &control);
    if (!rounds) args.w = nullptr;
    cpu_.adamw(*host_stream_, args);
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

// f32 in all its planes, and nothing that is rounded.
TEST_F(FormsCuda, TheBitsOfTheCpuWithoutWeightsToRound) {
  for (const int64_t n : {0, 1, 3, 4, 5, 16, 17, 1024, 1025, 20021}) {
    const AdamWForms start({}, n);
    const AdamWForms expected = OnHost(start, kControl, false);
    for (const int64_t offset : {0, 1, 4}) {
      ASSERT_TRUE(
          Updated(start, kControl, offset, {n / 3}, false).SameAs(expected))
          << n << " elements, offset " << offset;
    }
  }
}

// Many sizes of numbers: roots and quotients that are not normal, that are too
// large, and a few thousand roundings of each operation.
TEST_F(FormsCuda, RoundsEachOperationAsIeee754Says) {
  AdamWForms planes({}, 8192);
  for (size_t i = 0; i < planes.p.size(); ++i) {
    const int size = static_cast<int>(i % 251) - 125;
    planes.p[i] = std::ldexp(planes.p[i], size / 3);
    planes.g[i] = std::ldexp(planes.g[i], size);
    planes.m[i] = std::ldexp(planes.m[i], size - 20);
    planes.v[i] = std::ldexp(planes.v[i], static_cast<int>(i % 149) - 148);
  }
  const AdamWForms expected = OnHost(planes, kControl);
  EXPECT_TRUE(Updated(planes, kControl, 0).SameAs(expected));
  EXPECT_TRUE(Updated(planes, kControl, 3).SameAs(expected));
}

TEST_F(FormsCuda, NotANumberStaysThat) {
  const float infinity = std::numeric_limits<float>::infinity();
  AdamWForms planes({}, 13);
  planes.g[0] = std::nanf("");
  planes.g[5] = infinity;
  planes.p[7] = -infinity;
  planes.p[12] = std::nanf("");
  const AdamWForms expected = OnHost(planes, kControl);
  const AdamWForms actual = Updated(planes, kControl, 0);
  for (size_t i = 0; i < planes.p.size(); ++i) {
    if (std::isnan(expected.p[i])) {
      EXPECT_TRUE(std::isnan(actual.p[i])) << i;
      EXPECT_TRUE(std::isnan(float{BFloat16::FromBits(actual.w[i])})) << i;
    } else {
      EXPECT_EQ(actual.p[i], expected.p[i]) << i;
      EXPECT_EQ(actual.w[i], expected.w[i]) << i;
    }
  }
  EXPECT_TRUE(std::isnan(actual.p[0]) && std::isnan(actual.p[12]));
  EXPECT_EQ(actual.p[7], -infinity);
}

// With a learning rate of 0 the master stays, so what is rounded can be chosen:
// each bf16, what is just above and below it, and halfway to the next.
TEST_F(FormsCuda, RoundsWeightsAsTheCpu) {
  AdamWForms planes({}, 4 * 256);
  for (size_t i = 0; i < planes.p.size(); ++i) {
    const auto bits = static_cast<uint32_t>(i / 4 * 257) << 16;
    const uint32_t around[] = {0x7FFF, 0x8000, 0x8001, 0xFFFF};
    const float value = std::bit_cast<float>(bits | around[i % 4]);
    planes.p[i] = std::isnan(value) ? 1.0F : value;
    planes.w[i] = BFloat16(-1.0F).bits;
  }
  const UpdateControl still = {.lr = 0, .clip_factor = 1};
  EXPECT_TRUE(Updated(planes, still, 0).SameAs(OnHost(planes, still)));
}

TEST_F(FormsCuda, OnlyF32) {
  EXPECT_EQ(FindOptimKernels(DeviceKind::kCuda, DType::kF64), nullptr);
  EXPECT_EQ(FindOptimKernels(DeviceKind::kCuda, DType::kBF16), nullptr);
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
