#include "framework/safetensors/writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

#include "framework/base/file.h"
#include "framework/safetensors/folder.h"
#include "tests/testing/temp_dir.h"

namespace delink::safetensors::writer_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::SmallDisk;
using testing::TempDir;

// Three files, of mixed types and odd sizes.
Plan SomePlan() {
  return PlanFiles({{"a", Type::kF32, {317}},
                    {"b", Type::kBF16, {5, 131}},
                    {"none", Type::kF16, {0, 7}},
                    {"c", Type::kF16, {1201}},
                    {"d", Type::kF32, {1}},
                    {"e", Type::kBF16, {999}}},
                   2600)
      .value();
}

// Of a tensor, as it lies in the file.
std::string BytesOf(const Plan& plan, size_t tensor) {
  const Plan::Place& place = plan.places[tensor];
  std::string bytes(static_cast<size_t>(place.end - place.begin), '\0');
  std::mt19937 random(static_cast<unsigned>(tensor));
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

struct Piece {
  size_t tensor;
  int64_t first, count;
};

// All that there is to write, some values at a time.
std::vector<Piece> PiecesOf(const Plan& plan, int64_t most) {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const int64_t count =
        (plan.places[i].end - plan.places[i].begin) / plan.ElementSize(i);
    for (int64_t first = 0; first < count; first += most) {
      pieces.push_back({i, first, std::min(most, count - first)});
    }
  }
  return pieces;
}

absl::Status WritePiece(Writer& writer, const Piece& piece) {
  const std::string bytes = BytesOf(writer.plan(), piece.tensor);
  const int64_t size = writer.plan().ElementSize(piece.tensor);
  return writer.Write(piece.tensor, piece.first, piece.count,
                      bytes.data() + piece.first * size);
}

void ExpectWhole(const std::string& dir, const Plan& plan,
                 const std::vector<FileSum>& sums) {
  const auto folder = Folder::Open(dir);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_EQ(folder->tensors().size(), plan.tensors.size());
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const Folder::Tensor* const tensor = folder->Find(plan.tensors[i].name);
    ASSERT_NE(tensor, nullptr) << plan.tensors[i].name;
    EXPECT_EQ(tensor->entry->type, plan.tensors[i].type);
    EXPECT_EQ(tensor->entry->shape, plan.tensors[i].shape);
    const std::string expected = BytesOf(plan, i);
    std::string bytes(expected.size(), '\0');
    ASSERT_TRUE(
        tensor->file
            ->ReadBytes(*tensor->entry, 0, tensor->entry->count(), bytes.data())
            .ok());
    EXPECT_EQ(bytes, expected) << plan.tensors[i].name;
  }
  std::vector<std::string> names;
  for (const FileSum& sum : sums) {
    names.push_back(sum.name);
    const auto read = SumFile(dir, sum.name);
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->digest, sum.digest) << sum.name;
    EXPECT_EQ(read->bytes, sum.bytes) << sum.name;
  }
  EXPECT_EQ(names, *ListDirectory(dir));
}

TEST(Writer, PiecesComeInAnyOrderFromAnyThread) {
  for (const int threads : {1, 3}) {
    for (const int64_t most : {int64_t{1} << 20, int64_t{64}}) {
      for (const bool shuffled : {false, true}) {
        const TempDir dir;
        auto writer = Writer::Create(dir.path(), SomePlan());
        ASSERT_TRUE(writer.ok()) << writer.status();
        std::vector<Piece> pieces = PiecesOf(writer->plan(), most);
        std::mt19937 random(7);
        if (shuffled) std::shuffle(pieces.begin(), pieces.end(), random);
        std::vector<std::thread> workers;
        for (int t = 0; t < threads; ++t) {
          workers.emplace_back([&, t] {
            for (size_t i = 0; i < pieces.size(); ++i) {
              if (static_cast<int>(i) % threads != t) continue;
              const absl::Status status = WritePiece(*writer, pieces[i]);
              EXPECT_TRUE(status.ok()) << status;
            }
          });
        }
        for (std::thread& worker : workers) worker.join();
        const auto sums = writer->Finish();
        ASSERT_TRUE(sums.ok()) << sums.status();
        ASSERT_EQ(sums->size(), 4u);
        ExpectWhole(dir.path(), writer->plan(), *sums);
      }
    }
  }
}

TEST(Writer, OneFileHasNoIndex) {
  const TempDir dir;
  auto writer =
      Writer::Create(dir.path(), PlanFiles({{"a", Type::kU8, {3}}}).value());
  ASSERT_TRUE(writer.ok()) << writer.status();
  // Until it is whole it is not there.
  EXPECT_THAT(*ListDirectory(dir.path()),
              ElementsAre("model.safetensors.partial"));
  ASSERT_TRUE(writer->Write(0, 0, 3, BytesOf(writer->plan(), 0).data()).ok());
  const auto sums = writer->Finish();
  ASSERT_TRUE(sums.ok()) << sums.status();
  EXPECT_THAT(*ListDirectory(dir.path()), ElementsAre("model.safetensors"));
  ExpectWhole(dir.path(), writer->plan(), *sums);
}

// What was cut short is gone on with: whole files stay.
TEST(Writer, GoesOnWhereItWasCutShort) {
  const TempDir dir;
  {
    auto writer = Writer::Create(dir.path(), SomePlan());
    ASSERT_TRUE(writer.ok()) << writer.status();
    for (const Piece& piece : PiecesOf(writer->plan(), 100)) {
      // All of the second file, some of the others.
      if (writer->plan().places[piece.tensor].file != 1 && piece.first > 100) {
        continue;
      }
      ASSERT_TRUE(WritePiece(*writer, piece).ok());
    }
  }
  EXPECT_THAT(*ListDirectory(dir.path()),
              ElementsAre("model-00001-of-00003.safetensors.partial",
                          "model-00002-of-00003.safetensors",
                          "model-00003-of-00003.safetensors.partial"));
  auto writer = Writer::Create(dir.path(), SomePlan());
  ASSERT_TRUE(writer.ok()) << writer.status();
  int skipped = 0;
  for (const Piece& piece : PiecesOf(writer->plan(), 100)) {
    const bool done = writer->done(piece.tensor);
    EXPECT_EQ(done, writer->plan().places[piece.tensor].file == 1);
    skipped += static_cast<int>(done);
    if (done) continue;
    ASSERT_TRUE(WritePiece(*writer, piece).ok());
  }
  EXPECT_GT(skipped, 0);
  const auto sums = writer->Finish();
  ASSERT_TRUE(sums.ok()) << sums.status();
  ExpectWhole(dir.path(), writer->plan(), *sums);
}

TEST(Writer, AnotherFileOfTheNameIsNotTouched) {
  const TempDir dir;
  ASSERT_TRUE(WriteFile(dir / "model-00002-of-00003.safetensors", "mine").ok());
  const auto writer = Writer::Create(dir.path(), SomePlan());
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(writer.status().message()),
              HasSubstr("model-00002-of-00003.safetensors: there is another"));
  EXPECT_THAT(*ListDirectory(dir.path()),
              ElementsAre("model-00002-of-00003.safetensors"));
}

TEST(Writer, ADiskThatIsTooSmallSaysSoAtOnceAndIsLeftEmpty) {
  const SmallDisk disk("256k");
  if (!disk.mounted()) GTEST_SKIP() << "may not mount a tmpfs";
  const Plan plan = PlanFiles({{"a", Type::kU8, {100'000}},
                               {"b", Type::kU8, {100'000}},
                               {"c", Type::kU8, {100'000}}},
                              100'000)
                        .value();
  const auto writer = Writer::Create(disk.path(), plan);
  EXPECT_EQ(writer.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(writer.status().message()),
              HasSubstr("model-00003-of-00003.safetensors.partial"));
  EXPECT_THAT(*ListDirectory(disk.path()), IsEmpty());
}

TEST(WriterDeathTest, MistakesOfWhoWritesAreChecks) {
  const TempDir dir;
  auto writer = Writer::Create(dir.path(), SomePlan());
  ASSERT_TRUE(writer.ok());
  const std::string bytes = BytesOf(writer->plan(), 0);
  ASSERT_TRUE(writer->Write(0, 0, 10, bytes.data()).ok());
  ASSERT_TRUE(writer->Write(0, 20, 10, bytes.data()).ok());
  EXPECT_DEATH((void)writer->Write(0, 9, 1, bytes.data()),
               "twice, or too many");
  EXPECT_DEATH((void)writer->Write(0, 29, 2, bytes.data()),
               "twice, or too many");
  EXPECT_DEATH((void)writer->Write(0, 15, 6, bytes.data()),
               "twice, or too many");
  EXPECT_DEATH((void)writer->Write(0, 310, 8, bytes.data()),
               "a: 8 values from 310 on");
  EXPECT_DEATH((void)writer->Finish(), "the digest is of");
}

}  // namespace
}  // namespace delink::safetensors::writer_test
