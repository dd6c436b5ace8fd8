// GoogleTest under mpirun: every rank runs every test, rank 0 prints, and a
// failure on any rank is printed by it and fails the program everywhere. A
// fatal failure leaves the other ranks waiting, so it ends them all.
#include "tests/testing/mpi_main.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "framework/base/check.h"

namespace delink::testing {
namespace {

World* test_world = nullptr;

class EveryRank : public ::testing::EmptyTestEventListener {
 public:
  explicit EveryRank(World& world) : world_(world) {}

 private:
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    if (world_.rank() != 0) {
      std::cerr << "rank " << world_.rank() << ": "
                << (result.file_name() != nullptr ? result.file_name() : "?")
                << ":" << result.line_number() << ": " << result.message()
                << std::endl;
    }
    if (result.fatally_failed() && world_.size() > 1) {
      world_.Abort(1, "a fatal failure of a test");
    }
  }

  World& world_;
};

int RunTests(int argc, char** argv) {
  absl::StatusOr<World> world = StartWorld(&argc, &argv);
  if (!world.ok()) {
    std::cerr << world.status() << std::endl;
    return 1;
  }
  ::testing::InitGoogleTest(&argc, argv);
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (world->rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
  }
  listeners.Append(new EveryRank(*world));
  test_world = &*world;
  const int64_t failed = RUN_ALL_TESTS();
  const auto anywhere = AllReduceScalar(world->comm(), failed, ReduceOp::kMax);
  test_world = nullptr;
  return anywhere.ok() && *anywhere == 0 ? 0 : 1;
}

}  // namespace

World& TestWorld() {
  DELINK_CHECK(test_world != nullptr);
  return *test_world;
}

}  // namespace delink::testing

int main(int argc, char** argv) {
  return delink::testing::RunTests(argc, argv);
}
