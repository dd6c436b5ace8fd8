#include "data/loader/loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "data/corpus/build.h"
#include "framework/base/at.h"
#include "tests/data/text_samples.h"
#include "tests/testing/temp_dir.h"

namespace delink::loader_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr int64_t kSeq = 33;

class LoaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::WriteOrDie(dir_ / "a.txt", testing::SampleText(1, 30'000));
    ASSERT_TRUE(BuildCorpus({.inputs = {dir_ / "a.txt"},
                             .out = dir_ / "c",
                             .shard_tokens = 1000})
                    .ok());
    corpus_.emplace(Corpus::Open(dir_ / "c/train").value());
  }

  Loader Make(uint64_t seed, bool shuffle) {
    return Loader::Create(*corpus_,
                          {.seq = kSeq, .seed = seed, .shuffle = shuffle})
        .value();
  }

  static std::vector<int32_t> Sample(const Loader& loader, int64_t i) {
    std::vector<int32_t> both(2 * kSeq, -1);
    EXPECT_TRUE(loader.Read(i, both.data(), both.data() + kSeq).ok());
    return both;
  }

  TempDir dir_;
  std::optional<Corpus> corpus_;
};

TEST_F(LoaderTest, InOrderSamplesAreTheCorpus) {
  const Loader loader = Make(0, false);
  ASSERT_EQ(loader.samples_per_epoch(), (corpus_->tokens() - 1) / kSeq);
  std::vector<int32_t> all(static_cast<size_t>(corpus_->tokens()));
  ASSERT_TRUE(corpus_->Read(0, corpus_->tokens(), all.data()).ok());
  for (int64_t i = 0; i < 2 * loader.samples_per_epoch(); ++i) {
    const int64_t first = i % loader.samples_per_epoch() * kSeq;
    const auto sample = Sample(loader, i);
    for (int64_t k = 0; k < kSeq; ++k) {
      ASSERT_EQ(sample[k], all[first + k]);
      ASSERT_EQ(sample[kSeq + k], all[first + k + 1]);
    }
  }
}

TEST_F(LoaderTest, EveryEpochHasEachSampleOnceInAnOrderOfItsOwn) {
  const Loader loader = Make(7, true);
  const int64_t n = loader.samples_per_epoch();
  std::vector<std::vector<int64_t>> orders;
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<int64_t> firsts;
    std::vector<int64_t> order;
    for (int64_t i = 0; i < n; ++i) {
      order.push_back(loader.FirstToken(epoch * n + i));
      firsts.insert(order.back());
    }
    EXPECT_EQ(static_cast<int64_t>(firsts.size()), n);
    EXPECT_EQ(*firsts.rbegin(), (n - 1) * kSeq);
    orders.push_back(order);
  }
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(orders[1], orders[2]);
  EXPECT_NE(loader.FirstToken(0), 0);
}

TEST_F(LoaderTest, ASampleDoesNotDependOnWhatWasReadBefore) {
  const Loader straight = Make(3, true);
  std::vector<std::vector<int32_t>> samples;
  for (int64_t i = 0; i < 1500; ++i) samples.push_back(Sample(straight, i));
  // Resumed in the middle, by another object over another opening.
  const Corpus again = Corpus::Open(dir_ / "c/train").value();
  const Loader resumed =
      Loader::Create(again, {.seq = kSeq, .seed = 3, .shuffle = true}).value();
  for (int64_t i = 1499; i >= 700; i -= 3) {
    ASSERT_EQ(Sample(resumed, i), At(samples, i));
  }
  int differ = 0;
  const Loader other = Make(4, true);
  for (int64_t i = 0; i < 100; ++i) {
    differ += Sample(other, i) != At(samples, i);
  }
  EXPECT_GT(differ, 80);
}

TEST_F(LoaderTest, ShortCorpusSaysWhatToDo) {
  const absl::Status status =
      Loader::Create(*corpus_, {.seq = corpus_->tokens()}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("c/train"), HasSubstr("data.seq"),
                    HasSubstr(std::to_string(corpus_->tokens() - 1))));
  EXPECT_EQ(Loader::Create(*corpus_, {.seq = corpus_->tokens() - 1})
                ->samples_per_epoch(),
            1);
}

}  // namespace
}  // namespace delink::loader_test
