#include "framework/comm/chain.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink::chain_test {
namespace {

using PendingPtr = std::unique_ptr<Pending>;

// Finished at the given look.
class Looks final : public Pending {
 public:
  explicit Looks(int looks, absl::Status end = absl::OkStatus())
      : left_(looks), end_(std::move(end)) {}

 private:
  absl::StatusOr<bool> Poll() override {
    if (--left_ > 0) return false;
    if (!end_.ok()) return end_;
    return true;
  }

  int left_;
  const absl::Status end_;
};

PendingPtr After(int looks) { return std::make_unique<Looks>(looks); }

class ChainTest : public ::testing::Test {
 protected:
  // A stage that notes that it ran; null where there is nothing to look for.
  ChainStep Note(char name, int looks) {
    return [this, name, looks] {
      ran_ += name;
      return looks > 0 ? After(looks) : nullptr;
    };
  }
  std::string ran_;
};

TEST_F(ChainTest, WhatNobodyWaitsForIsDoneOnReturn) {
  EXPECT_EQ(Chain(nullptr, {}), nullptr);
  EXPECT_EQ(Chain(nullptr, {Note('a', 0), Note('b', 0)}), nullptr);
  EXPECT_EQ(ran_, "ab");
}

TEST_F(ChainTest, AStageRunsOnceWhenTheOneBeforeItIsFinished) {
  const PendingPtr chain =
      Chain(After(2), {Note('a', 0), Note('b', 3), Note('c', 0)});
  EXPECT_EQ(ran_, "");
  EXPECT_FALSE(chain->Test().value());
  EXPECT_EQ(ran_, "");
  EXPECT_FALSE(chain->Test().value());  // b's first look
  EXPECT_EQ(ran_, "ab");
  EXPECT_FALSE(chain->Test().value());
  EXPECT_TRUE(chain->Test().value());
  EXPECT_TRUE(chain->Test().value());
  EXPECT_EQ(ran_, "abc");
}

TEST_F(ChainTest, BeginsWithTheFirstStageThatIsToBeWaitedFor) {
  const PendingPtr chain = Chain(nullptr, {Note('a', 0), Note('b', 2)});
  EXPECT_EQ(ran_, "ab");
  EXPECT_FALSE(chain->Test().value());
  EXPECT_EQ(chain->Wait(), absl::OkStatus());
}

TEST_F(ChainTest, TheFirstErrorEndsIt) {
  const absl::Status bad = absl::DataLossError("bad");
  const PendingPtr first =
      Chain(std::make_unique<Looks>(1, bad), {Note('a', 0)});
  EXPECT_EQ(first->Wait(), bad);
  const PendingPtr middle =
      Chain(After(1),
            {[&] { return std::make_unique<Looks>(2, bad); }, Note('b', 0)});
  EXPECT_FALSE(middle->Test().value());
  EXPECT_EQ(middle->Wait(), bad);
  EXPECT_EQ(middle->Test().status(), bad);
  EXPECT_EQ(ran_, "");
}

TEST_F(ChainTest, AllAreFinishedBeforeAnErrorIsTold) {
  const absl::Status bad = absl::DataLossError("bad");
  std::vector<PendingPtr> list;
  list.push_back(After(1));
  list.push_back(nullptr);
  list.push_back(std::make_unique<Looks>(2, bad));
  list.push_back(After(4));
  const PendingPtr all = All(std::move(list));
  for (int look = 1; look < 4; ++look) {
    EXPECT_EQ(all->Test().value_or(true), false) << look;
  }
  EXPECT_EQ(all->Test().status(), bad);
  EXPECT_EQ(All({}), nullptr);
}

using ChainDeathTest = ChainTest;
TEST_F(ChainDeathTest, IsNotDroppedWhileSomethingIsUnderWay) {
  EXPECT_DEATH(Chain(After(1), {Note('a', 5)}), "was dropped");
}

}  // namespace
}  // namespace delink::chain_test
