// A checkpoint of format 1 that an early program wrote opens, and gives what is
// in it, whoever reads: on any number of ranks, with as much sharing as it has
// and with less. Two ranks wrote it under ZeRO-1, at the end of a stage in
// which both blocks share everything. values.txt has the digest of each tensor
// of index.h5, as h5py reads it, and the links.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/streamed_values.h"
#include "framework/comm/self_communicator.h"
#include "framework/comm/thread_communicator.h"
#include "framework/module/store_values.h"
#include "recipes/saved/saved_model.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_dir.h"

namespace delink::format1_test {
namespace {

const std::string kFolder = testing::SourcePath("tests/recipes/saved/format1");

std::string Checkpoint() { return std::string(kFolder) + "/step-00000002"; }

// By path in index.h5.
struct Expected {
  std::map<std::string, std::string> digests, links;
};
Expected ReadExpected() {
  Expected expected;
  std::ifstream file(std::string(kFolder) + "/values.txt");
  for (std::string path, word; file >> path >> word;) {
    if (word == "->") {
      file >> expected.links[path];
    } else {
      expected.digests[path] = word;
    }
  }
  EXPECT_EQ(expected.digests.size(), 27U);
  EXPECT_EQ(expected.links.size(), 14U);
  return expected;
}

// Tensors by their path, as the ranks of a store own them.
using Values = std::map<std::string, std::vector<float>>;

// Adds what this rank owns; other ranks do so at the same time.
absl::Status Collect(const ParamStore& store, Values& values) {
  StoreValues source(store);
  for (auto& [path, whole] : values) {
    const std::string top = path.substr(1, path.find('/', 1) - 1);
    std::string name = path.substr(top.size() + 2);
    Field field;
    if (top == "optimizer") {
      const size_t slash = name.rfind('/');
      field = {Field::Kind::kState, name.substr(slash + 1)};
      name.resize(slash);
    }
    for (const LogicalTensor& tensor : store.layout().tensors()) {
      if (tensor.name != name) continue;
      const int64_t columns = WholeOf(tensor.shape).columns;
      for (const Extent& extent : source.Owners(field, tensor)) {
        if (extent.rank != store.rank()) continue;
        const int64_t begin = extent.rect.row * columns + extent.rect.column;
        DELINK_RETURN_IF_ERROR(
            source.Read(field, tensor, extent, &At(whole, begin)));
      }
    }
  }
  return absl::OkStatus();
}

void ExpectDigests(const Values& values,
                   const std::map<std::string, std::string>& digests) {
  EXPECT_EQ(values.size(), digests.size());
  for (const auto& [path, digest] : digests) {
    const auto at = values.find(path);
    ASSERT_NE(at, values.end()) << path;
    const std::string_view bytes(
        reinterpret_cast<const char*>(at->second.data()),
        at->second.size() * sizeof(float));
    EXPECT_EQ(Sha256Hex(bytes), digest) << path;
  }
}

// Rooms for all values of a model, with what the optimizer keeps or without.
Values RoomsOf(const Layout& layout, const std::vector<std::string>& states) {
  Values values;
  for (const LogicalTensor& tensor : layout.tensors()) {
    if (!tensor.link.empty()) continue;
    const std::vector<float> room(static_cast<size_t>(tensor.shape.elements()),
                                  123);
    values["/model/" + tensor.name] = room;
    for (const std::string& state : states) {
      values["/optimizer/" + tensor.name + "/" + state] = room;
    }
  }
  return values;
}

class Format1Test : public ::testing::Test {
 protected:
  Format1Test() {
    saved_ = *SavedModel::Open(self_, Checkpoint(), BuiltInModels());
  }
  Layout LayoutOf(const SharingMap& sharing, int ranks) const {
    return Layout::Create(saved_->registry(), saved_->blocks(), sharing,
                          {.mesh = {.data = ranks}, .zero = 1});
  }

  SelfCommunicator self_;
  std::unique_ptr<SavedModel> saved_;
  const Expected expected_ = ReadExpected();
  const std::unique_ptr<Device> device_ = NewCpuDevice();
};

// It has no frames: it cannot be verified while it is read.
TEST_F(Format1Test, IsVerifiedFirst) {
  EXPECT_EQ(FindUnreadCheckpoint(Checkpoint()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(Format1Test, SaysWhatItIs) {
  const CheckpointHeader& header = saved_->header();
  EXPECT_EQ(header.format, 1);
  EXPECT_EQ(header.step, 2);
  EXPECT_EQ(header.model, "gpt");
  EXPECT_EQ(header.optimizer, "adamw");
  EXPECT_EQ(header.seed, 1);
  EXPECT_EQ(header.vocab, 257);
  EXPECT_EQ(header.program.substr(0, 7), "delink ");
  EXPECT_EQ(saved_->run().stage, "pseudo");
  EXPECT_EQ(saved_->run().tokens, 32);
  EXPECT_TRUE(std::isnan(saved_->run().flops));
  std::map<std::string, std::string> links;
  const std::vector<TensorInfo> tensors = *ListTensors(Checkpoint());
  for (const TensorInfo& tensor : tensors) {
    if (!tensor.link.empty()) {
      links["/model/" + tensor.name] = "/model/" + tensor.link;
    }
  }
  for (const auto& [path, target] : expected_.links) {
    if (!path.starts_with("/model/")) continue;
    EXPECT_EQ(links[path], target) << path;
  }
  EXPECT_EQ(links.size(), expected_.links.size() / 2);
}

TEST_F(Format1Test, LoadsOnAnyNumberOfRanks) {
  for (const int ranks : {1, 2, 3}) {
    const Layout layout = LayoutOf(saved_->sharing(), ranks);
    Values values = RoomsOf(layout, {"m", "v"});
    const absl::Status status = RunRanks(ranks, [&](Communicator& comm) {
      DELINK_ASSIGN_OR_RETURN(
          const std::unique_ptr<ParamStore> store,
          ParamStore::Create(*device_, layout, comm.rank(), {}));
      DELINK_RETURN_IF_ERROR(LoadCheckpoint(comm, Checkpoint(), *store));
      EXPECT_EQ(store->updates(),
                std::vector<int64_t>(store->slabs().size(), 2));
      return Collect(*store, values);
    });
    ASSERT_TRUE(status.ok()) << status;
    ExpectDigests(values, expected_.digests);
  }
}

// As when all evaluate a part of a corpus.
TEST_F(Format1Test, RanksMayEachHaveAModelOfTheirOwn) {
  const absl::Status status = RunRanks(2, [&](Communicator& comm) {
    const Layout layout = LayoutOf(saved_->sharing(), 1);
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<ParamStore> store,
                            ParamStore::Create(*device_, layout, 0, {}));
    DELINK_RETURN_IF_ERROR(LoadCheckpoint(comm, Checkpoint(), *store));
    Values values = RoomsOf(layout, {"m", "v"});
    DELINK_RETURN_IF_ERROR(Collect(*store, values));
    ExpectDigests(values, expected_.digests);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// Every block has a copy of what was shared.
TEST_F(Format1Test, WeightsLoadIntoAModelThatSharesNothing) {
  const Layout layout = LayoutOf({}, 1);
  const auto store = ParamStore::Create(*device_, layout, 0, {});
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_EQ(LoadWeights(self_, Checkpoint(), **store), absl::OkStatus());
  Values values = RoomsOf(layout, {});
  ASSERT_EQ(Collect(**store, values), absl::OkStatus());
  std::map<std::string, std::string> digests;
  for (const auto& [path, digest] : expected_.digests) {
    if (path.starts_with("/model/")) digests[path] = digest;
  }
  for (const auto& [path, target] : expected_.links) {
    if (path.starts_with("/model/blocks/")) {
      digests[path] = expected_.digests.at(target);
    }
  }
  ExpectDigests(values, digests);
}

// On three ranks, and then by whoever reads that.
TEST_F(Format1Test, SavedAgainItIsTheSame) {
  const testing::TempDir dir;
  const Layout layout = LayoutOf(saved_->sharing(), 3);
  const absl::Status status = RunRanks(3, [&](Communicator& comm) {
    DELINK_ASSIGN_OR_RETURN(
        const std::unique_ptr<ParamStore> store,
        ParamStore::Create(*device_, layout, comm.rank(), {}));
    DELINK_RETURN_IF_ERROR(LoadCheckpoint(comm, Checkpoint(), *store));
    return WriteCheckpoint(comm, dir.path(), saved_->header(), *store, {}, 0)
        .status();
  });
  ASSERT_TRUE(status.ok()) << status;
  const Layout alone = LayoutOf(saved_->sharing(), 1);
  const auto store = ParamStore::Create(*device_, alone, 0, {});
  ASSERT_TRUE(store.ok()) << store.status();
  ASSERT_EQ(LoadCheckpoint(self_, dir / "step-00000002", **store),
            absl::OkStatus());
  Values values = RoomsOf(alone, {"m", "v"});
  ASSERT_EQ(Collect(**store, values), absl::OkStatus());
  ExpectDigests(values, expected_.digests);
}

}  // namespace
}  // namespace delink::format1_test
