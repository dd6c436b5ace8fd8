// The fast kernels, for every instruction set this machine has: f32 against the
// reference in double, bf16 against the reference on bf16; then against
// themselves: again, and on other numbers of threads, bit for bit.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "layers/kernels/cpu/targets.h"
#include "layers/kernels/cpu/threads.h"
#include "layers/kernels/find_kernels.h"
#include "tests/layers/kernels/cases.h"

namespace delink::testing::fast_test {
namespace {

struct Table {
  std::string name;
  bool supported;  // by this machine
  const Kernels* f32;
  const Kernels* bf16;
};

// What runs here, then each instruction set.
std::vector<Table> Tables() {
  std::vector<Table> tables = {{"chosen", true,
                                FindKernels(DeviceKind::kCpu, DType::kF32),
                                FindKernels(DeviceKind::kCpu, DType::kBF16)}};
  for (const cpu::InstructionSet& target : cpu::Targets()) {
    tables.push_back({target.name, target.supported, target.f32, target.bf16});
  }
  return tables;
}

class Fast : public ::testing::TestWithParam<std::tuple<int, DType, Group>> {
 protected:
  void SetUp() override {
    const auto& [index, dtype, group] = GetParam();
    const std::vector<Table> tables = Tables();
    if (static_cast<size_t>(index) >= tables.size()) {
      GTEST_SKIP() << "not built here";
    }
    const Table& table = tables[index];
    if (!table.supported) {
      GTEST_SKIP() << "this machine has no " << table.name;
    }
    bf16_ = dtype == DType::kBF16;
    kernels_ = bf16_ ? *table.bf16 : *table.f32;
    cases_ = group.cases();
    threads_ = cpu::MaxThreads();
  }
  void TearDown() override {
    if (threads_ > 0) cpu::SetThreads(threads_);
  }

  Outputs Run(const Case& c) {
    return (bf16_ ? c.bf16 : c.f32)(kernels_, *stream_);
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  std::unique_ptr<Stream> stream_ = device_->NewStream();
  bool bf16_ = false;
  Kernels kernels_ = {};
  std::vector<Case> cases_;
  int threads_ = 0;
};

TEST_P(Fast, AgreesWithTheReference) {
  for (const Case& c : cases_) {
    SCOPED_TRACE(c.name);
    ExpectAgrees(Run(c), Expected(c, bf16_, *stream_));
  }
}

TEST_P(Fast, GivesTheSameBitsAgainAndOnAnyNumberOfThreads) {
  for (const Case& c : cases_) {
    SCOPED_TRACE(c.name);
    cpu::SetThreads(1);
    const Outputs first = Run(c);
    for (const int threads : {2, 3}) {
      SCOPED_TRACE(threads);
      cpu::SetThreads(threads);
      ExpectSame(Run(c), first);
    }
  }
}

TEST(FarElements, AreReached) {
  const std::unique_ptr<Device> device = NewCpuDevice();
  for (const Table& table : Tables()) {
    if (!table.supported) continue;
    SCOPED_TRACE(table.name);
    ExpectFarElements(*table.bf16, *device, /*all_gradients=*/true);
  }
}

std::string NameOf(const std::tuple<int, DType, Group>& parameters) {
  const auto& [index, dtype, group] = parameters;
  const std::vector<Table> tables = Tables();
  return std::string(group.name) + "_" + ToString(dtype) + "_" +
         (static_cast<size_t>(index) < tables.size()
              ? tables[index].name
              : "absent" + std::to_string(index));
}

INSTANTIATE_TEST_SUITE_P(Target, Fast,
                         ::testing::Combine(::testing::Range(0, 6),
                                            ::testing::Values(DType::kF32,
                                                              DType::kBF16),
                                            ::testing::ValuesIn(kGroups)),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace delink::testing::fast_test
