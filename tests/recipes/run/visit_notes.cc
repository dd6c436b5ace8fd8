#include "tests/recipes/run/visit_notes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "framework/base/at.h"
#include "framework/step/plan/basic.h"
#include "layers/modules/embedding.h"
#include "layers/modules/lm_head.h"
#include "layers/modules/mlp.h"
#include "layers/modules/norm.h"
#include "layers/ops/add.h"
#include "offload/plan/stored_slots.h"
#include "tests/testing/on_ranks.h"

namespace delink::testing {
namespace {

constexpr int64_t kLayers = 4, kMicroBatches = 4, kSequences = 2;

int64_t Read(const Tape& tape, const int64_t* at) {
  int64_t value = -1;
  tape.device().CopyToHost(tape.stream(), &value, at, sizeof(value));
  tape.stream().Synchronize();
  return value;
}

class NotingBlock final : public Module {
 public:
  struct Config {
    int64_t block = 0, dim = 0;
    VisitNotes* notes = nullptr;
  };
  NotingBlock(const Scope& s, const Config& c)
      : c_(c),
        norm_(s / "norm", {.dim = c.dim}),
        mlp_(s / "mlp", {.dim = c.dim, .hidden = 2 * c.dim}) {}

  Var operator()(Var x) override {
    const Tape& tape = x.tape();
    const VisitInputs& inputs = tape.inputs();
    if (!IsMeta(tape.device().kind())) {
      c_.notes->push_back({{.block = c_.block,
                            .sample = Read(tape, inputs.samples),
                            .training = inputs.training,
                            .again = inputs.again},
                           Read(tape, inputs.counted_targets)});
    }
    return x + mlp_(norm_(x));
  }

 private:
  const Config c_;
  Norm norm_;
  Mlp mlp_;
};

std::vector<bool> RecomputeOf(const NotedCase& of) {
  std::vector<bool> layers(kLayers + 2);
  for (const int block : of.again)
    layers[static_cast<size_t>(block) + 1] = true;
  return layers;
}

// What a rank's visits are told, and are to be.
struct Told {
  VisitNotes notes;
  std::map<int64_t, int64_t> counted;
};

Told Tell(Communicator& world, const NotedCase& of) {
  Told told;
  RigOptions options = of.options;
  options.layers = kLayers;
  options.micro_batch = kSequences;
  options.global_batch = of.data * kMicroBatches * kSequences;
  options.tied = false;
  options.build = BuildNoting(&told.notes);
  StepRig rig(world, "none", options);
  std::unique_ptr<Executor> own;
  if (of.stores || !of.again.empty()) {
    Planner planner =
        BasicPlanner({.order = options.order, .recompute = options.recompute});
    if (of.stores) {
      planner = WithStores(std::move(planner),
                           {.layers = std::vector<bool>(kLayers + 2, true)});
    }
    own = *rig.NewExecutor(planner, RecomputeOf(of));
  }
  Executor& executor = own != nullptr ? *own : rig.executor();
  if (of.stores) {
    EXPECT_GT(executor.account().host, 0);
  }
  HostBatch batch = rig.Batch(1);
  std::fill_n(batch.targets.begin(), kSequences * StepRig::kSeq, -1);
  told.counted = CountedByHand(batch, kSequences);
  const auto step = executor.TrainStep(batch, 1, 1e-3);
  EXPECT_TRUE(step.ok());
  EXPECT_TRUE(executor.Evaluate(batch).ok());
  EXPECT_TRUE(executor.Drain().ok());
  // What a step divides gradients by is the sum.
  int64_t all = 0;
  for (const auto& [sample, count] : told.counted) all += count;
  if (of.data == 1) {
    EXPECT_EQ(step->tokens, all);
  }
  return told;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const VisitNote& note) {
  return out << "block " << note.block << ", sequence " << note.sample
             << (note.training ? ", training" : "")
             << (note.again ? ", again" : "");
}

std::function<std::unique_ptr<Sequential>(const Scope&, const GptConfig&)>
BuildNoting(VisitNotes* notes) {
  return [notes](const Scope& s, const GptConfig& c) {
    auto model = std::make_unique<Sequential>(s);
    model->Prologue<Embedding>("embed", {.vocab = c.vocab, .dim = c.dim});
    for (int64_t i = 0; i < c.layers; ++i) {
      model->Block<NotingBlock>({.block = i, .dim = c.dim, .notes = notes});
    }
    model->Epilogue<LmHead>({.dim = c.dim, .vocab = c.vocab});
    return model;
  };
}

std::map<int64_t, int64_t> CountedByHand(const HostBatch& batch,
                                         size_t sequences) {
  std::map<int64_t, int64_t> counted;
  for (size_t row = 0; row < batch.samples.size(); ++row) {
    int64_t& count = counted[batch.samples[row - row % sequences]];
    for (size_t t = 0; t < StepRig::kSeq; ++t) {
      if (batch.targets[row * StepRig::kSeq + t] >= 0) ++count;
    }
  }
  return counted;
}

std::ostream& operator<<(std::ostream& out, const NotedCase& of) {
  const RigOptions& o = of.options;
  out << "data " << of.data << ", tensor " << o.tensor << ", context "
      << o.context << ", pipeline " << o.pipeline << ", turns " << o.turns;
  if (o.recompute) out << ", recompute";
  if (o.halves) out << ", halves";
  if (of.stores) out << ", stores";
  return out << ", " << of.again.size() << " blocks again";
}

void ExpectVisitsToldTruly(const NotedCase& of) {
  std::vector<Told> by_rank(static_cast<size_t>(of.ranks()));
  OnRanks(of.ranks(), [&](Communicator& world) {
    At(by_rank, world.rank()) = Tell(world, of);
  });
  // As often as ranks share a micro-batch.
  std::map<VisitNote, std::vector<int64_t>> found, expected;
  std::map<int64_t, int64_t> counted;
  for (const Told& told : by_rank) {
    for (const auto& [note, count] : told.notes) found[note].push_back(count);
    counted.insert(told.counted.begin(), told.counted.end());
  }
  const std::vector<bool> recompute = RecomputeOf(of);
  for (const auto& [sample, count] : counted) {
    const std::vector<int64_t> each(
        static_cast<size_t>(of.options.tensor * of.options.context), count);
    for (int64_t block = 0; block < kLayers; ++block) {
      VisitNote note{.block = block, .sample = sample};
      expected[note] = each;  // in the evaluation
      note.training = true;
      expected[note] = each;
      note.again = true;
      if (of.options.recompute || At(recompute, block + 1)) {
        expected[note] = each;
      }
    }
  }
  ASSERT_EQ(counted.size(), static_cast<size_t>(of.data * kMicroBatches));
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [note, counts] : expected) {
    EXPECT_EQ(found[note], counts) << note;
  }
}

}  // namespace delink::testing
