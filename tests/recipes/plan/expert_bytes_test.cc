// The bytes that ranks with experts hand to each other in a step, against the
// formulas of docs/experts.md and against their plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/comm/link.h"
#include "framework/comm/thread_communicator.h"
#include "recipes/plan/plan.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/run/stage/nodes.h"
#include "recipes/run/stage/stage_run.h"
#include "recipes/schema/recipe_io.h"
#include "tests/framework/comm/counting_communicator.h"
#include "tests/recipes/run/constant_batch.h"
#include "tests/testing/source_path.h"

namespace delink::testing::expert_bytes_test {
namespace {

using Words = std::vector<std::string>;

const std::string kMoe = SourcePath("recipes/tiny_moe.toml");

// One group of experts, or two of them, on as many machines each.
struct Case {
  std::string dispatch = "all-to-all", recompute = "norm+activation";
  int64_t experts = 16, k = 2, prototypes = 1, dim = 16;
  int64_t ranks = 4, machines = 2, groups = 1;
  int64_t seq = 12, sequences = 1, micro_batches = 1, layers = 1;
  double room = 2, capacity = 0;
  bool bf16 = false, overlap = false;

  // Of a rank's experts, those of each are sent by themselves.
  int64_t parts() const {
    const bool once = dispatch == "deduplicated" && machines == ranks;
    const bool even = experts / ranks % 2 == 0;
    return overlap && dispatch != "gather" && !once && even ? 2 : 1;
  }
  int64_t tokens() const { return seq * sequences; }
  int64_t all_ranks() const { return ranks * groups; }
  int64_t of_machine() const { return ranks / machines; }
};

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.dispatch << ", " << c.k << " of " << c.experts << " in "
             << c.prototypes << ", " << c.tokens() << " tokens of " << c.dim
             << (c.bf16 ? " bf16" : " f32") << " on " << c.groups << " x "
             << c.ranks << " ranks of " << c.machines << " machines, room "
             << c.room << (c.overlap ? ", overlap" : "") << ", capacity "
             << c.capacity << ", " << c.layers << " layers, " << c.micro_batches
             << " micro-batches, recompute " << c.recompute;
}

Case DrawCase(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<int64_t>& from) {
    return from[random() % from.size()];
  };
  Case c;
  c.dispatch = Words{"gather", "all-to-all", "deduplicated"}[seed % 3];
  c.recompute = Words{"none", "norm+activation", "block"}[random() % 3];
  c.k = pick({1, 2, 3, 4});
  c.experts = pick({8, 16});
  c.prototypes = c.k != 3 && random() % 4 == 0 ? c.k : 1;
  c.dim = pick({8, 16, 24});
  c.ranks = pick({2, 4, 8, 8});
  c.machines = std::min(c.ranks, pick({1, 2, 2, 4, 4}));
  c.groups = c.ranks < 8 ? pick({1, 2}) : 1;
  c.seq = pick({5, 16, 33});
  c.sequences = pick({1, 2});
  c.micro_batches = pick({1, 2});
  c.layers = pick({1, 2});
  c.room = static_cast<double>(pick({2, 4, 5, 8, 12})) / 4;
  c.bf16 = random() % 2 == 0;
  c.capacity = static_cast<double>(pick({0, 0, 1, 2, 5})) / 4;
  c.overlap = random() % 2 == 0;
  return c;
}

Words SetsOf(const Case& c, double room) {
  return {"model.vocab=61",
          "model.router.groups=1",
          "model.router.top_groups=1",
          absl::StrCat("model.layers=", c.layers + 1),  // the first is dense
          absl::StrCat("model.experts=", c.experts),
          absl::StrCat("model.top_k=", c.k),
          absl::StrCat("model.prototypes=", c.prototypes),
          absl::StrCat("model.capacity=", c.capacity),
          absl::StrCat("model.dim=", c.dim),
          absl::StrCat("data.seq=", c.seq),
          absl::StrCat("data.batch=",
                       c.all_ranks() * c.sequences * c.micro_batches),
          absl::StrCat("run.micro_batch=", c.sequences),
          absl::StrCat("run.precision=", c.bf16 ? "bf16" : "fp32"),
          absl::StrCat("run.recompute=", c.recompute),
          absl::StrCat("stage.0.parallel.expert=", c.ranks),
          absl::StrCat("stage.0.parallel.dispatch=", c.dispatch),
          absl::StrCat("stage.0.parallel.expert_room=", room),
          absl::StrCat("stage.0.parallel.expert_overlap=",
                       c.overlap ? "true" : "false")};
}

// What a rank sends in a step.
struct Bytes {
  int64_t across = 0, within = 0;  // machines
  friend bool operator==(const Bytes&, const Bytes&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Bytes& b) {
    return out << b.across << " across, " << b.within << " within machines";
  }
};

// The formulas of docs/experts.md. Every exchange hands a row for each of a
// number of slots to each of some other ranks.
int64_t OfSlot(const Case& c, int64_t choices) {
  const int64_t row = c.dim * (c.bf16 ? 2 : 4), number = 4, gate = 4;
  // Tokens and outputs, or the gradients of both; tokens again.
  const int64_t forward = 2 * row + choices * (number + gate);
  const int64_t backward =
      2 * row + choices * gate + (c.recompute != "none" ? row : 0);
  const int64_t again = c.recompute == "block" ? forward : 0;
  return c.layers * c.micro_batches * (forward + backward + again);
}

Bytes Formula(const Case& c, double room) {
  const int64_t N = c.tokens(), k = c.k, G = c.ranks, M = c.machines;
  const int64_t P = c.parts();
  // The most choices of a token that one part can have.
  const int64_t most = c.prototypes > 1 ? std::max(int64_t{1}, k / (G * P))
                                        : std::min(k, c.experts / (G * P));
  // The most choices of a micro-batch that so many parts can have.
  const auto left = [&](int64_t parts) {
    const double mean =
        static_cast<double>(N * k) / static_cast<double>(c.experts);
    const double of_expert =
        c.capacity > 0 ? std::ceil(c.capacity * mean) : static_cast<double>(N);
    return c.experts / (G * P) * parts * static_cast<int64_t>(of_expert);
  };
  const auto slots = [room](int64_t choices, int64_t ranks, int64_t at_most) {
    const double mean =
        static_cast<double>(choices) / static_cast<double>(ranks);
    return std::min(static_cast<int64_t>(std::ceil(room * mean)), at_most);
  };
  if (c.dispatch == "deduplicated" && M > 1) {
    const int64_t to_machine =
        slots(N * std::min(k, M), M, std::min(N, left(G * P / M)));
    const int64_t to_rank =
        P *
        slots(N * k, G * P / M, std::min(M * to_machine * most, M * left(1)));
    return {(M - 1) * to_machine * OfSlot(c, k),
            (G / M - 1) * to_rank * OfSlot(c, 1)};
  }
  const int64_t each =
      c.dispatch == "gather"
          ? N * OfSlot(c, k)
          : P * slots(N * k, G * P, std::min(N * most, left(1))) * OfSlot(c, 1);
  return {(G - G / M) * each, (G / M - 1) * each};
}

// What `delink plan` says of a rank, which names machines only of tokens that
// go once to each; else all is in `across`.
void ExpectPlan(const Case& c, double room, const Bytes& expected) {
  const auto plan = PlanRun({.recipe = kMoe,
                             .sets = SetsOf(c, room),
                             .ranks = c.all_ranks(),
                             .ranks_per_node = c.of_machine(),
                             .threads = 1},
                            BuiltInModels());
  ASSERT_TRUE(plan.ok()) << plan.status();
  const PipelineStagePlan& rank = plan->stages[0].pipeline.stages[0];
  Bytes listed;
  for (const ExchangePlan& of : rank.exchanges) {
    if (of.what != "activations") continue;
    EXPECT_EQ(of.along, "expert");
    const int64_t sent = SentInParts(of.bytes, static_cast<int>(of.ranks));
    (of.kind == "all-to-all within a node" ? listed.within : listed.across) +=
        sent;
  }
  if (c.dispatch == "deduplicated" && c.machines > 1) {
    EXPECT_EQ(listed, expected);
  }
  EXPECT_EQ(listed.across + listed.within, expected.across + expected.within);
  int64_t priced = 0;
  for (size_t i = 0; i < rank.sent.size(); ++i) {
    if (IsVisit(rank.program.instructions[i])) priced += rank.sent[i].bytes;
  }
  EXPECT_EQ(priced, expected.across + expected.within);
}

HostBatch RandomBatch(const BatchCut& cut, int rank) {
  HostBatch batch = ConstantBatch(cut);
  std::mt19937 random(static_cast<unsigned>(rank));
  for (int32_t& token : batch.inputs) token = random() % 61;
  return batch;
}

// By other rank, a rank's first rows of activations in bf16.
using Rows = std::multiset<std::string>;
struct Handed {
  Bytes bytes;
  std::map<int, Rows> first;
  double room = 0;  // in the end
};

// Makes the stage as a run does and takes a step.
absl::Status Step(const Case& c, Communicator& world, Handed& sent) {
  const int64_t each = c.of_machine();
  CountingCommunicator comm(world, [&](const CountingCommunicator::Part& part) {
    (part.peer / each == world.rank() / each ? sent.bytes.within
                                             : sent.bytes.across) += part.bytes;
    if (part.dtype != DType::kBF16 || sent.first.contains(part.peer)) {
      return;
    }
    Rows& rows = sent.first[part.peer];
    for (int64_t at = 0; at < part.bytes; at += c.dim * 2) {
      rows.emplace(part.data + at, c.dim * 2);
    }
    rows.erase(std::string(c.dim * 2, '\0'));  // of slots without a token
  });
  const ModelList models = BuiltInModels();
  DELINK_ASSIGN_OR_RETURN(const Recipe read,
                          ReadRecipe(kMoe, SetsOf(c, c.room), KindsOf(models)));
  DELINK_ASSIGN_OR_RETURN(const Recipe recipe, CheckWorld(read, comm.size()));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> network,
                          world.Split(0, world.rank()));
  const std::unique_ptr<Device> device = NewCpuDevice();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RunModel> model,
                          RunModel::Create(recipe, models));
  RunEnv env = model->On(*device, comm, *network);
  env.nodes = NodesOf(c.all_ranks(), each);
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> stage,
                          StageRun::Create(env, 0));
  stage->store().InitWeights(1);
  DELINK_RETURN_IF_ERROR(
      stage->executor()
          .TrainStep(RandomBatch(stage->cut(), world.rank()), 1, 1e-3)
          .status());
  DELINK_RETURN_IF_ERROR(stage->executor().Drain());
  sent.room = stage->executor().expert_room();
  return absl::OkStatus();
}

std::vector<Handed> HandedBy(const Case& c) {
  std::vector<Handed> sent(c.all_ranks());
  const absl::Status status = RunRanks(
      static_cast<int>(c.all_ranks()),
      [&](Communicator& world) { return Step(c, world, sent[world.rank()]); });
  EXPECT_TRUE(status.ok()) << status;
  return sent;
}

TEST(ExpertBytes, AreThoseOfTheFormulasAndOfThePlan) {
  for (unsigned seed = 0; seed < 45; ++seed) {
    const Case c = DrawCase(seed);
    SCOPED_TRACE(::testing::Message() << "seed " << seed << ": " << c);
    const std::vector<Handed> sent = HandedBy(c);
    ASSERT_FALSE(HasFailure());
    // If choices find no room, the step runs again with twice of it.
    Bytes all;
    double room = c.room;
    do {
      const Bytes once = Formula(c, room);
      ExpectPlan(c, room, once);
      all.across += once.across;
      all.within += once.within;
      room *= 2;
    } while (room <= sent[0].room);
    for (const Handed& of : sent) EXPECT_EQ(of.bytes, all);
  }
}

// Choices of several ranks on a machine are one row on the way to it.
TEST(ExpertBytes, ATokenCrossesOnceToEachMachine) {
  for (const int64_t machines : {2, 4}) {
    Case c{.k = 6, .ranks = 8, .machines = machines, .room = 100, .bf16 = true};
    SCOPED_TRACE(machines);
    const std::vector<Handed> to_ranks = HandedBy(c);
    c.dispatch = "deduplicated";
    const std::vector<Handed> to_machines = HandedBy(c);
    ASSERT_FALSE(HasFailure());
    for (int64_t rank = 0; rank < c.ranks; ++rank) {
      EXPECT_LT(to_machines[rank].bytes.across, to_ranks[rank].bytes.across);
      for (int64_t machine = 0; machine < machines; ++machine) {
        if (rank / c.of_machine() == machine) continue;
        Rows once, often;
        for (int64_t i = 0; i < c.of_machine(); ++i) {
          const auto peer = static_cast<int>(machine * c.of_machine() + i);
          const auto merge = [peer](const Handed& of, Rows& rows) {
            const auto found = of.first.find(peer);
            if (found != of.first.end()) {
              rows.insert(found->second.begin(), found->second.end());
            }
          };
          merge(to_machines[rank], once);
          merge(to_ranks[rank], often);
        }
        EXPECT_GT(often.size(), once.size());
        const std::set<std::string> different(often.begin(), often.end());
        EXPECT_TRUE(once == Rows(different.begin(), different.end()))
            << once.size() << " rows of " << different.size() << " tokens from "
            << rank << " to machine " << machine;
      }
    }
  }
}

}  // namespace
}  // namespace delink::testing::expert_bytes_test
