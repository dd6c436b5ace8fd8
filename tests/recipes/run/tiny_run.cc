#include "tests/recipes/run/tiny_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/corpus/build.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/rng.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/thread_communicator.h"
#include "framework/hdf5/hdf5.h"
#include "recipes/record/run_folder.h"
#include "recipes/run/pretrain.h"
#include "recipes/run/setup/setup.h"
#include "recipes/run/setup/train_options.h"
#include "tests/testing/source_path.h"

namespace delink::testing {
namespace {

// Words that follow each other with some regularity, so that there is
// something to learn.
std::string MakeText() {
  const char* const words[] = {"the ",   "slab ",  "of ",  "a ",
                               "layer ", "holds ", "its ", "weights ",
                               "and ",   "moves. "};
  std::string text;
  uint64_t state = 0;
  for (uint64_t i = 0; i < 6000; ++i) {
    const auto random = Philox(KeyFromSeed(7), i, 0)[0];
    state = random % 4 == 0 ? random / 4 % 10 : (state * 3 + 1) % 10;
    text += words[state];
  }
  return text;
}

absl::Status RunRank(const RunRequest& request, const std::string& recipe,
                     const std::string& out,
                     const std::vector<std::string>& sets, Communicator& comm) {
  const int per_node = request.ranks_per_node;
  const int node = per_node > 0 ? comm.rank() / per_node : 0;
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> all,
                          comm.Split(0, comm.rank()));
  DELINK_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> local,
                          comm.Split(node, comm.rank()));
  World world(std::move(all), std::move(local), "here");
  const TrainOptions options{.recipe = recipe,
                             .sets = sets,
                             .out = out,
                             .resume = request.resume,
                             .resume_from = request.resume_from,
                             .overwrite = request.overwrite,
                             .init = request.init,
                             .until_step = request.until_step,
                             .threads = request.lane_threads ? 2 : 1,
                             .trace = request.trace,
                             .trace_steps = request.trace_steps};
  const ModelList models = request.models();
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<RunSetup> run,
                          RunSetup::Create(options, models, world));
  if (request.instead != nullptr) return request.instead(*run);
  return Train(*run, options.until_step).status();
}

// Of the source tree; a bundle has them elsewhere.
std::string RecipePath(const std::string& name) {
  const char* const folder = std::getenv("DELINK_RECIPES");
  return JoinPath(folder != nullptr ? folder : SourcePath("recipes"),
                  name + ".toml");
}

void ReadTree(const hdf5::File& file, const std::string& group,
              Tensors* tensors) {
  const std::vector<hdf5::Child> children = *file.List(group);
  for (const hdf5::Child& child : children) {
    const std::string path = group + "/" + child.name;
    const absl::StatusOr<hdf5::Dataset> dataset =
        child.kind == hdf5::ChildKind::kGroup ? absl::NotFoundError("a group")
                                              : file.OpenDataset(path);
    if (dataset.ok()) {
      std::vector<float>& values = (*tensors)[path];
      values.resize(static_cast<size_t>(dataset->size()));
      const absl::Status read =
          dataset->Read(0, dataset->size(), values.data());
      DELINK_CHECK(read.ok()) << std::string(read.message());
    } else {
      ReadTree(file, path, tensors);
    }
  }
}

}  // namespace

std::string DocumentLines() {
  const char* const words[] = {"slab ", "of ", "layers ", "a ", "link "};
  std::string lines;
  for (uint64_t line = 0; line < 1500; ++line) {
    const auto random = Philox(KeyFromSeed(3), line, 0);
    lines += "{\"text\": \"";
    uint32_t word = random[0];
    for (uint32_t i = 0; i < random[1] % 12; ++i) {
      lines += words[word % 5];
      word = word * 3 + 1;
    }
    lines += "\"}\n";
  }
  return lines;
}

TinyRuns::TinyRuns(const std::string& recipe, const std::string& text,
                   const std::string& file)
    : recipe_(RecipePath(recipe)) {
  data = {absl::StrCat("data.train=\"", dir_ / "corpus/train", "\"")};
  SetLogLevel(LogLevel::kError);
  DELINK_CHECK(WriteFile(dir_ / file, text.empty() ? MakeText() : text).ok());
  const absl::Status built =
      BuildCorpus(
          {.inputs = {dir_ / file}, .out = dir_ / "corpus", .validation = 0.1})
          .status();
  DELINK_CHECK(built.ok()) << std::string(built.message());
}

std::string TinyRuns::AddCorpus(const std::string& name,
                                const std::string& text) const {
  DELINK_CHECK(WriteFile(dir_ / (name + ".txt"), text).ok());
  const absl::Status built = BuildCorpus({.inputs = {dir_ / (name + ".txt")},
                                          .out = dir_ / name,
                                          .validation = 0.1})
                                 .status();
  DELINK_CHECK(built.ok()) << std::string(built.message());
  return dir_ / name;
}

absl::Status TinyRuns::Run(const RunRequest& request) const {
  std::vector<std::string> all = request.data.empty() ? data : request.data;
  all.emplace_back("run.keep=0");
  all.insert(all.end(), sets.begin(), sets.end());
  all.insert(all.end(), request.sets.begin(), request.sets.end());
  return RunRanks(request.ranks, [&](Communicator& comm) {
    std::vector<std::string> mine = all;
    if (comm.rank() + 1 == comm.size()) {
      mine.insert(mine.end(), request.last_rank_sets.begin(),
                  request.last_rank_sets.end());
    }
    return RunRank(request, recipe_, Folder(request.out), mine, comm);
  });
}

void TinyRuns::Go(const RunRequest& request) const {
  const absl::Status status = Run(request);
  ASSERT_TRUE(status.ok()) << std::string(status.message());
}

std::vector<nlohmann::json> TinyRuns::Rows(const std::string& out) const {
  std::ifstream in(RunFolder::Metrics(Folder(out)));
  std::vector<nlohmann::json> rows;
  std::string line;
  while (std::getline(in, line)) rows.push_back(nlohmann::json::parse(line));
  return rows;
}

std::vector<Step> TinyRuns::Steps(const std::string& out) const {
  std::vector<Step> steps;
  for (const nlohmann::json& row : Rows(out)) {
    if (!row.contains("loss")) continue;
    steps.push_back({.step = row["step"],
                     .tokens = row["tokens"],
                     .stage = row["stage"],
                     .loss = row["loss"],
                     .lr = row["lr"],
                     .grad_norm = row["grad_norm"]});
  }
  return steps;
}

std::vector<Switch> TinyRuns::Switches(const std::string& out) const {
  std::vector<Switch> switches;
  for (const nlohmann::json& row : Rows(out)) {
    if (!row.contains("event") || row["event"] != "delink") continue;
    switches.push_back({.step = row["step"],
                        .loss_before = row["loss_before"],
                        .loss_after = row["loss_after"]});
  }
  return switches;
}

std::vector<Probe> TinyRuns::Probes(const std::string& out) const {
  std::vector<Probe> probes;
  for (const nlohmann::json& row : Rows(out)) {
    if (!row.contains("event") || row["event"] != "agreement") continue;
    probes.push_back({.step = row["step"],
                      .agreement = row["agreement"],
                      .rho = row["rho"]});
  }
  return probes;
}

std::vector<Norms> TinyRuns::NormRows(const std::string& out) const {
  std::vector<Norms> all;
  for (const nlohmann::json& row : Rows(out)) {
    if (!row.contains("norms")) continue;
    const nlohmann::json& norms = row["norms"];
    all.push_back({.step = row["step"],
                   .layers = norms["layers"],
                   .gradient = norms["gradient"],
                   .weight = norms["weight"]});
  }
  return all;
}

std::string TinyRuns::Checkpoint(const std::string& out, int64_t step) const {
  return absl::StrFormat("%s/step-%08d", RunFolder::Checkpoints(Folder(out)),
                         step);
}

std::vector<nlohmann::json> TinyRuns::RowsOf(
    const std::string& out, const std::vector<std::string>& keys) const {
  std::vector<nlohmann::json> rows;
  for (const nlohmann::json& row : Rows(out)) {
    nlohmann::json& some = rows.emplace_back();
    for (const std::string& key : keys) {
      if (row.contains(key)) some[key] = row[key];
    }
  }
  return rows;
}

Tensors TinyRuns::Load(const std::string& out, int64_t step) const {
  absl::StatusOr<hdf5::File> file =
      hdf5::File::OpenReadOnly(Checkpoint(out, step) + "/index.h5", "rank");
  DELINK_CHECK(file.ok()) << std::string(file.status().message());
  // What is open the library need not open anew for each dataset.
  std::vector<absl::StatusOr<hdf5::File>> parts;
  const std::vector<std::string> names = *ListDirectory(Checkpoint(out, step));
  for (const std::string& name : names) {
    if (!name.starts_with("rank-")) continue;
    parts.push_back(
        hdf5::File::OpenReadOnly(JoinPath(Checkpoint(out, step), name)));
  }
  Tensors tensors;
  ReadTree(*file, "/model", &tensors);
  ReadTree(*file, "/optimizer", &tensors);
  return tensors;
}

void TinyRuns::ExpectSameBits(const std::string& a, const std::string& b,
                              int64_t step) const {
  EXPECT_EQ(FirstDifference(Steps(a), Steps(b)), "");
  EXPECT_EQ(FirstDifference(Load(a, step), Load(b, step)), "");
}

double LossDifference(const std::vector<Step>& a, const std::vector<Step>& b) {
  DELINK_CHECK_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    DELINK_CHECK_EQ(a[i].step, b[i].step);
    largest = std::max(largest,
                       std::abs(a[i].loss - b[i].loss) / std::abs(a[i].loss));
  }
  return largest;
}

double WeightDifference(const Tensors& a, const Tensors& b, double quantile) {
  std::vector<double> differences;
  for (const auto& [name, values] : a) {
    if (name.rfind("/model", 0) != 0) continue;
    const std::vector<float>& other = b.at(name);
    DELINK_CHECK_EQ(values.size(), other.size());
    for (size_t i = 0; i < values.size(); ++i) {
      differences.push_back(std::abs(double{values[i]} - other[i]));
    }
  }
  std::sort(differences.begin(), differences.end());
  const auto last = static_cast<double>(differences.size() - 1);
  return differences[static_cast<size_t>(quantile * last)];
}

std::string FirstDifference(const std::vector<Step>& a,
                            const std::vector<Step>& b) {
  if (a.size() != b.size()) return "different steps";
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    return absl::StrFormat("step %d: loss %.17g, norm %.17g; %.17g, %.17g",
                           a[i].step, a[i].loss, a[i].grad_norm, b[i].loss,
                           b[i].grad_norm);
  }
  return "";
}

std::string FirstDifference(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return "different tensors";
  for (const auto& [name, values] : a) {
    const auto other = b.find(name);
    if (other == b.end()) return name + " is in one of them only";
    if (values != other->second) return name + " differs";
  }
  return "";
}

}  // namespace delink::testing
