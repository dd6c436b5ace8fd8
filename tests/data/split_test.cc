#include "data/corpus/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace delink::split_test {
namespace {

struct Totals {
  int64_t training = 0;
  int64_t validation = 0;
  int cut = 0;
};

Totals Sum(const std::vector<DocumentSize>& documents,
           const std::vector<int64_t>& training) {
  Totals totals;
  for (size_t i = 0; i < documents.size(); ++i) {
    EXPECT_GE(training[i], 0);
    EXPECT_LE(training[i], documents[i].bytes);
    totals.training += training[i];
    totals.validation += documents[i].bytes - training[i];
    totals.cut += 0 < training[i] && training[i] < documents[i].bytes;
  }
  return totals;
}

TEST(Split, ShareIsMetAndBothSidesHaveText) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::vector<DocumentSize> documents(1 + random() % 50);
    int64_t total = 0;
    for (size_t i = 0; i < documents.size(); ++i) {
      documents[i].key = i % 26;
      documents[i].bytes =
          static_cast<int64_t>(random() % (1ULL << (random() % 20)));
      total += documents[i].bytes;
    }
    if (total < 2) continue;
    const double share = (1.0 + static_cast<double>(random() % 90)) / 100;
    const Totals totals = Sum(documents, TrainingBytes(documents, share, 3));
    EXPECT_EQ(totals.training + totals.validation, total);
    EXPECT_GE(totals.training, 1);
    EXPECT_GE(totals.validation, 1);
    EXPECT_LE(totals.cut, 1);
    const double wanted = share * static_cast<double>(total);
    EXPECT_LE(static_cast<double>(totals.validation), 1.25 * wanted + 1);
  }
}

TEST(Split, ManyDocumentsStayWhole) {
  std::vector<DocumentSize> documents;
  int64_t total = 0;
  for (int i = 0; i < 3000; ++i) {
    documents.push_back({static_cast<uint64_t>(i), 500 + i % 700});
    total += documents.back().bytes;
  }
  const Totals totals = Sum(documents, TrainingBytes(documents, 0.05, 0));
  EXPECT_EQ(totals.cut, 0);
  EXPECT_NEAR(static_cast<double>(totals.validation),
              0.05 * static_cast<double>(total),
              0.002 * static_cast<double>(total));
}

TEST(Split, SingleDocumentIsCut) {
  EXPECT_EQ(TrainingBytes({{7, 1000}}, 0.1, 0), std::vector<int64_t>{900});
  EXPECT_EQ(TrainingBytes({{7, 2}}, 0.001, 0), std::vector<int64_t>{1});
}

TEST(Split, DependsOnKeysAndSeedNotOnOrder) {
  std::vector<DocumentSize> documents;
  for (int i = 0; i < 100; ++i) {
    documents.push_back({static_cast<uint64_t>(i), 1000});
  }
  const auto one = TrainingBytes(documents, 0.1, 1);
  EXPECT_EQ(one, TrainingBytes(documents, 0.1, 1));
  EXPECT_NE(one, TrainingBytes(documents, 0.1, 2));
  std::reverse(documents.begin(), documents.end());
  auto reversed = TrainingBytes(documents, 0.1, 1);
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(one, reversed);
}

}  // namespace
}  // namespace delink::split_test
