// The fast kernels, for every instruction set this machine has, against the
// reference in double; then against themselves: again, and on other numbers of
// threads, bit for bit.
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "layers/kernels/cpu/targets.h"
#include "layers/kernels/cpu/threads.h"
#include "layers/kernels/find_kernels.h"
#include "tests/layers/kernels/cases.h"

namespace delink::testing {
namespace {

struct Group {
  const char* name;
  std::vector<Case> (*cases)();
};

constexpr Group kGroups[] = {
    {"Matmul", MatmulCases},
    {"Norm", NormCases},
    {"Pointwise", PointwiseCases},
    {"Embedding", EmbeddingCases},
    {"Rotary", RotaryCases},
    {"Attention", AttentionCases},
    {"CrossEntropy", CrossEntropyCases},
};

struct Table {
  std::string name;
  const Kernels* kernels;  // null where this machine lacks the instructions
};

// What runs here, then each instruction set.
std::vector<Table> Tables() {
  std::vector<Table> tables = {
      {"chosen", FindKernels(DeviceKind::kCpu, DType::kF32)}};
  for (const cpu::Target& target : cpu::Targets()) {
    tables.push_back(
        {target.name, target.supported ? target.kernels : nullptr});
  }
  return tables;
}

class Fast : public ::testing::TestWithParam<std::tuple<int, Group>> {
 protected:
  void SetUp() override {
    const std::vector<Table> tables = Tables();
    const size_t index = std::get<0>(GetParam());
    if (index >= tables.size()) GTEST_SKIP() << "not built here";
    if (tables[index].kernels == nullptr) {
      GTEST_SKIP() << "this machine has no " << tables[index].name;
    }
    kernels_ = *tables[index].kernels;
    cases_ = std::get<1>(GetParam()).cases();
    threads_ = cpu::MaxThreads();
  }
  void TearDown() override {
    if (threads_ > 0) cpu::SetThreads(threads_);
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> stream_ = device_->NewStream();
  Kernels kernels_ = {};
  std::vector<Case> cases_;
  int threads_ = 0;
};

TEST_P(Fast, AgreesWithTheReference) {
  const Kernels& reference = *FindKernels(DeviceKind::kCpu, DType::kF64);
  for (const Case& c : cases_) {
    SCOPED_TRACE(c.name);
    const Outputs expected = c.f64(reference, *stream_);
    const Outputs actual = c.f32(kernels_, *stream_);
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(actual[i].values.size(), expected[i].values.size());
      EXPECT_LE(WorstError(std::span<const double>(actual[i].values),
                           std::span<const double>(expected[i].values)),
                actual[i].tolerance)
          << actual[i].name;
    }
  }
}

TEST_P(Fast, GivesTheSameBitsAgainAndOnAnyNumberOfThreads) {
  for (const Case& c : cases_) {
    SCOPED_TRACE(c.name);
    cpu::SetThreads(1);
    const Outputs first = c.f32(kernels_, *stream_);
    for (const int threads : {2, 3}) {
      cpu::SetThreads(threads);
      const Outputs again = c.f32(kernels_, *stream_);
      for (size_t i = 0; i < first.size(); ++i) {
        // Comparing doubles is comparing bits: nothing here is NaN or -0.
        EXPECT_EQ(again[i].values, first[i].values)
            << first[i].name << " on " << threads << " threads";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Target, Fast,
                         ::testing::Combine(::testing::Range(0, 4),
                                            ::testing::ValuesIn(kGroups)),
                         [](const auto& info) {
                           const auto targets = cpu::Targets();
                           const size_t index = std::get<0>(info.param);
                           return std::string(std::get<1>(info.param).name) +
                                  "_" +
                                  (index < targets.size()
                                       ? targets[index].name
                                       : "absent" + std::to_string(index));
                         });

}  // namespace
}  // namespace delink::testing
