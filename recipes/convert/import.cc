#include "recipes/convert/import.h"

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/base/file.h"
#include "framework/base/format_bytes.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/self_communicator.h"
#include "recipes/convert/output_folder.h"
#include "recipes/convert/text_table.h"
#include "recipes/huggingface/as_recipe.h"
#include "recipes/huggingface/folder_values.h"
#include "recipes/huggingface/model_folder.h"
#include "recipes/record/environment.h"
#include "recipes/record/progress.h"
#include "recipes/run/saved_run.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

using huggingface::FolderValues;
using huggingface::ModelFolder;

// Tells how far a move has come.
class CountedValues final : public ValueSource {
 public:
  CountedValues(ValueSource& values, int64_t all,
                const std::function<void(int64_t, int64_t)>& progress)
      : values_(values), all_(all), progress_(progress) {}

  DType type(const Field& field) const override { return values_.type(field); }
  Descriptor Has(const Field& field,
                 const LogicalTensor& tensor) const override {
    return values_.Has(field, tensor);
  }
  Descriptor Owners(const Field& field,
                    const LogicalTensor& tensor) const override {
    return values_.Owners(field, tensor);
  }
  absl::Status Read(const Field& field, const LogicalTensor& tensor,
                    const Extent& extent, void* values) override {
    DELINK_RETURN_IF_ERROR(values_.Read(field, tensor, extent, values));
    done_ += extent.rect.elements();
    if (progress_) progress_(done_, all_);
    return absl::OkStatus();
  }

 private:
  ValueSource& values_;
  const int64_t all_;
  int64_t done_ = 0;
  const std::function<void(int64_t, int64_t)>& progress_;
};

absl::Status CheckOut(const std::string& out) {
  if (!PathExists(out)) return absl::OkStatus();
  return absl::AlreadyExistsError(
      absl::StrCat(out, ": is there already; name a folder that is not"));
}

// The folder's tokenizer; that of ids where there is none that can be used, and
// a note that says so.
std::unique_ptr<Tokenizer> TokenizerOf(const ModelFolder& folder,
                                       ImportReport& report) {
  const int64_t vocab = folder.config->vocab;
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer =
      LoadTokenizerFolder(folder.path);
  if (tokenizer.ok() && (*tokenizer)->vocab_size() <= vocab) {
    return *std::move(tokenizer);
  }
  const std::string why =
      tokenizer.ok() ? absl::StrCat(folder.path, ": its tokenizer has ",
                                    (*tokenizer)->vocab_size(),
                                    " tokens, the model ", vocab)
                     : std::string(tokenizer.status().message());
  report.notes.push_back(absl::StrCat(
      why, "; the checkpoint takes and gives ids in place of text"));
  return MakeIdsTokenizer(static_cast<int32_t>(vocab),
                          static_cast<int32_t>(vocab - 1));
}

ImportReport::Tensor Row(const LogicalTensor& tensor,
                         const FolderValues::Source& source) {
  const auto dims = tensor.shape.dims();
  ImportReport::Tensor row{
      .ours = tensor.name,
      .shape = {dims.begin(), dims.end()},
      .bytes = tensor.shape.elements() * SizeOf(DType::kF32)};
  for (const FolderValues::Source::From& from : source.from) {
    row.theirs.push_back(from.tensor.entry->name);
    if (row.dtype.empty()) {
      row.dtype = std::string(safetensors::ToString(from.tensor.entry->type));
    }
  }
  return row;
}

// What the checkpoint says of itself, and its small files.
struct Sayings {
  CheckpointHeader header;
  CheckpointFiles files;
};

absl::StatusOr<Sayings> Describe(const ModelFolder& folder,
                                 const ModelList& models,
                                 const Tokenizer& tokenizer) {
  DELINK_ASSIGN_OR_RETURN(const std::string text,
                          huggingface::AsRecipe(*folder.config, folder.path));
  DELINK_ASSIGN_OR_RETURN(
      const Recipe recipe,
      ParseRecipe(text, folder.path, folder.path, {}, KindsOf(models)));
  Sayings sayings;
  sayings.files = {{"recipe.toml", text}, {"tokenizer", tokenizer.Serialize()}};
  SavedRun run;
  run.stage = recipe.stages.front().name;
  run.imported = absl::StrCat("a Hugging Face model of the family ",
                              folder.family->model_type);
  sayings.header = {.model = std::string(recipe.model->kind()),
                    .optimizer = recipe.optimizer.kind_name(),
                    .seed = recipe.run.seed,
                    .vocab = recipe.model->vocab,
                    .program = BuildLine(),
                    .values = run.Values()};
  return sayings;
}

// What OUT.tmp is of, for people.
absl::StatusOr<std::string> OriginOf(const ModelFolder& folder) {
  DELINK_ASSIGN_OR_RETURN(const std::string config,
                          Sha256File(JoinPath(folder.path, "config.json")));
  const nlohmann::ordered_json origin{
      {"program", BuildLine()},
      {"model_type", folder.family->model_type},
      {"config", absl::StrCat("sha256:", config)}};
  return JsonText(origin, 2) + "\n";
}

// The step folder.
absl::StatusOr<std::string> Write(const ImportOptions& options,
                                  const std::string& origin,
                                  const Layout& layout, const Sayings& sayings,
                                  ValueSource& values) {
  DELINK_ASSIGN_OR_RETURN(OutputFolder folder,
                          OutputFolder::Begin(options.out, origin));
  SelfCommunicator comm;
  const absl::StatusOr<std::string> path = WriteCheckpoint(
      comm, folder.path(), sayings.header,
      {.layout = &layout,
       .updates = std::vector<int64_t>(layout.slabs().size(), 0),
       .values = &values},
      sayings.files, 0);
  absl::Status status = path.status();
  if (status.ok()) status = folder.Publish();
  if (!status.ok()) {
    folder.Discard();
    return status;
  }
  return JoinPath(options.out, path->substr(path->rfind('/') + 1));
}

}  // namespace

absl::StatusOr<ImportReport> ImportHuggingFace(const ImportOptions& options,
                                               const ModelList& models) {
  DELINK_RETURN_IF_ERROR(CheckOut(options.out));
  const std::vector<const huggingface::Family*> families = FamiliesOf(models);
  DELINK_ASSIGN_OR_RETURN(const ModelFolder folder,
                          huggingface::OpenModelFolder(options.in, families));
  ParamRegistry registry;
  const std::unique_ptr<Sequential> model =
      BuildModel(models, Scope(registry), *folder.config);
  DELINK_ASSIGN_OR_RETURN(FolderValues values,
                          FolderValues::Open(folder, registry, 1));
  const Layout layout = Layout::Create(registry, model->blocks(), {}, {});
  ImportReport report{.from = folder.path,
                      .to = JoinPath(options.out, "step-00000000"),
                      .family = folder.family->model_type,
                      .kind = std::string(folder.config->kind())};
  for (const LogicalTensor& tensor : layout.tensors()) {
    if (!tensor.link.empty()) continue;
    report.tensors.push_back(Row(tensor, values.sources().at(tensor.name)));
    report.parameters += tensor.shape.elements();
    report.bytes += report.tensors.back().bytes;
  }
  const std::unique_ptr<Tokenizer> tokenizer = TokenizerOf(folder, report);
  DELINK_ASSIGN_OR_RETURN(const Sayings sayings,
                          Describe(folder, models, *tokenizer));
  if (options.dry_run) return report;
  DELINK_ASSIGN_OR_RETURN(const std::string origin, OriginOf(folder));
  CountedValues counted(values, report.parameters, options.progress);
  DELINK_ASSIGN_OR_RETURN(report.to,
                          Write(options, origin, layout, sayings, counted));
  report.written = true;
  DELINK_ASSIGN_OR_RETURN(report.files, ReadSums(report.to));
  return report;
}

std::string ToString(const ImportReport& r) {
  std::string text = absl::StrCat(
      r.written ? "converted " : "would convert ", r.from, "\n",
      r.written ? "       to " : "           to ", r.to, ": ", r.kind, " (",
      r.family, "), weights alone\n", r.tensors.size(), " tensors, ",
      FormatCount(static_cast<double>(r.parameters)), " parameters, ",
      FormatBytes(r.bytes), "\n");
  for (const std::string& note : r.notes) absl::StrAppend(&text, note, "\n");
  for (const FileSum& file : r.files) {
    absl::StrAppend(&text, file.digest, "  ", file.name, "\n");
  }
  if (r.written) return text;
  std::vector<std::vector<std::string>> rows;
  for (const ImportReport::Tensor& tensor : r.tensors) {
    rows.push_back({tensor.ours, ShapeText(tensor.shape), "F32",
                    absl::StrCat(tensor.bytes), tensor.dtype,
                    absl::StrJoin(tensor.theirs, ", ")});
  }
  return text + TextTable(rows);
}

}  // namespace delink
