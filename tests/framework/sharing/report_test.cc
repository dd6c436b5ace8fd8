#include "framework/sharing/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "framework/sharing/resolve.h"
#include "tests/framework/module/toy_model.h"

namespace delink::report_test {
namespace {

using ::testing::ElementsAre;

class SharingReportTest : public ::testing::Test {
 protected:
  SharingReportTest() { testing::DeclareToy(registry_, kBlocks, 64); }
  static constexpr int kBlocks = 8;

  std::unique_ptr<ParamStore> Store(const std::string& share, int zero = 0,
                                    const testing::StoreOptions& options = {}) {
    return testing::MakeStore(
        *device_, registry_, kBlocks,
        ResolveSharing(*ParseShareSpec(share), registry_, kBlocks).value(),
        zero, options);
  }

  std::unique_ptr<Device> device_ = NewMetaDevice();
  ParamRegistry registry_;
};

TEST_F(SharingReportTest, AddsUpToWhatTheDeviceGave) {
  const auto store = Store("all");
  const SharingReport report = ReportSharing(*store, 1000);
  EXPECT_EQ(report.total_bytes(), device_->bytes_in_use() + 1000);
  EXPECT_EQ(report.weight_bytes, report.gradient_bytes);
  EXPECT_EQ(report.state_bytes, 2 * report.weight_bytes);
}

TEST_F(SharingReportTest, SharingDividesAndSoDoesZero) {
  const SharingReport pseudo = ReportSharing(*Store("all"), 0);
  const SharingReport real = ReportSharing(*Store("none"), 0);
  EXPECT_EQ(pseudo.virtual_parameters, real.virtual_parameters);
  EXPECT_EQ(real.unique_parameters, real.virtual_parameters);
  EXPECT_LT(pseudo.unique_parameters, real.unique_parameters / 3);
  EXPECT_LT(pseudo.weight_bytes, real.weight_bytes / 3);
  const SharingReport sharded =
      ReportSharing(*Store("none", 1, {.rank = 1, .ranks = 4}), 0);
  EXPECT_LT(sharded.state_bytes, real.state_bytes / 3);
}

TEST_F(SharingReportTest, ReadsWell) {
  const SharingReport report{.unique_parameters = 7'100'000,
                             .virtual_parameters = 85'100'000,
                             .weight_bytes = 28'311'552,
                             .gradient_bytes = 28'311'552,
                             .state_bytes = 56'623'104,
                             .activation_bytes = 900};
  EXPECT_THAT(
      Describe(report),
      ElementsAre("parameters: 85.1 M virtual, 7.1 M unique (8.3 %)",
                  "memory: 27.0 MiB weights + 27.0 MiB gradients + 54.0 MiB "
                  "optimizer state + 900 B activations = 108.0 MiB"));
}

TEST_F(SharingReportTest, SaysWhoShares) {
  EXPECT_THAT(DescribeSharing(*Store("attention=all,mlp=groups:4")),
              ElementsAre("norm: 8 blocks use 8 slabs",
                          "attention: 8 blocks use 1 slab",
                          "mlp: 8 blocks use 4 slabs"));
}

TEST_F(SharingReportTest, CountsBlocksThatAreVisited) {
  const SharingMap map = ResolveSharing(*ParseShareSpec("mlp=groups:2"),
                                        registry_, kBlocks, {0, 1, 2, 7})
                             .value();
  EXPECT_THAT(
      DescribeSharing(*testing::MakeStore(*device_, registry_, kBlocks, map)),
      ElementsAre("norm: 4 blocks use 4 slabs",
                  "attention: 4 blocks use 4 slabs",
                  "mlp: 4 blocks use 2 slabs"));
}

}  // namespace
}  // namespace delink::report_test
