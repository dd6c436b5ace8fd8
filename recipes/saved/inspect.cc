#include "recipes/saved/inspect.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "framework/comm/self_communicator.h"
#include "framework/sharing/resolve.h"
#include "framework/step/plan/memory.h"
#include "recipes/record/progress.h"
#include "recipes/saved/saved_model.h"

namespace delink {
namespace {

using Json = nlohmann::ordered_json;

std::vector<PartSharing> SharingOf(const SavedModel& saved) {
  std::vector<PartSharing> all;
  for (const std::string& part : PartsOf(saved.registry(), saved.blocks())) {
    std::set<int> users;
    for (const ParamDecl& decl : saved.registry().decls) {
      const bool block = decl.layer >= 1 && decl.layer <= saved.blocks();
      if (!block || decl.part != part) continue;
      if (saved.sharing().Visits(decl.layer - 1)) users.insert(decl.layer - 1);
    }
    if (users.empty()) continue;
    std::map<int, std::vector<int>> sets;  // by leader
    for (const int block : users) {
      sets[saved.sharing().Leader(part, block)].push_back(block);
    }
    PartSharing& sharing = all.emplace_back();
    sharing.part = part;
    for (auto& [leader, blocks] : sets) {
      sharing.sets.push_back(std::move(blocks));
    }
  }
  return all;
}

absl::StatusOr<int64_t> FolderBytes(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListDirectory(path));
  int64_t bytes = 0;
  for (const std::string& name : names) {
    DELINK_ASSIGN_OR_RETURN(const int64_t size, FileSize(JoinPath(path, name)));
    bytes += size;
  }
  return bytes;
}

// "0-3", "0,4,8".
std::string BlockRange(const std::vector<int>& blocks) {
  const bool run =
      blocks.back() - blocks.front() + 1 == static_cast<int>(blocks.size());
  if (run && blocks.size() > 1) {
    return absl::StrCat(blocks.front(), "-", blocks.back());
  }
  return absl::StrJoin(blocks, ",");
}

// "0", "0 and 4", "0, 2 and 4", "0-3".
std::string ListInWords(const std::vector<int>& blocks) {
  if (blocks.empty()) return "none";
  const std::string range = BlockRange(blocks);
  if (blocks.size() == 1 || range.find('-') != range.npos) return range;
  return absl::StrCat(absl::StrJoin(blocks.begin(), blocks.end() - 1, ", "),
                      " and ", blocks.back());
}

std::string SourceText(const SourceCount& source) {
  std::string text = absl::StrFormat(
      "  %s: %d samples, %s tokens, %.2f epochs", source.name, source.samples,
      FormatCount(static_cast<double>(source.tokens)), source.epochs);
  if (source.share == 0) {
    absl::StrAppend(&text, "; not in the current blend");
  } else if (source.share < 1) {
    absl::StrAppend(&text, absl::StrFormat("; %.1f%% of the current blend",
                                           100 * source.share));
  }
  return text + "\n";
}

// The block of "blocks/3/attn/qkv/weight", and the rest of the name; none where
// it is not in a block.
std::optional<std::pair<int, std::string>> InBlock(absl::string_view name) {
  int block = 0;
  if (!absl::ConsumePrefix(&name, "blocks/")) return std::nullopt;
  const size_t end = name.find('/');
  if (end == name.npos || !absl::SimpleAtoi(name.substr(0, end), &block)) {
    return std::nullopt;
  }
  return std::pair(block, std::string(name.substr(end + 1)));
}

// Derives from the tensors what the model's code would say. Parts of blocks are
// not on disk, so each tensor is a part of its own.
void FillFromTensors(Inspection& i) {
  std::map<std::string, std::map<int, std::vector<int>>> sets;  // by leader
  std::set<int> visited;
  uint64_t unique = 0, seen = 0;
  for (const TensorInfo& tensor : i.tensors) {
    uint64_t elements = 1;  // which wrap, whatever a file claims
    for (const int64_t d : tensor.shape) elements *= static_cast<uint64_t>(d);
    const auto at = InBlock(tensor.name);
    const auto leader = InBlock(tensor.link);
    if (!tensor.link.empty() && !(at && leader)) {
      i.permanent.push_back(tensor);
      continue;
    }
    seen += elements;
    if (tensor.link.empty()) unique += elements;
    if (!at) continue;
    visited.insert(at->first);
    sets[at->second][(leader ? leader : at)->first].push_back(at->first);
  }
  i.unique_parameters = static_cast<int64_t>(unique);
  i.virtual_parameters = i.active_parameters = static_cast<int64_t>(seen);
  i.visited.assign(visited.begin(), visited.end());
  for (auto& [name, of] : sets) {
    PartSharing& sharing = i.sharing.emplace_back(PartSharing{.part = name});
    for (auto& [leader, blocks] : of) {
      std::sort(blocks.begin(), blocks.end());
      sharing.sets.push_back(std::move(blocks));
    }
  }
}

bool Knows(const ModelList& models, const std::string& kind) {
  const std::vector<ModelKind> kinds = KindsOf(models);
  return std::any_of(kinds.begin(), kinds.end(),
                     [&](const ModelKind& k) { return k.name == kind; });
}

std::string KindText(const ParamSpec& spec) {
  if (spec.is_vector()) return spec.vectors ? "vectors" : "vector";
  return spec.shape.rank() > 2 ? "matrices" : "matrix";
}

Json RoutersJson(const Routers& routers) {
  Json list = Json::array();
  for (const RouterOfLayer& router : routers.layers) {
    Json& entry = list.emplace_back(Json{{"layer", router.layer}});
    if (router.bias.has_value()) {
      entry["bias"] = {router.bias->first, router.bias->second};
    }
    if (router.load.empty()) continue;
    entry["load"] = router.load;
    entry["max_violation"] = router.max_violation();
  }
  return list;
}

absl::Status FillFromModel(const ModelList& models, Inspection& i) {
  SelfCommunicator comm;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> saved,
                          SavedModel::OpenStep(comm, i.path, models));
  // On this device the store lays out and allocates nothing.
  const std::unique_ptr<Device> meta = NewMetaDevice();
  DELINK_ASSIGN_OR_RETURN(
      const std::unique_ptr<ParamStore> store,
      ParamStore::Create(*meta,
                         Layout::Create(saved->registry(), saved->blocks(),
                                        saved->sharing(), {}),
                         0, {.gradients = false, .states = {}}));
  i.unique_parameters = store->unique_parameters();
  i.virtual_parameters = store->virtual_parameters();
  i.active_parameters = store->active_parameters();
  i.blocks = saved->blocks();
  i.visited = saved->sharing().VisitedOf(saved->blocks());
  i.sharing = SharingOf(*saved);
  for (const LogicalTensor& tensor : store->layout().tensors()) {
    i.kinds[tensor.name] = KindText(store->layout().SpecOf(tensor));
    if (!tensor.permanent) continue;
    i.permanent.push_back({.name = tensor.name, .link = tensor.link});
  }
  DELINK_ASSIGN_OR_RETURN(i.routers,
                          ReadRouters(i.path, i.header.step, store->layout()));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Inspection> InspectCheckpoint(const std::string& checkpoint,
                                             const ModelList& models) {
  SelfCommunicator comm;
  Inspection i;
  DELINK_ASSIGN_OR_RETURN(i.path, FindCheckpoint(comm, checkpoint));
  DELINK_ASSIGN_OR_RETURN(i.header, ReadHeader(i.path));
  DELINK_ASSIGN_OR_RETURN(i.run, SavedRun::From(i.path, i.header));
  DELINK_ASSIGN_OR_RETURN(i.bytes, FolderBytes(i.path));
  DELINK_ASSIGN_OR_RETURN(i.tensors, ListTensors(i.path));
  i.known = Knows(models, i.header.model);
  if (i.known) {
    DELINK_RETURN_IF_ERROR(FillFromModel(models, i));
  } else {
    FillFromTensors(i);
  }
  return i;
}

std::string InWords(const PartSharing& sharing) {
  std::vector<std::string> shared;
  int alone = 0;
  for (const std::vector<int>& set : sharing.sets) {
    if (set.size() > 1) {
      shared.push_back(BlockRange(set));
    } else {
      ++alone;
    }
  }
  if (shared.empty()) return "nothing is shared";
  // Commas separate blocks of a set that has gaps.
  const bool gaps =
      std::any_of(shared.begin(), shared.end(), [](const std::string& text) {
        return text.find(',') != std::string::npos;
      });
  std::string text = absl::StrCat(
      "blocks ", absl::StrJoin(shared, gaps ? "; " : ", "), " share");
  if (alone > 0) absl::StrAppend(&text, "; ", alone, " alone");
  return text;
}

std::string DepthInWords(const Inspection& i) {
  const auto depth = static_cast<int64_t>(i.visited.size());
  const std::string blocks = ListInWords(i.visited);
  if (i.blocks == 0) return absl::StrCat(depth, " block(s): ", blocks);
  if (depth == i.blocks) return absl::StrCat("all ", depth, " block(s)");
  return absl::StrCat(depth, " of ", i.blocks, " blocks visited: ", blocks);
}

std::string ToText(const Inspection& i) {
  const CheckpointHeader& h = i.header;
  std::string text = absl::StrFormat(
      "%s\n"
      "step        %d (%s tokens, %s%s)\n"
      "stage       %s (stage[%d])\n"
      "model       %s%s, vocabulary %d\n"
      "depth       %s\n"
      "optimizer   %s\n"
      "parameters  %s unique, %s virtual%s\n"
      "on disk     %s, format %d, verified\n",
      i.path, h.step, FormatCount(static_cast<double>(i.run.tokens)),
      std::isnan(i.run.flops) ? "" : FormatFlops(i.run.flops) + ", ",
      FormatSeconds(i.run.seconds), i.run.stage, i.run.stage_index, h.model,
      i.known ? "" : " (a kind that this program does not have)", h.vocab,
      DepthInWords(i), h.optimizer,
      FormatCount(static_cast<double>(i.unique_parameters)),
      FormatCount(static_cast<double>(i.virtual_parameters)),
      i.active_parameters == i.virtual_parameters
          ? ""
          : absl::StrCat(", ",
                         FormatCount(static_cast<double>(i.active_parameters)),
                         " active"),
      FormatBytes(i.bytes), h.format);
  if (!h.program.empty()) {
    absl::StrAppend(&text, "written by  ", h.program, "\n");
  }
  if (!i.run.sources.empty()) absl::StrAppend(&text, "sources\n");
  for (const SourceCount& source : i.run.sources) {
    absl::StrAppend(&text, SourceText(source));
  }
  absl::StrAppend(&text, "sharing\n");
  for (const PartSharing& sharing : i.sharing) {
    absl::StrAppend(&text, "  ", sharing.part, ": ", InWords(sharing), "\n");
  }
  for (const TensorInfo& tensor : i.permanent) {
    absl::StrAppend(&text, "  ", tensor.name, " is ", tensor.link,
                    " (always tied)\n");
  }
  absl::StrAppend(&text, ToText(i.routers));
  size_t width = 0;
  for (const TensorInfo& tensor : i.tensors) {
    width = std::max(width, tensor.name.size());
  }
  absl::StrAppend(&text, "tensors\n");
  for (const TensorInfo& tensor : i.tensors) {
    absl::StrAppend(&text,
                    absl::StrFormat("  %-*s  %s", static_cast<int>(width),
                                    tensor.name, ShapeText(tensor.shape)));
    const auto kind = i.kinds.find(tensor.name);
    if (kind != i.kinds.end() && absl::EndsWith(kind->second, "s")) {
      absl::StrAppend(&text, " (", tensor.shape[0], " ", kind->second, ")");
    }
    if (!tensor.link.empty()) absl::StrAppend(&text, " -> ", tensor.link);
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string ToJson(const Inspection& i) {
  const CheckpointHeader& h = i.header;
  Json sharing = Json::object();
  for (const PartSharing& part : i.sharing) sharing[part.part] = part.sets;
  Json sources = Json::array();
  for (const SourceCount& source : i.run.sources) {
    sources.push_back({{"name", source.name},
                       {"corpus", source.corpus},
                       {"samples", source.samples},
                       {"tokens", source.tokens},
                       {"epochs", source.epochs},
                       {"share", source.share}});
  }
  Json load_step;
  if (i.routers.step > 0) load_step = i.routers.step;
  Json tensors = Json::array();
  for (const TensorInfo& tensor : i.tensors) {
    Json entry{{"name", tensor.name}, {"shape", tensor.shape}};
    const auto kind = i.kinds.find(tensor.name);
    if (kind != i.kinds.end()) entry["kind"] = kind->second;
    if (!tensor.link.empty()) entry["link"] = tensor.link;
    tensors.push_back(std::move(entry));
  }
  const Json all{{"path", i.path},
                 {"format", h.format},
                 {"step", h.step},
                 {"tokens", i.run.tokens},
                 {"samples", i.run.samples},
                 {"stage", i.run.stage},
                 {"stage_index", i.run.stage_index},
                 {"model", h.model},
                 {"optimizer", h.optimizer},
                 {"seed", h.seed},
                 {"vocab", h.vocab},
                 {"corpus", i.run.corpus},
                 {"sources", std::move(sources)},
                 {"seconds", i.run.seconds},
                 {"flops", i.run.flops},
                 {"program", h.program},
                 {"bytes", i.bytes},
                 {"blocks", i.blocks > 0 ? Json(i.blocks) : Json()},
                 {"depth", i.visited.size()},
                 {"visited", i.visited},
                 {"unique_parameters", i.unique_parameters},
                 {"virtual_parameters", i.virtual_parameters},
                 {"active_parameters", i.active_parameters},
                 {"sharing", std::move(sharing)},
                 {"load_step", std::move(load_step)},
                 {"routers", RoutersJson(i.routers)},
                 {"tensors", std::move(tensors)}};
  return JsonText(all) + "\n";
}

}  // namespace delink
