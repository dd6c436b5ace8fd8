// The kernel calls that a plan lists against those of a real step.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/status_macros.h"
#include "framework/comm/thread_communicator.h"
#include "layers/kernels/timed/timed.h"
#include "recipes/run/setup/prepare.h"
#include "recipes/run/stage/stage_run.h"
#include "recipes/schema/recipe_io.h"
#include "tests/recipes/run/constant_batch.h"
#include "tests/testing/source_path.h"

namespace delink::testing::calls_test {
namespace {

// "matmul f32 64 x 32 x 96 nt, 393216 FLOPs, 20480 + 8192 bytes" -> calls.
using Counts = std::map<std::string, int64_t>;

std::string Text(const Work& w) {
  return absl::StrCat(std::string(w.kernel), " ", ToString(w.dtype), " ", w.m,
                      " x ", w.n, " x ", w.k, " ", w.transpose_a ? "t" : "n",
                      w.transpose_b ? "t" : "n", ", ", w.flops, " FLOPs, ",
                      w.read, " + ", w.written, " bytes");
}

void Without0(Counts& counts) {
  std::erase_if(counts, [](const auto& of) { return of.second == 0; });
}

// By instruction of the step's program.
using ByVisit = std::map<int32_t, Counts>;

ByVisit Planned(const Executor& executor) {
  ByVisit visits;
  const std::vector<Instruction>& all = executor.program().instructions;
  for (int32_t i = 0; i < static_cast<int32_t>(all.size()); ++i) {
    const Instruction& at = At(all, i);
    if (!IsVisit(at)) continue;
    Counts& counts = visits[i];
    ForEachCalls(At(executor.layers(), at.layer), at,
                 At(executor.analysis().written, i),
                 [&](const std::vector<KernelCall>& calls, int times) {
                   for (const KernelCall& call : calls) {
                     counts[Text(call.work)] += times * call.count;
                   }
                 });
    Without0(counts);
  }
  return visits;
}

// The last step of the trace. All calls of one thread, so in order of time.
ByVisit Recorded(const Trace& trace, const KernelCalls& calls, int64_t step) {
  ByVisit visits;
  for (const Trace::Span& span : trace.spans()) {
    if (span.step != step || span.index < 0) continue;
    const Instruction& at =
        At(At(trace.programs(), span.program), span.index).at;
    if (!IsVisit(at)) continue;
    Counts& counts = visits[span.index];
    for (const TimedCall& call : calls.calls()) {
      if (call.begin < span.begin || call.end > span.end) continue;
      ++counts[Text(call.work)];
    }
  }
  return visits;
}

absl::Status Compare(const std::string& path, std::vector<std::string> sets,
                     Communicator& comm) {
  for (const char* const set :
       {"data.batch=8", "run.micro_batch=2", "data.seq=16"}) {
    sets.insert(sets.begin(), set);
  }
  sets.emplace_back("model.vocab=61");
  const ModelList models = BuiltInModels();
  DELINK_ASSIGN_OR_RETURN(const Recipe read,
                          ReadRecipe(path, sets, KindsOf(models)));
  DELINK_ASSIGN_OR_RETURN(const Recipe recipe, CheckWorld(read, comm.size()));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Communicator> network,
                          comm.Split(0, comm.rank()));
  KernelCalls calls;
  const std::unique_ptr<Device> device = NewTimedDevice(NewCpuDevice(), calls);
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RunModel> model,
                          RunModel::Create(recipe, models));
  Trace trace(1, 2);
  RunEnv env = model->On(*device, comm, *network);
  env.trace = &trace;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<StageRun> stage,
                          StageRun::Create(env, recipe.stages.size() - 1));
  stage->store().InitWeights(1);
  Executor& executor = stage->executor();
  // The first step lacks late updates.
  for (const int64_t step : {1, 2}) {
    DELINK_RETURN_IF_ERROR(
        executor.TrainStep(ConstantBatch(stage->cut()), step, 1e-3).status());
  }
  DELINK_RETURN_IF_ERROR(executor.Drain());
  const ByVisit planned = Planned(executor),
                recorded = Recorded(trace, calls, 2);
  EXPECT_GT(planned.size(), 4u);
  EXPECT_EQ(planned.size(), recorded.size());
  for (const auto& [index, counts] : planned) {
    const Instruction& at = At(executor.program().instructions, index);
    // Gradients of the last micro-batch are reduced between ranks in the middle
    // of its visits.
    if (comm.size() > 1 && at.micro_batch == stage->cut().micro_batches - 1) {
      continue;
    }
    EXPECT_GT(counts.size(), 0u);
    EXPECT_EQ(counts, recorded.contains(index) ? recorded.at(index) : Counts())
        << "rank " << comm.rank() << ", " << ToString(at);
  }
  return absl::OkStatus();
}

struct Case {
  const char* recipe;
  int ranks;
  std::vector<std::string> sets;
};

TEST(Calls, OfAPlanAreThoseOfAStep) {
  const std::vector<Case> cases = {
      {"tiny", 1, {"model.tied=true", "model.dropout=0.1"}},
      {"tiny", 1, {"run.precision=bf16", "run.gradients=bf16"}},
      {"tiny", 1, {"model.tied=true", "run.recompute=block"}},
      {"tiny", 1, {"stage.1.share=groups:2", "run.order=layer"}},
      {"tiny",
       2,
       {"stage.0.parallel.pipeline=2",
        "stage.1.parallel.schedule=zero-bubble"}},
      {"tiny", 2, {"stage.1.parallel.context=2"}},
      {"tiny_llama", 1, {"run.recompute=norm+activation"}},
      {"tiny_llama", 1, {"run.precision=bf16", "run.recompute=none"}},
      {"tiny_tensor", 2, {}},
      {"tiny_tensor",
       2,
       {"stage.0.parallel.sequence=true", "run.precision=bf16",
        "run.recompute=block"}},
      {"tiny_moe", 1, {}},
      {"tiny_moe", 1, {"run.precision=bf16", "run.recompute=block"}},
      {"tiny_moe", 2, {"stage.0.parallel.expert=2"}},
      {"tiny_m6", 1, {}}};
  for (const Case& of : cases) {
    SCOPED_TRACE(absl::StrCat(of.recipe, " on ", of.ranks));
    const absl::Status status = RunRanks(of.ranks, [&](Communicator& comm) {
      return Compare(SourcePath(absl::StrCat("recipes/", of.recipe, ".toml")),
                     of.sets, comm);
    });
    EXPECT_TRUE(status.ok()) << std::string(status.message());
  }
}

}  // namespace
}  // namespace delink::testing::calls_test
