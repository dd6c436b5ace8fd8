#include "data/loader/documents.h"

#include <gtest/gtest.h>

#include <vector>

namespace delink::documents_test {
namespace {

constexpr int32_t kEnd = 9;

struct Row {
  std::vector<int32_t> targets, positions;
};

// Of tokens of which the last is no input.
Row Masked(const std::vector<int32_t>& tokens) {
  const size_t seq = tokens.size() - 1;
  Row row{.targets = {tokens.begin() + 1, tokens.end()},
          .positions = std::vector<int32_t>(seq, -7)};
  MaskDocuments(kEnd, static_cast<int64_t>(seq), tokens.data(),
                row.targets.data(), row.positions.data());
  return row;
}

TEST(MaskDocuments, EndsAreNotCountedAndPositionsRestart) {
  const Row row = Masked({1, 2, kEnd, 3, kEnd, 4, 5, 6});
  EXPECT_EQ(row.targets, (std::vector<int32_t>{2, kEnd, kNotCounted, kEnd,
                                               kNotCounted, 5, 6}));
  EXPECT_EQ(row.positions, (std::vector<int32_t>{0, 1, 2, 0, 1, 0, 1}));
}

// Whatever was before: the row's first token is the first that is seen.
TEST(MaskDocuments, ADocumentLongerThanTheRowIsAsLongAsTheRow) {
  const Row row = Masked({1, 2, 3, 4, 5});
  EXPECT_EQ(row.targets, (std::vector<int32_t>{2, 3, 4, 5}));
  EXPECT_EQ(row.positions, (std::vector<int32_t>{0, 1, 2, 3}));
}

TEST(MaskDocuments, AnEmptyDocumentIsItsEnd) {
  const Row row = Masked({kEnd, kEnd, 1, kEnd, kEnd});
  EXPECT_EQ(row.targets, (std::vector<int32_t>{kNotCounted, kNotCounted, kEnd,
                                               kNotCounted}));
  EXPECT_EQ(row.positions, (std::vector<int32_t>{0, 0, 0, 1}));
}

// The end is predicted, what follows it is not, wherever rows are cut.
TEST(MaskDocuments, ACutBeforeAndBehindAnEnd) {
  Row row = Masked({1, 2, kEnd});
  EXPECT_EQ(row.targets, (std::vector<int32_t>{2, kEnd}));
  row = Masked({1, kEnd, 2});
  EXPECT_EQ(row.targets, (std::vector<int32_t>{kEnd, kNotCounted}));
}

TEST(MaskDocuments, ARowOfNothing) {
  MaskDocuments(kEnd, 0, nullptr, nullptr, nullptr);
}

}  // namespace
}  // namespace delink::documents_test
