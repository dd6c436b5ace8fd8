// Checkpoints that are verified while they are read.
#include "framework/checkpoint/streamed_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/thread_communicator.h"
#include "framework/module/store_values.h"
#include "tests/framework/module/toy_model.h"
#include "tests/testing/temp_dir.h"

namespace delink::streamed_values_test {
namespace {

using ::testing::HasSubstr;

constexpr int kBlocks = 3;
constexpr int64_t kWidth = 19;

class StreamedValuesTest : public ::testing::Test {
 protected:
  StreamedValuesTest() {
    testing::DeclareToy(registry_, kBlocks, kWidth);
    layout_ =
        std::make_unique<Layout>(Layout::Create(registry_, kBlocks, {}, {}));
    for (const LogicalTensor& tensor : layout_->tensors()) {
      if (tensor.link.empty()) tensors_.push_back(&tensor);
    }
  }

  // Of random weights; the folder.
  std::string Saved(int ranks, const SharingMap& map) {
    const std::string folder = dir_ / absl::StrCat("run", ++saved_);
    const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
      const auto store =
          testing::MakeStore(*device_, registry_, kBlocks, map, /*zero=*/1,
                             {.rank = comm.rank(), .ranks = ranks});
      store->InitWeights(7);
      return WriteCheckpoint(comm, folder, {.step = 1}, *store, {}, 0).status();
    });
    EXPECT_TRUE(status.ok()) << status;
    return folder;
  }

  // A tensor as HDF5 reads it.
  std::vector<float> Expected(const std::string& path,
                              const LogicalTensor& tensor) {
    auto values = CheckpointValues::Open(path, *layout_, {}, DType::kF32);
    EXPECT_TRUE(values.ok()) << values.status();
    std::vector<float> all(static_cast<size_t>(tensor.shape.elements()));
    EXPECT_TRUE(
        values->Read({}, tensor, values->Has({}, tensor).front(), all.data())
            .ok());
    return all;
  }

  // Some rows at a time, by some threads.
  std::map<std::string, std::vector<float>> ReadAll(StreamedValues& values,
                                                    int64_t rows, int threads) {
    struct Job {
      const LogicalTensor* tensor;
      Rect rect;
      float* to;
    };
    std::map<std::string, std::vector<float>> read;
    std::vector<Job> jobs;
    for (const LogicalTensor* const tensor : tensors_) {
      std::vector<float>& all = read[tensor->name];
      all.resize(static_cast<size_t>(tensor->shape.elements()));
      const Rect whole = WholeOf(tensor->shape);
      for (int64_t row = 0; row < whole.rows; row += rows) {
        Rect rect = whole;
        rect.row = row;
        rect.rows = std::min(rows, whole.rows - row);
        jobs.push_back({tensor, rect, all.data() + row * whole.columns});
      }
    }
    std::atomic<size_t> next = 0;
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&] {
        for (size_t i = next++; i < jobs.size(); i = next++) {
          const Extent all = values.Has({}, *jobs[i].tensor).front();
          const absl::Status status = values.Read(
              {}, *jobs[i].tensor, Part(all, jobs[i].rect), jobs[i].to);
          EXPECT_TRUE(status.ok()) << status;
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    return read;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
  ParamRegistry registry_;
  std::unique_ptr<Layout> layout_;
  std::vector<const LogicalTensor*> tensors_;  // each layer's own
  testing::TempDir dir_;
  int saved_ = 0;
};

TEST_F(StreamedValuesTest, AreThoseOfTheCheckpoint) {
  for (const int ranks : {1, 3}) {
    for (const bool shared : {false, true}) {
      const std::string folder =
          Saved(ranks, shared ? testing::ShareAll(kBlocks, {"attention", "mlp"})
                              : SharingMap{});
      const auto path = FindUnreadCheckpoint(folder);
      ASSERT_TRUE(path.ok()) << path.status();
      EXPECT_EQ(*path, folder + "/step-00000001");
      for (const int threads : {1, 3}) {
        auto values = StreamedValues::Open(*path, *layout_, tensors_, false);
        ASSERT_TRUE(values.ok()) << values.status();
        const auto read = ReadAll(**values, 5, threads);
        for (const LogicalTensor* const tensor : tensors_) {
          EXPECT_EQ(read.at(tensor->name), Expected(*path, *tensor))
              << tensor->name;
        }
        const absl::Status finished = (*values)->Finish(threads);
        EXPECT_TRUE(finished.ok()) << finished;
      }
    }
  }
}

// Columns alone, as of what is cut between ranks.
TEST_F(StreamedValuesTest, ColumnsAreReadRowByRow) {
  const std::string path = Saved(2, {}) + "/step-00000001";
  const LogicalTensor& tensor = *tensors_.front();
  const LogicalTensor* const one = &tensor;
  auto values = StreamedValues::Open(path, *layout_, {&one, 1}, true);
  ASSERT_TRUE(values.ok()) << values.status();
  const Rect rect{.row = 3, .rows = 40, .column = 2, .columns = 11};
  std::vector<float> read(static_cast<size_t>(rect.elements()));
  ASSERT_TRUE((*values)
                  ->Read({}, tensor,
                         Part((*values)->Has({}, tensor).front(), rect),
                         read.data())
                  .ok());
  const std::vector<float> all = Expected(path, tensor);
  for (int64_t r = 0; r < rect.rows; ++r) {
    for (int64_t c = 0; c < rect.columns; ++c) {
      ASSERT_EQ(
          read[static_cast<size_t>(r * rect.columns + c)],
          all[static_cast<size_t>((rect.row + r) * kWidth + rect.column + c)]);
    }
  }
  EXPECT_TRUE((*values)->Finish(1).ok());
}

// Wherever a byte is another, one of the two says so.
TEST_F(StreamedValuesTest, DamageIsFoundBeforeOrAfter) {
  const std::string folder = Saved(2, {});
  const std::string path = folder + "/step-00000001";
  const std::string file = path + "/rank-00001.h5";
  const std::string bytes = *ReadFile(file);
  int before = 0, after = 0;
  for (size_t at = 3; at < bytes.size(); at += bytes.size() / 40) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    ASSERT_TRUE(WriteFile(file, damaged).ok());
    absl::Status status = FindUnreadCheckpoint(folder).status();
    if (!status.ok()) {
      ++before;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("rank-00001.h5: damaged outside of its values"));
      continue;
    }
    ++after;
    // The rest of it, too, where nobody reads all.
    auto values = StreamedValues::Open(
        path, *layout_, std::span(tensors_).first(at % tensors_.size()), false);
    ASSERT_TRUE(values.ok()) << values.status();
    auto all = std::move(tensors_);
    tensors_.assign(all.begin(),
                    all.begin() + static_cast<int>(at % all.size()));
    ReadAll(**values, 7, 2);
    tensors_ = std::move(all);
    status = (*values)->Finish(2);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << at;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank-00001.h5"));
  }
  EXPECT_GT(before, 0);
  EXPECT_GT(after, 20);
  ASSERT_TRUE(WriteFile(file, bytes).ok());
  EXPECT_TRUE(FindUnreadCheckpoint(folder).ok());
}

// What has another size, or is another small file, is found at once.
TEST_F(StreamedValuesTest, EverythingElseIsVerifiedFirst) {
  const std::string folder = Saved(1, {});
  const std::string index = folder + "/step-00000001/index.h5";
  const std::string bytes = *ReadFile(index);
  std::string damaged = bytes;
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  ASSERT_TRUE(WriteFile(index, damaged).ok());
  EXPECT_EQ(FindUnreadCheckpoint(folder).status().code(),
            absl::StatusCode::kDataLoss);
  ASSERT_TRUE(WriteFile(index, bytes + "x").ok());
  EXPECT_EQ(FindUnreadCheckpoint(folder).status().code(),
            absl::StatusCode::kDataLoss);
  EXPECT_EQ(FindUnreadCheckpoint(dir_ / "none").status().code(),
            absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace delink::streamed_values_test
