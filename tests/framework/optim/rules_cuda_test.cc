// SGD, Lion, Muon and Adafactor on CUDA have the bits that they have on the
// CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/rng.h"
#include "framework/optim/kernels.h"
#include "framework/tensor/bfloat16.h"
#include "tests/framework/optim/optim_on_cuda.h"

namespace delink::testing::rules_cuda_test {
namespace {

std::vector<float> Random(int64_t n, uint64_t seed) {
  std::vector<float> values;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(static_cast<float>(
        Normal(KeyFromSeed(seed), static_cast<uint64_t>(i))));
  }
  return values;
}

std::vector<float> RandomPositive(int64_t n, uint64_t seed) {
  std::vector<float> values = Random(n, seed);
  for (float& value : values) value = std::abs(value);
  return values;
}

// n floats whose halves are numbers as bf16.
std::vector<float> PairsOfBf16(int64_t n, uint64_t seed) {
  const std::vector<float> values = Random(2 * n, seed);
  std::vector<float> pairs;
  for (size_t i = 0; i < values.size(); i += 2) {
    const uint32_t low = BFloat16(values[i]).bits;
    const uint32_t high = BFloat16(values[i + 1]).bits;
    pairs.push_back(std::bit_cast<float>(high << 16 | low));
  }
  return pairs;
}

constexpr UpdateControl kControl = {
    .lr = 0.01, .clip_value = 0.8, .clip_factor = 0.7};
constexpr int64_t kSizes[] = {1, 3, 4, 5, 17, 1009, 1024, 1025, 9001};

// Arrays that a kernel works on, on one device; `run` gets their addresses.
class RulesCuda : public OptimOnCuda {
 protected:
  bool first_is_scratch_ = false;  // written where a step is skipped, too

  using Arrays = std::vector<std::vector<float>>;

  // What run(kernels, stream, addresses, w, control) makes of the arrays and of
  // bf16 weights, on both devices.
  template <typename Run>
  void ExpectSame(const Arrays& arrays, const UpdateControl& control,
                  int64_t offset, const std::string& what, Run run) {
    Arrays on_host = arrays;
    std::vector<BFloat16> w_host(arrays[0].size(), BFloat16(-1.0F));
    std::vector<float*> addresses;
    for (std::vector<float>& array : on_host) addresses.push_back(array.data());
    run(cpu_, *host_stream_, addresses, w_host.data(), &control);

    std::vector<std::unique_ptr<DeviceArray<float>>> on_device;
    std::vector<float*> device_addresses;
    for (const std::vector<float>& array : arrays) {
      on_device.push_back(
          std::make_unique<DeviceArray<float>>(*device_, array, offset));
      device_addresses.push_back(on_device.back()->data());
    }
    DeviceArray<BFloat16> w(
        *device_, std::vector<BFloat16>(arrays[0].size(), BFloat16(-1.0F)),
        offset);
    DeviceArray<UpdateControl> record(*device_, {control});
    run(*kernels_, *stream_, device_addresses, w.data(), record.data());
    for (size_t i = 0; i < arrays.size(); ++i) {
      EXPECT_TRUE(SameBits(on_device[i]->Values(*stream_), on_host[i]))
          << what << ": array " << i;
    }
    EXPECT_TRUE(SameBits(w.Values(*stream_), w_host)) << what << ": weights";
    if (control.skip != 0) {
      for (size_t i = first_is_scratch_ ? 1 : 0; i < arrays.size(); ++i) {
        EXPECT_EQ(on_host[i], arrays[i]) << what << ", skipped: array " << i;
      }
    } else {
      EXPECT_NE(on_host, arrays) << what << " changes nothing";
    }
  }

  // The same of n elements, aligned and not, and where nothing may change. The
  // second array is a gradient, of bf16 if it is `narrow`.
  template <typename Run>
  void ExpectSameElements(const std::string& name, bool narrow, Run run) {
    for (const int64_t n : kSizes) {
      const Arrays arrays = {Random(n, 1),
                             narrow ? PairsOfBf16(n, 2) : Random(n, 2),
                             Random(n, 3)};
      const auto of_n = [&](auto&&... args) { run(n, args...); };
      for (const int64_t offset : {0, 1}) {
        ExpectSame(arrays, kControl, offset, name + " of " + std::to_string(n),
                   of_n);
      }
      UpdateControl skipped = kControl;
      skipped.skip = 1;
      ExpectSame(arrays, skipped, 0, name, of_n);
    }
  }
};

UpdatedParams ParamsOf(const std::vector<float*>& at, BFloat16* w, int64_t n,
                       const UpdateControl* control, bool narrow = false) {
  return {.p = at[0],
          .w = w,
          .g = at[1],
          .bf16_g = narrow,
          .n = n,
          .lr_scale = 0.3,
          .decay = 0.1,
          .control = control};
}

TEST_F(RulesCuda, Sgd) {
  for (int way = 0; way < 8; ++way) {
    const bool nesterov = (way & 1) != 0, momentum = (way & 2) != 0;
    const bool narrow = (way & 4) != 0;
    ExpectSameElements(
        "sgd", narrow,
        [&](int64_t n, const OptimKernels& kernels, Stream& stream, auto& at,
            BFloat16* w, const UpdateControl* control) {
          kernels.sgd(stream, {.params = ParamsOf(at, w, n, control, narrow),
                               .m = momentum ? at[2] : nullptr,
                               .momentum = 0.9,
                               .nesterov = nesterov});
        });
  }
}

TEST_F(RulesCuda, Lion) {
  for (const bool narrow : {false, true}) {
    ExpectSameElements(
        "lion", narrow,
        [&](int64_t n, const OptimKernels& kernels, Stream& stream, auto& at,
            BFloat16* w, const UpdateControl* control) {
          kernels.lion(stream, {.params = ParamsOf(at, w, n, control, narrow),
                                .m = at[2],
                                .beta1 = 0.9,
                                .beta2 = 0.99});
        });
  }
}

TEST_F(RulesCuda, MuonMomentum) {
  for (const bool nesterov : {false, true}) {
    for (const bool narrow : {false, true}) {
      first_is_scratch_ = narrow;
      ExpectSameElements(
          "muon_momentum", narrow,
          [&](int64_t n, const OptimKernels& kernels, Stream& stream, auto& at,
              BFloat16*, const UpdateControl* control) {
            kernels.muon_momentum(stream, {.g = at[1],
                                           .bf16_g = narrow,
                                           .m = at[2],
                                           .u = narrow ? at[0] : at[1],
                                           .n = n,
                                           .momentum = 0.95,
                                           .nesterov = nesterov,
                                           .control = control});
          });
    }
  }
}

TEST_F(RulesCuda, MuonStep) {
  ExpectSameElements(
      "muon_step", false,
      [](int64_t n, const OptimKernels& kernels, Stream& stream, auto& at,
         BFloat16* w, const UpdateControl* control) {
        kernels.muon_step(
            stream,
            {.params = ParamsOf(at, w, n, control), .x = at[2], .factor = 1.5});
      });
}

// Doubles that a call works with, on both devices.
class Doubles {
 public:
  Doubles(Device& device, const std::vector<double>& values)
      : host_(values), device_(device, values) {}
  double* of(bool host) { return host ? host_.data() : device_.data(); }
  void ExpectSame(Stream& stream, const std::string& what) {
    EXPECT_TRUE(SameBits(device_.Values(stream), host_)) << what;
  }

 private:
  std::vector<double> host_;
  DeviceArray<double> device_;
};

// What is made orthogonal is f32, or bf16 in the memory of w.
TEST_F(RulesCuda, MuonNormalizeAndScaleAdd) {
  for (const int64_t n : kSizes) {
    for (const bool narrow : {false, true}) {
      for (const int64_t offset : {0, 1}) {
        Doubles sums(*device_, {1.5, 2.25, 4.0}), scale(*device_, {0.0});
        ExpectSame({Random(n, 1), Random(n, 2), Random(n, 3)}, kControl, offset,
                   "n " + std::to_string(n),
                   [&](const OptimKernels& kernels, Stream& stream, auto& at,
                       BFloat16* w, const UpdateControl* control) {
                     const bool host = &kernels == &cpu_;
                     kernels.muon_normalize(
                         stream, {.u = at[0],
                                  .x = narrow ? static_cast<void*>(w) : at[1],
                                  .narrow = narrow,
                                  .n = n,
                                  .sums = sums.of(host),
                                  .count = 3,
                                  .scale = scale.of(host)});
                     // A step by it shows in f32 what was rounded.
                     kernels.muon_step(
                         stream,
                         {.params = {.p = at[2], .n = n, .control = control},
                          .x = narrow ? static_cast<void*>(w) : at[1],
                          .narrow = narrow});
                   });
        scale.ExpectSame(*stream_, "scale");
        const auto numbers = [&](uint64_t seed) {
          return narrow ? PairsOfBf16(n, seed) : Random(n, seed);
        };
        ExpectSame({Random(n, 1), numbers(2), numbers(3)}, kControl, offset,
                   "scale_add of " + std::to_string(n),
                   [&](const OptimKernels& kernels, Stream& stream, auto& at,
                       BFloat16*, const UpdateControl*) {
                     kernels.scale_add(stream, {.x = at[1],
                                                .y = at[2],
                                                .narrow = narrow,
                                                .n = n,
                                                .a = 3.4445,
                                                .b = -0.7});
                   });
      }
    }
  }
}

TEST_F(RulesCuda, Adafactor) {
  struct Case {
    int64_t rows, columns;
  };
  struct Form {
    bool relative, narrow;
    int64_t rows = 0, columns = 0;  // of a piece: those that are elsewhere
  };
  for (const Case& c :
       {Case{1, 1}, Case{3, 5}, Case{37, 16}, Case{300, 20}, Case{17, 1009},
        Case{1, 0}, Case{17, 0}, Case{9001, 0}}) {
    const int64_t n = c.rows * std::max<int64_t>(c.columns, 1);
    for (const Form& form : {Form{true, false},
                             {false, false},
                             {true, true},
                             {true, false, 4, 0},
                             {false, true, 4, 0},
                             {true, false, 0, 4}}) {
      const bool piece = form.rows + form.columns > 0;
      const bool relative = form.relative, narrow = form.narrow;
      const std::string what =
          std::to_string(c.rows) + " x " + std::to_string(c.columns);
      const auto some = [&](int64_t count) {
        return std::vector<double>(static_cast<size_t>(count), 0.5);
      };
      Doubles rows(*device_, some(c.rows)), columns(*device_, some(c.columns)),
          partial(*device_, some(2 * c.columns)), u(*device_, some(c.rows)),
          p(*device_, some((n + 99) / 100)), mean(*device_, some(1)),
          totals(*device_, some(2)), step(*device_, some(1));
      ExpectSame(
          {Random(n, 1), narrow ? PairsOfBf16(n, 2) : Random(n, 2),
           RandomPositive(c.rows, 3),
           RandomPositive(std::max<int64_t>(c.columns, 1), 4)},
          kControl, relative ? 0 : 1, what,
          [&](const OptimKernels& kernels, Stream& stream, auto& at,
              BFloat16* w, const UpdateControl* control) {
            const bool host = &kernels == &cpu_;
            const bool matrix = c.columns > 0;
            const AdafactorArgs args = {
                .params = ParamsOf(at, w, n, control, narrow),
                .rows = c.rows,
                .columns = c.columns,
                .all_rows = c.rows + form.rows,
                .all_columns = c.columns + form.columns,
                .row_sums = rows.of(host),
                .column_sums = columns.of(host),
                .row = matrix ? at[2] : nullptr,
                .column = matrix ? at[3] : nullptr,
                .v = matrix ? nullptr : at[2],
                .mean = mean.of(host),
                .u_sums = u.of(host),
                .p_sums = p.of(host),
                .p_count = (n + 99) / 100,
                .totals = piece ? totals.of(host) : nullptr,
                .step = step.of(host),
                .eps = 1e-15,
                .relative = relative,
                .update = 3};
            if (matrix) {
              const auto* const halves =
                  reinterpret_cast<const uint16_t*>(at[1]);
              kernels.sum_squares(stream, {.x = narrow ? nullptr : at[1],
                                           .w = narrow ? halves : nullptr,
                                           .n = n,
                                           .block = c.columns,
                                           .sums = rows.of(host),
                                           .clip = control});
              kernels.column_squares(stream, {.g = at[1],
                                              .bf16_g = narrow,
                                              .control = control,
                                              .rows = c.rows,
                                              .columns = c.columns,
                                              .partial = partial.of(host),
                                              .sums = columns.of(host),
                                              .accumulate = piece});
              kernels.adafactor_factors(stream, args);
            }
            kernels.adafactor_sums(stream, args);
            kernels.sum_squares(
                stream, {.x = at[0], .n = n, .block = 100, .sums = p.of(host)});
            if (piece) kernels.adafactor_totals(stream, args);
            kernels.adafactor_step(stream, args);
          });
      totals.ExpectSame(*stream_, what + ": totals");
      columns.ExpectSame(*stream_, what + ": columns");
      mean.ExpectSame(*stream_, what + ": mean");
      step.ExpectSame(*stream_, what + ": step");
    }
  }
}

}  // namespace
}  // namespace delink::testing::rules_cuda_test
