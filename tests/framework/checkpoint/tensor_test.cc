// Checkpoints of stores that tensor parallelism cuts, at heads too: written
// over one mesh and read over any other, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/thread_communicator.h"
#include "framework/module/store_values.h"
#include "tests/framework/module/store_values_rig.h"
#include "tests/testing/temp_dir.h"

namespace delink::tensor_test {
namespace {

using testing::AllBytes;
using testing::Form;
using testing::kToyBlocks;
using Kind = Field::Kind;

constexpr int kWidth = 37;
constexpr int kHead = 6;  // rows of one

struct Way {
  Mesh mesh;
  int zero = 0;
};

const Way kWays[] = {
    {},
    {.mesh = {.tensor = 2, .data = 2}, .zero = 1},
    {.mesh = {.tensor = 2, .context = 2}},
    {.mesh = {.tensor = 4, .context = 2}, .zero = 1},
    {.mesh = {.tensor = 4, .pipeline = 2}},
    {.mesh = {.data = 3}, .zero = 1},
};

// What is cut at heads, of which two are of keys and values, by rows, by
// columns and not at all.
void DeclareBlock(const Scope& block) {
  const Scope attention = (block / "attn").Part("attention");
  attention.Param("norm", {.shape = {kWidth}});
  attention.Param("qkv", {.shape = {8 * kHead, kWidth},
                          .split = Split::kOut,
                          .stacked = {4 * kHead, 2 * kHead, 2 * kHead},
                          .unit = kHead});
  attention.Param(
      "out",
      {.shape = {kWidth, 4 * kHead}, .split = Split::kIn, .unit = kHead});
  const Scope mlp = (block / "mlp").Part("mlp");
  mlp.Param("up", {.shape = {75, kWidth}, .split = Split::kOut});
  mlp.Param("bias", {.shape = {75}, .split = Split::kOut});
  const Scope experts = (block / "experts").Part("mlp");
  experts.Param(
      "up",
      {.shape = {3, 16, kWidth}, .split = Split::kOut, .stacked = {8, 8}});
  experts.Param("bias", {.shape = {3, 16},
                         .vectors = true,
                         .split = Split::kOut,
                         .stacked = {8, 8}});
  experts.Param("down", {.shape = {3, kWidth, 9}, .split = Split::kIn});
}

// A store of one rank and the registry that it stands on.
class Rank {
 public:
  Rank(Device& device, const Way& way, const Form& form, int rank) {
    const Scope root(registry_);
    root.Layer(0, "embed")
        .Param("weight", {.shape = {29, kWidth}, .split = Split::kOut});
    for (int i = 0; i < kToyBlocks; ++i) {
      DeclareBlock(root.Layer(i + 1, "blocks/" + std::to_string(i)));
    }
    (root.Layer(kToyBlocks + 1, "") / "head").Link("embed/weight");
    const Layout layout =
        Layout::Create(registry_, kToyBlocks, {},
                       {.mesh = way.mesh,
                        .zero = way.zero,
                        .whole_tensors = form.options.whole_tensors});
    auto store = ParamStore::Create(device, layout, rank,
                                    {.dtype = form.options.dtype,
                                     .states = form.options.states,
                                     .master = form.options.master});
    DELINK_CHECK(store.ok()) << store.status().ToString();
    store_ = *std::move(store);
  }
  ParamStore& store() { return *store_; }

  // With values that are functions of field, name and number.
  void Fill() {
    StoreValues ends(*store_);
    std::vector<Field> fields = {{Kind::kParameters}};
    for (const StateSpec& spec : store_->states()) {
      fields.push_back({Kind::kState, spec.name});
    }
    for (const Field& field : fields) {
      for (const LogicalTensor& tensor : store_->layout().tensors()) {
        if (!tensor.link.empty()) continue;
        for (const Extent& extent :
             testing::WantedOn(ends, field, tensor, store_->rank())) {
          testing::WriteBytes(
              ends, field, tensor, extent,
              testing::Pack(ends.type(field),
                            testing::ValuesOf(*store_, field, tensor, extent)));
        }
      }
    }
    for (size_t s = 0; s < store_->slabs().size(); ++s) {
      store_->updates()[s] = 10 + store_->local(static_cast<int>(s)).logical;
    }
  }

 private:
  ParamRegistry registry_;
  std::unique_ptr<ParamStore> store_;
};

class CheckpointTensorTest : public ::testing::Test {
 protected:
  // A filled store.
  void Save(const Form& form, const Way& way, const std::string& folder) {
    const absl::Status saved =
        RunRanks(way.mesh.ranks(), [&](Communicator& comm) {
          Rank rank(*device_, way, form, comm.rank());
          rank.Fill();
          return WriteCheckpoint(comm, folder, {.step = 7}, rank.store(), {}, 0)
              .status();
        });
    ASSERT_TRUE(saved.ok()) << saved;
  }

  // A filled store over `from`, read over `to`, is one that was filled there.
  void Expect(const Form& form, const Way& from, const Way& to) {
    const testing::TempDir dir;
    ASSERT_NO_FATAL_FAILURE(Save(form, from, dir.path()));
    const absl::Status read =
        RunRanks(to.mesh.ranks(), [&](Communicator& comm) {
          Rank loaded(*device_, to, form, comm.rank());
          Rank filled(*device_, to, form, comm.rank());
          filled.Fill();
          DELINK_RETURN_IF_ERROR(
              LoadCheckpoint(comm, dir / "step-00000007", loaded.store()));
          EXPECT_EQ(AllBytes(loaded.store()), AllBytes(filled.store()));
          EXPECT_EQ(loaded.store().updates(), filled.store().updates());
          return absl::OkStatus();
        });
    ASSERT_TRUE(read.ok()) << read;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice();
};

// Numbers in kWays: from, to.
using Pairs = std::vector<std::pair<size_t, size_t>>;

TEST_F(CheckpointTensorTest, IsTheSameModelOverEveryMesh) {
  for (const Form& form : testing::Forms()) {
    // Blocks of 8 bits depend on how a slab is cut: below.
    if (form.name != "f32" && form.name != "bf16, split masters" &&
        form.name != "factored") {
      continue;
    }
    for (const auto& [from, to] :
         Pairs{{0, 1}, {1, 0}, {3, 0}, {1, 3}, {4, 2}, {5, 4}}) {
      SCOPED_TRACE(absl::StrCat(form.name, ", ", from, " to ", to));
      Expect(form, kWays[from], kWays[to]);
    }
  }
}

TEST_F(CheckpointTensorTest, HasTheBitsOfBlocksThatAreCutAlike) {
  const Form form{"8 bits",
                  {.states = testing::MomentsIn(StateStorage::kBlock8)}};
  for (const auto& [from, to] : Pairs{{1, 1}, {1, 2}, {4, 3}}) {
    SCOPED_TRACE(absl::StrCat(from, " to ", to));
    Expect(form, kWays[from], kWays[to]);
  }
}

// Over another number of places blocks are others: a value is off by what
// keeping it in 8 bits costs, of the largest of its block.
TEST_F(CheckpointTensorTest, BlocksOf8BitsMayBeCutAnew) {
  const Form form{"8 bits",
                  {.states = testing::MomentsIn(StateStorage::kBlock8)}};
  const Way from{.mesh = {.tensor = 2, .data = 2}, .zero = 1};
  const testing::TempDir dir;
  ASSERT_NO_FATAL_FAILURE(Save(form, from, dir.path()));
  const Way to{.mesh = {.tensor = 4}};
  const absl::Status read = RunRanks(to.mesh.ranks(), [&](Communicator& comm) {
    Rank loaded(*device_, to, form, comm.rank());
    DELINK_RETURN_IF_ERROR(
        LoadCheckpoint(comm, dir / "step-00000007", loaded.store()));
    StoreValues ends(loaded.store());
    const Field field{Kind::kState, "m"};
    double worst = 0, largest = 0;
    for (const LogicalTensor& tensor : loaded.store().layout().tensors()) {
      if (!tensor.link.empty()) continue;
      for (const Extent& extent :
           testing::OnRank(ends.Wants(field, tensor), loaded.store().rank())) {
        std::vector<float> values(static_cast<size_t>(extent.rect.elements()));
        DELINK_RETURN_IF_ERROR(ends.Read(field, tensor, extent, values.data()));
        const auto expected =
            testing::ValuesOf(loaded.store(), field, tensor, extent);
        for (size_t i = 0; i < values.size(); ++i) {
          worst = std::max(worst, std::abs(values[i] - expected[i]));
          largest = std::max(largest, std::abs(expected[i]));
        }
      }
    }
    // Twice half of the widest step between codes.
    EXPECT_LT(worst, 2 * largest / 128);
    EXPECT_GT(largest, 1);
    return absl::OkStatus();
  });
  ASSERT_TRUE(read.ok()) << read;
}

}  // namespace
}  // namespace delink::tensor_test
