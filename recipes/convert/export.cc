#include "recipes/convert/export.h"

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/huggingface_files.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/base/at.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/streamed_values.h"
#include "framework/comm/self_communicator.h"
#include "framework/safetensors/writer.h"
#include "recipes/convert/export_plan.h"
#include "recipes/convert/movement.h"
#include "recipes/convert/open_saved.h"
#include "recipes/convert/output_folder.h"
#include "recipes/convert/text_table.h"
#include "recipes/huggingface/model_folder.h"
#include "recipes/record/environment.h"
#include "recipes/saved/saved_model.h"

namespace delink {
namespace {

using nlohmann::ordered_json;
using safetensors::Type;
using safetensors::Writer;

// Names of types in config.json.
std::string_view DtypeName(Type dtype) {
  switch (dtype) {
    case Type::kBF16:
      return "bfloat16";
    case Type::kF16:
      return "float16";
    default:
      return "float32";
  }
}

using SmallFiles = std::map<std::string, std::string>;  // by name

// The imported file, if there is one: its ids fit the tokenizer, which was
// imported too. Else a new one with the ids only.
absl::StatusOr<std::string> GenerationConfig(
    const SavedModel& saved, const HuggingFaceTokenizer& tokenizer) {
  const std::string kept =
      JoinPath(saved.path(), huggingface::kGenerationConfig);
  if (PathExists(kept)) return ReadFile(kept);
  ordered_json generation;
  generation["_from_model_config"] = true;
  if (tokenizer.begin >= 0) generation["bos_token_id"] = tokenizer.begin;
  if (tokenizer.end >= 0) generation["eos_token_id"] = tokenizer.end;
  return JsonText(generation, 2) + "\n";
}

// The tokenizer's, if there is one, and the configs.
absl::StatusOr<SmallFiles> MakeSmallFiles(const SavedModel& saved,
                                          const ExportPlan& exported,
                                          Type dtype,
                                          std::vector<std::string>& notes) {
  HuggingFaceTokenizer tokenizer;
  const std::string path = JoinPath(saved.path(), "tokenizer");
  if (PathExists(path)) {
    DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> loaded,
                            LoadTokenizerFile(path));
    tokenizer = ForHuggingFace(*loaded);
  }
  if (tokenizer.files.empty()) {
    notes.push_back(
        "the checkpoint has only token ids and no tokenizer, so the exported "
        "model has none");
    // If a model was imported without a tokenizer and the id that ends
    // documents is the last one, IdsTokenizer may have assumed it.
    const int64_t last = saved.recipe().model->vocab - 1;
    if (!saved.run().imported.empty() && tokenizer.end == last) {
      tokenizer.end = -1;
    }
  }
  // `transformers` gives missing keys the values of the family's first model.
  const auto id = [](int32_t token) {
    return token < 0 ? ordered_json() : ordered_json(token);
  };
  ordered_json config;
  config["architectures"] = std::vector{exported.family->architecture};
  config["model_type"] = exported.family->model_type;
  config.update(ParseOrderedJson(exported.config));
  config["bos_token_id"] = id(tokenizer.begin);
  config["eos_token_id"] = id(tokenizer.end);
  config["torch_dtype"] = std::string(DtypeName(dtype));
  DELINK_ASSIGN_OR_RETURN(const std::string generation,
                          GenerationConfig(saved, tokenizer));
  SmallFiles files = std::move(tokenizer.files);
  files["config.json"] = JsonText(config, 2) + "\n";
  files[huggingface::kGenerationConfig] = generation;
  return files;
}

// The mapping of values, a line each. Another program's table, or a changed
// one, may map the same names and shapes to other tensors.
std::string TableOf(const ExportPlan& exported) {
  std::string table = absl::StrCat(exported.pairs, "\n");
  for (const LogicalTensor* const tensor : exported.moves) {
    for (const ExportTarget& to : exported.targets.at(tensor->name)) {
      const safetensors::PlannedTensor& theirs =
          At(exported.tensors, to.tensor);
      absl::StrAppend(&table, tensor->name, " ", to.piece.rect.row, " ",
                      to.piece.rect.rows, " ", to.piece.transposed, " ",
                      to.piece.rotated, " ", theirs.name, " ",
                      ShapeText(theirs.shape), " ",
                      std::string(safetensors::ToString(theirs.type)), "\n");
    }
  }
  return table;
}

// The origin of OUT.tmp.
absl::StatusOr<std::string> OriginOf(const SavedModel& saved,
                                     const ExportOptions& options,
                                     const ExportPlan& exported) {
  DELINK_ASSIGN_OR_RETURN(const std::string sums,
                          ReadFile(JoinPath(saved.path(), kSumsName)));
  const ordered_json origin{
      {"program", BuildLine()},
      {"step", saved.header().step},
      {"checkpoint", absl::StrCat("sha256:", Sha256Hex(sums))},
      {"dtype", std::string(DtypeName(options.dtype))},
      {"table", absl::StrCat("sha256:", Sha256Hex(TableOf(exported)))},
      {"shard_bytes", options.shard_bytes}};
  return JsonText(origin, 2) + "\n";
}

// A checkpoint to export. Its writers' files are `verified`, or will be while
// they are read.
struct Source {
  const SavedModel& saved;
  const Layout& layout;
  bool verified;
};

// The safetensors; their digests.
absl::StatusOr<std::vector<FileSum>> WriteValues(const std::string& folder,
                                                 const ExportOptions& options,
                                                 const Source& source,
                                                 const ExportPlan& exported,
                                                 safetensors::Plan plan) {
  DELINK_ASSIGN_OR_RETURN(Writer writer,
                          Writer::Create(folder, std::move(plan)));
  DELINK_ASSIGN_OR_RETURN(
      const std::unique_ptr<StreamedValues> values,
      StreamedValues::Open(source.saved.path(), source.layout,
                           Movement::Missing(exported, writer),
                           source.verified));
  Movement movement(*values, exported, writer);
  DELINK_RETURN_IF_ERROR(movement.Go(options.threads, options.progress));
  DELINK_RETURN_IF_ERROR(values->Finish(options.threads));
  return writer.Finish();
}

// All files; their digests.
absl::StatusOr<std::vector<FileSum>> WriteAll(const std::string& folder,
                                              const ExportOptions& options,
                                              const Source& source,
                                              const ExportPlan& exported,
                                              safetensors::Plan plan,
                                              const SmallFiles& files) {
  DELINK_ASSIGN_OR_RETURN(
      const std::vector<FileSum> sums,
      WriteValues(folder, options, source, exported, std::move(plan)));
  std::vector<FileSum> all;
  for (const auto& [name, text] : files) {
    DELINK_RETURN_IF_ERROR(WriteFile(JoinPath(folder, name), text));
    DELINK_ASSIGN_OR_RETURN(FileSum sum, SumFile(folder, name));
    all.push_back(std::move(sum));
  }
  DELINK_ASSIGN_OR_RETURN(FileSum origin,
                          SumFile(folder, OutputFolder::kOrigin));
  all.push_back(std::move(origin));
  all.insert(all.end(), sums.begin(), sums.end());
  DELINK_RETURN_IF_ERROR(WriteSums(folder, all));
  return all;
}

ExportReport ReportOf(const SavedModel& saved, const ExportOptions& options,
                      const ExportPlan& exported,
                      const safetensors::Plan& plan) {
  ExportReport report{.from = saved.path(),
                      .to = options.out,
                      .model_type = exported.family->model_type,
                      .architecture = exported.family->architecture,
                      .dtype = options.dtype,
                      .bytes = plan.total_bytes};
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const safetensors::Plan::Place& place = plan.places[i];
    report.tensors.push_back({.theirs = plan.tensors[i].name,
                              .shape = plan.tensors[i].shape,
                              .bytes = place.end - place.begin,
                              .file = plan.files[place.file].name,
                              .ours = exported.ours[i]});
  }
  for (const LogicalTensor* const tensor : exported.moves) {
    report.parameters += tensor->shape.elements();
  }
  return report;
}

absl::StatusOr<ExportReport> Export(const SavedModel& saved, bool verified,
                                    const ExportOptions& options,
                                    const ModelList& models) {
  // Nothing is shared, so each layer asks for its own tensors. A link of the
  // checkpoint is read as its target.
  const Layout layout =
      Layout::Create(saved.registry(), saved.blocks(),
                     {.visited = saved.sharing().visited}, {});
  DELINK_ASSIGN_OR_RETURN(const ExportPlan exported,
                          PlanExport(saved, layout, models, options.dtype));
  DELINK_ASSIGN_OR_RETURN(
      safetensors::Plan plan,
      safetensors::PlanFiles(exported.tensors, options.shard_bytes));
  ExportReport report = ReportOf(saved, options, exported, plan);
  DELINK_ASSIGN_OR_RETURN(
      const SmallFiles files,
      MakeSmallFiles(saved, exported, options.dtype, report.notes));
  if (options.dry_run) return report;

  DELINK_ASSIGN_OR_RETURN(const std::string origin,
                          OriginOf(saved, options, exported));
  DELINK_ASSIGN_OR_RETURN(OutputFolder folder,
                          OutputFolder::Begin(options.out, origin));
  absl::StatusOr<std::vector<FileSum>> sums =
      WriteAll(folder.path(), options,
               {.saved = saved, .layout = layout, .verified = verified},
               exported, std::move(plan), files);
  absl::Status status = sums.status();
  if (status.ok()) status = folder.Publish();
  if (!status.ok()) {
    folder.Discard();
    return status;
  }
  report.written = true;
  report.files = *std::move(sums);
  return report;
}

// For a checkpoint that is verified while it is read. Any error other than of
// writing may be caused by damage.
absl::StatusOr<ExportReport> ExportUnread(const ExportOptions& options,
                                          const ModelList& models) {
  DELINK_ASSIGN_OR_RETURN(const std::string path,
                          FindUnreadCheckpoint(options.in));
  SelfCommunicator comm;
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> saved,
                          SavedModel::OpenStep(comm, path, models));
  return Export(*saved, false, options, models);
}

}  // namespace

absl::StatusOr<ExportReport> ExportHuggingFace(const ExportOptions& options,
                                               const ModelList& models) {
  DELINK_RETURN_IF_ERROR(CheckIsNew(options.out, "folder"));
  if (!options.dry_run) {
    absl::StatusOr<ExportReport> report = ExportUnread(options, models);
    if (report.ok() || absl::IsResourceExhausted(report.status()) ||
        absl::IsAlreadyExists(report.status())) {
      return report;
    }
  }
  // Finds what is damaged, or another checkpoint that is intact.
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> saved,
                          OpenSaved(options.in, models, options.threads));
  return Export(*saved, true, options, models);
}

std::string ToString(const ExportReport& r) {
  std::vector<std::vector<std::string>> rows;
  for (const ExportReport::Tensor& tensor : r.tensors) {
    rows.push_back({tensor.theirs, ShapeText(tensor.shape),
                    std::string(ToString(r.dtype)), absl::StrCat(tensor.bytes),
                    tensor.file, tensor.ours});
  }
  return ReportText(r,
                    absl::StrCat(r.architecture, " (", r.model_type, "), ",
                                 std::string(ToString(r.dtype))),
                    rows);
}

}  // namespace delink
