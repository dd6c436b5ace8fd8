#include "data/corpus/check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "data/commands/commands.h"
#include "data/corpus/corpus_writer.h"
#include "data/corpus/format.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "framework/hdf5/hdf5.h"
#include "tests/testing/temp_dir.h"

namespace delink::check_test {
namespace {

namespace format = corpus_format;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int32_t kEnd = 9;

class Check : public ::testing::Test {
 protected:
  // Documents 1, 1 1, 1 1 1, ... of `count`, then some again.
  void Write(const std::string& side, int32_t count, int32_t again,
             int32_t vocab = 10, int64_t shard = 7) {
    const std::string dir = dir_ / side;
    ASSERT_TRUE(MakeDirectories(dir).ok());
    const std::unique_ptr<Tokenizer> ids = MakeIdsTokenizer(vocab, kEnd);
    CorpusWriter writer(dir, *ids, shard);
    for (int32_t i = 1; i <= count + again; ++i) {
      const size_t length = static_cast<size_t>(i <= count ? i : i - count);
      ASSERT_TRUE(
          writer.Append(std::vector<int32_t>(length, vocab - 8), 0).ok());
      ASSERT_TRUE(writer.EndDocument().ok());
    }
    ASSERT_TRUE(writer.Finish().ok());
  }
  absl::StatusOr<CorpusCheck> Run(const std::string& side) {
    return CheckCorpus(Corpus::Open(dir_ / side).value());
  }
  // Changes one number of a file, and makes its digest fit.
  template <typename T>
  void Edit(const std::string& file, const char* dataset, int64_t at, T value) {
    {
      hdf5::File edited =
          hdf5::File::OpenReadWrite(dir_ / ("train/" + file)).value();
      hdf5::Dataset numbers = edited.OpenDataset(dataset).value();
      ASSERT_TRUE(numbers.Write(at, 1, &value).ok());
    }
    const std::vector<FileSum> sums = ReadSums(dir_ / "train").value();
    std::vector<std::string> names;
    for (const FileSum& sum : sums) names.push_back(sum.name);
    ASSERT_TRUE(WriteSums(dir_ / "train", names).ok());
  }
  void ExpectLoss(const std::string& what) {
    const absl::Status status = Run("train").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("train"), HasSubstr(what)));
  }
  testing::TempDir dir_;
};

TEST_F(Check, LengthsIdsAndRepeats) {
  Write("train", 10, 2);
  const auto check = Run("train");
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_EQ(check->lengths.size(), 12U);
  EXPECT_EQ(check->Quantile(0), 2);
  EXPECT_EQ(check->Quantile(0.5), 5);  // 2 2 3 3 4 5 6 7 8 9 10 11
  EXPECT_EQ(check->Quantile(0.99), 11);
  EXPECT_EQ(check->Quantile(1), 11);
  EXPECT_EQ(check->ids_used, 2);
  EXPECT_EQ(check->largest_id, kEnd);
  EXPECT_EQ(check->repeated_documents, 2);
  EXPECT_EQ(check->repeated_tokens, 2 + 3);
  EXPECT_EQ(check->document_keys.size(), 10U);
}

TEST_F(Check, WideTokensAndASingleDocument) {
  Write("train", 1, 0, 70'000);
  const auto check = Run("train");
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_EQ(check->largest_id, 69'992);
}

TEST_F(Check, TheCommandShowsWhatTheSidesShare) {
  Write("train", 10, 2);
  Write("validation", 4, 0);
  std::ostringstream out, live, json;
  ASSERT_TRUE(DataCheck(dir_.path(), false, out, live, false).ok());
  EXPECT_THAT(out.str(),
              AllOf(HasSubstr("  also in train                        0"
                              "                   4\n"),
                    HasSubstr("  50 %                                 5"
                              "                   3\n"),
                    HasSubstr("document ends.")));
  EXPECT_THAT(live.str(), HasSubstr("train ["));
  ASSERT_TRUE(DataCheck(dir_.path(), true, json, live, false).ok());
  const auto read = nlohmann::json::parse(json.str());
  EXPECT_EQ(read["validation"]["documents_in_train"], 4);
  EXPECT_EQ(read["train"]["tokens_per_document"]["0.5"], 5);
  EXPECT_EQ(read["train"]["repeated_documents"], 2);
}

TEST_F(Check, ADigestThatIsNotTheTokensIsFound) {
  Write("train", 10, 0);
  Edit<uint16_t>("shard-00000.h5", format::kTokens, 0, 3);
  ExpectLoss("digest");
}

TEST_F(Check, AnEndWithinADocumentIsFound) {
  Write("train", 10, 0);
  Edit<uint16_t>("shard-00000.h5", format::kTokens, 3, kEnd);
  ExpectLoss("document 1 ends at token 3, but the next begins at 5");
}

TEST_F(Check, ADocumentWithoutAnEndIsFound) {
  Write("train", 10, 0);
  Edit<uint16_t>("shard-00000.h5", format::kTokens, 4, 1);
  ExpectLoss(
      "document 2 begins at token 5, but the previous one has not ended");
}

TEST_F(Check, AStartThatIsElsewhereIsFound) {
  Write("train", 10, 0);
  Edit<int64_t>("shard-00000.h5", format::kDocuments, 0, 1);
  ExpectLoss("its first document begins at token 1");
}

TEST_F(Check, ACommandOnDamageFails) {
  Write("train", 10, 0);
  std::ostringstream out, live;
  ASSERT_TRUE(WriteFile(dir_ / "train/tokenizer.model", "else").ok());
  EXPECT_EQ(DataCheck(dir_.path(), false, out, live, false).code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace delink::check_test
