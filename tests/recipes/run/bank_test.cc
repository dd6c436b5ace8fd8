// Parameters of three dimensions: a run of E matrices (and vectors) in one
// parameter is the run of E parameters, bit for bit, with every optimizer and
// wherever its values go.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "framework/base/check.h"
#include "framework/base/json.h"
#include "framework/safetensors/folder.h"
#include "recipes/convert/export.h"
#include "recipes/convert/import.h"
#include "recipes/saved/inspect.h"
#include "tests/recipes/run/bank_models.h"
#include "tests/recipes/run/tiny_run.h"

namespace delink::testing::bank_test {
namespace {

using ::testing::HasSubstr;

using Words = std::vector<std::string>;

// Three steps that share all, one that stands on a checkpoint, three delinked.
constexpr int64_t kSteps = 7, kResumed = 4;

Words Join(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// What checkpoints of parameters apart have, as those of one parameter do.
Tensors Joined(const Tensors& apart) {
  Tensors joined;
  for (const auto& [path, values] : apart) {
    std::string name = path;
    for (int64_t e = 0; e < kBank; ++e) {
      for (const char* param : {"/mlp/up", "/mlp/bias", "/mlp/down"}) {
        const std::string own = absl::StrCat(param, "/", e);
        const size_t at = name.find(own);
        if (at != name.npos) name.replace(at, own.size(), param);
      }
    }
    std::vector<float>& all = joined[name];
    all.insert(all.end(), values.begin(), values.end());
  }
  return joined;
}

struct Kind {
  const char* name;
  Words sets;
  friend std::ostream& operator<<(std::ostream& out, const Kind& kind) {
    return out << kind.name;
  }
};

const Words kBf16 = {"run.precision=bf16"};
const Words kSplit = {"run.precision=bf16", "run.master=split",
                      "run.gradients=bf16"};
const Words k8Bit = {"optimizer.moments=8bit"};
const Words kSgd = {"optimizer.kind=sgd", "optimizer.lr=0.1",
                    "optimizer.nesterov=true", "optimizer.decay=0.01"};
const Words kLion = {"optimizer.kind=lion", "optimizer.lr=1e-3"};
const Words kAdafactor = {"optimizer.kind=adafactor", "optimizer.lr=3e-2"};
const Words kMuon = {"optimizer.kind=muon", "optimizer.lr=1e-2",
                     "optimizer.adamw_lr=3e-3"};

// Where an update rounds stochastically, the numbers go by a parameter's name,
// and runs are not the same (below).
const std::vector<Kind> kKinds = {
    {"adamw", {}},
    {"adamw_8bit", k8Bit},
    {"adamw_8bit_split", Join(k8Bit, kSplit)},
    {"adamw_bf16", kBf16},
    {"sgd", kSgd},
    {"lion_split", Join(kLion, kSplit)},
    {"adafactor", kAdafactor},
    {"adafactor_bf16", Join(kAdafactor, kBf16)},
    {"adafactor_split", Join(kAdafactor, kSplit)},
    {"muon", kMuon},
    {"muon_bf16", Join(kMuon, kBf16)},
    {"muon_split", Join(kMuon, kSplit)},
};

struct Way {
  const char* name;
  int ranks;
  const char* parallel;
  const char* offload;
};

constexpr Way kWays[] = {
    {"one rank", 1, "{}", "{}"},
    {"shards at the host", 2, "{zero=1}",
     "{weights=\"host\", gradients=\"host\", state=\"host\"}"},
    {"tensor ranks", 2, "{tensor=2}", "{}"},
    {"tensor ranks and shards", 4, "{tensor=2, zero=1}", "{}"},
};

class BankTest : public ::testing::TestWithParam<Kind> {
 protected:
  BankTest() {
    BankFolder().Write(runs_.Folder("published"));
    runs_.sets = {"data.batch=4",
                  "run.micro_batch=1",
                  absl::StrCat("schedule.steps=", kSteps),
                  "stage.0.until.steps=3",
                  "stage.1.state=calibrated",
                  "stage.1.calibration_batches=2",
                  "run.checkpoint_every=0",
                  "run.validate_every=0"};
  }

  void Go(const std::string& out, ModelList (*models)(), const Way& way,
          const Words& sets) {
    Words all = sets;
    for (const char* stage : {"stage.0", "stage.1"}) {
      all.push_back(absl::StrCat(stage, ".parallel=", way.parallel));
      all.push_back(absl::StrCat(stage, ".offload=", way.offload));
    }
    RunRequest request{.ranks = way.ranks,
                       .sets = all,
                       .out = out,
                       .until_step = kResumed,
                       .init = runs_.Folder("published"),
                       .models = models};
    ASSERT_NO_FATAL_FAILURE(runs_.Go(request));
    request.init.clear();
    request.until_step.reset();
    request.resume = true;
    ASSERT_NO_FATAL_FAILURE(runs_.Go(request));
  }

  TinyRuns runs_;
};

TEST_P(BankTest, IsARunOfParametersApart) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(way.name);
    const std::string together = absl::StrCat(way.name, " together");
    const std::string apart = absl::StrCat(way.name, " apart");
    Go(together, BanksTogether, way, GetParam().sets);
    Go(apart, BanksApart, way, GetParam().sets);
    EXPECT_EQ(FirstDifference(runs_.Steps(together), runs_.Steps(apart)), "");
    EXPECT_EQ(FirstDifference(runs_.Load(together, kSteps),
                              Joined(runs_.Load(apart, kSteps))),
              "");
    ASSERT_FALSE(HasFailure());
  }
}
INSTANTIATE_TEST_SUITE_P(Kinds, BankTest, ::testing::ValuesIn(kKinds),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

class StochasticBankTest : public BankTest {};

// Each draws for its own names, and both stay close.
TEST_P(StochasticBankTest, IsNearlyARunOfParametersApart) {
  const Way& way = kWays[1];  // shards at the host
  Go("together", BanksTogether, way, GetParam().sets);
  Go("apart", BanksApart, way, GetParam().sets);
  EXPECT_LT(LossDifference(runs_.Steps("together"), runs_.Steps("apart")),
            2e-3);
  // Whoever has what, the draws are the same.
  Go("device", BanksTogether, {"", 2, "{zero=1}", "{}"}, GetParam().sets);
  runs_.ExpectSameBits("together", "device", kSteps);
}
const Words kNone = {"run.precision=bf16", "run.master=none"};
const Words kBf16Moments = {"optimizer.moments=bf16"};
INSTANTIATE_TEST_SUITE_P(
    Kinds, StochasticBankTest,
    ::testing::Values(Kind{"adamw_bf16_moments", kBf16Moments},
                      Kind{"adamw_none", Join(k8Bit, kNone)},
                      Kind{"lion_none", Join(kLion, kNone)},
                      Kind{"adafactor_none", Join(kAdafactor, kNone)},
                      Kind{"muon_none", Join(kMuon, kNone)}),
    [](const auto& info) { return std::string(info.param.name); });

class BankFiles : public ::testing::Test {
 protected:
  void ExpectStored(const std::string& path, const TinyFolder& folder) {
    const auto back = safetensors::Folder::Open(path);
    ASSERT_TRUE(back.ok()) << std::string(back.status().message());
    ASSERT_EQ(back->tensors().size(), folder.tensors.size());
    for (const auto& [name, stored] : folder.tensors) {
      const auto* const tensor = back->Find(name);
      ASSERT_NE(tensor, nullptr) << name;
      EXPECT_EQ(tensor->entry->shape, stored.shape) << name;
      std::vector<float> values(stored.values.size());
      ASSERT_TRUE(
          tensor->file
              ->Read(*tensor->entry, 0, tensor->entry->count(), values.data())
              .ok());
      EXPECT_EQ(values, stored.values) << name;
    }
  }

  std::string ErrorOf(const TinyFolder& folder, const ModelList& models) {
    const TempDir dir;
    folder.Write(dir / "in");
    const absl::Status status =
        ImportHuggingFace({.in = dir / "in", .out = dir / "out"}, models)
            .status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status.ToString();
    return std::string(status.message());
  }

  TempDir dir_;
};

TEST_F(BankFiles, ComeInAndGoOutAsTheyWere) {
  for (const bool whole : {false, true}) {
    SCOPED_TRACE(whole);
    const std::string name = whole ? "whole" : "each";
    const TinyFolder folder = BankFolder(whole);
    folder.Write(dir_ / name);
    const ModelList models = whole ? BanksTogetherWhole() : BanksTogether();
    const auto in = ImportHuggingFace(
        {.in = dir_ / name, .out = dir_ / (name + ".ours")}, models);
    ASSERT_TRUE(in.ok()) << std::string(in.status().message());
    const auto out = ExportHuggingFace(
        {.in = dir_ / (name + ".ours"), .out = dir_ / (name + ".back")},
        models);
    ASSERT_TRUE(out.ok()) << std::string(out.status().message());
    ExpectStored(dir_ / (name + ".back"), folder);
  }
}

// Entry e of ours is number e of theirs, and not another.
TEST_F(BankFiles, HaveEachMatrixInItsPlace) {
  const TinyRuns runs;
  const TinyFolder folder = BankFolder();
  folder.Write(runs.Folder("published"));
  ASSERT_NO_FATAL_FAILURE(runs.Go({.sets = {"optimizer.lr=1e-35"},
                                   .out = "run",
                                   .until_step = 1,
                                   .init = runs.Folder("published"),
                                   .models = BanksTogether}));
  const Tensors tensors = runs.Load("run", 1);
  const std::vector<float>& up = tensors.at("/model/blocks/0/mlp/up");
  const std::string theirs = "transformer.h.0.mlp.experts.2.up.weight";
  const std::vector<float>& last = folder.tensors.at(theirs).values;
  EXPECT_EQ(std::vector<float>(up.end() - static_cast<int64_t>(last.size()),
                               up.end()),
            last);
  const auto inspected =
      InspectCheckpoint(runs.Checkpoint("run", 1), BanksTogether());
  ASSERT_TRUE(inspected.ok()) << std::string(inspected.status().message());
  const std::string text = ToText(*inspected);
  for (const char* line :
       {"blocks/0/mlp/up           [3, 128, 32] (3 matrices)",
        "blocks/0/mlp/bias         [3, 128] (3 vectors)",
        "blocks/1/mlp/down         [3, 32, 128] (3 matrices)"
        " -> blocks/0/mlp/down"}) {
    EXPECT_THAT(text, HasSubstr(absl::StrCat("  ", line, "\n")));
  }
  for (const auto& tensor : ParseJson(ToJson(*inspected))["tensors"]) {
    const std::string name = tensor["name"];
    if (!absl::StrContains(name, "/mlp/")) continue;
    EXPECT_EQ(tensor["kind"],
              absl::EndsWith(name, "bias") ? "vectors" : "matrices");
  }
}

// One line, however many layers and matrices it is of.
TEST_F(BankFiles, OfAnotherNumberOfMatricesAreRefused) {
  TinyFolder folder = BankFolder();
  for (int i = 0; i < 4; ++i) {
    folder.tensors.erase(
        absl::StrCat("transformer.h.", i, ".mlp.experts.1.up.weight"));
  }
  std::string error = ErrorOf(folder, BanksTogether());
  EXPECT_THAT(
      error,
      HasSubstr(": transformer.h.0.mlp.experts.1.up.weight: is missing; the "
                "model needs [128, 32]; likewise 3 more of "
                "transformer.h.{i}.mlp.experts.{e}.up.weight"));
  EXPECT_FALSE(absl::StrContains(error, "\n")) << error;

  folder = BankFolder();
  folder.Add("transformer.h.1.mlp.experts.3.up.bias", {128});
  folder.Add("transformer.h.1.mlp.experts.4.up.bias", {128});
  error = ErrorOf(folder, BanksTogether());
  EXPECT_THAT(error,
              HasSubstr(": transformer.h.1.mlp.experts.3.up.bias: the model of "
                        "config.json has no such tensor; likewise 1 more of "
                        "transformer.h.{i}.mlp.experts.{e}.up.bias"));
  EXPECT_FALSE(absl::StrContains(error, "\n")) << error;

  folder = BankFolder(/*whole=*/true);
  folder.tensors.erase("transformer.h.2.mlp.up");
  folder.Add("transformer.h.2.mlp.up", {kBank + 1, 32, 128});
  error = ErrorOf(folder, BanksTogetherWhole());
  EXPECT_THAT(error,
              HasSubstr("transformer.h.2.mlp.up: is [4, 32, 128], but the "
                        "model's is [3, 32, 128]"));
  EXPECT_FALSE(absl::StrContains(error, "\n")) << error;
}

}  // namespace
}  // namespace delink::testing::bank_test
