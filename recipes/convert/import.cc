#include "recipes/convert/import.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "recipes/convert/output_folder.h"
#include "recipes/convert/text_table.h"
#include "recipes/convert/write_import.h"
#include "recipes/huggingface/folder_values.h"
#include "recipes/huggingface/model_folder.h"

namespace delink {
namespace {

using huggingface::FolderValues;
using huggingface::ModelFolder;

// The folder's tokenizer. If it has no usable one, a tokenizer of ids, and a
// note that says so.
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
      why, "; the checkpoint reads and writes token ids instead of text"));
  return IdsTokenizer(vocab, folder.end_of_text);
}

// Its generation_config.json, if there is one; a note if it cannot be read.
CheckpointFiles FilesOf(const ModelFolder& folder, ImportReport& report) {
  constexpr int64_t kLargest = 1 << 20;
  const std::string path =
      JoinPath(folder.path, huggingface::kGenerationConfig);
  if (!PathExists(path)) return {};
  const absl::StatusOr<int64_t> size = FileSize(path);
  if (size.ok() && *size <= kLargest) {
    const absl::StatusOr<std::string> text = ReadFile(path);
    if (text.ok() && ParseJson(*text).is_object()) {
      return {{huggingface::kGenerationConfig, *text}};
    }
  }
  report.notes.push_back(
      absl::StrCat(path, ": is no JSON object, so it is not copied"));
  return {};
}

ImportReport::Tensor Row(const LogicalTensor& tensor,
                         const FolderValues::Source& source) {
  const auto dims = tensor.shape.dims();
  ImportReport::Tensor row{
      .ours = tensor.name,
      .shape = {dims.begin(), dims.end()},
      .bytes = tensor.shape.elements() * SizeOf(DType::kF32)};
  for (const FolderValues::Source::From& from : source.from) {
    const std::string& name = from.tensor.entry->name;
    // Several pieces may be of one tensor.
    if (std::ranges::find(row.theirs, name) == row.theirs.end()) {
      row.theirs.push_back(name);
    }
    if (row.dtype.empty()) {
      row.dtype = std::string(safetensors::ToString(from.tensor.entry->type));
    }
  }
  return row;
}

}  // namespace

absl::StatusOr<ImportReport> ImportHuggingFace(const ImportOptions& options,
                                               const ModelList& models) {
  DELINK_RETURN_IF_ERROR(CheckIsNew(options.out, "folder"));
  const std::vector<const huggingface::Family*> families = FamiliesOf(models);
  DELINK_ASSIGN_OR_RETURN(ModelFolder folder,
                          huggingface::OpenModelFolder(options.in, families));
  folder.tensors.ReadPastCache();
  ParamRegistry registry;
  const std::unique_ptr<Sequential> model =
      BuildModel(models, Scope(registry), *folder.config);
  DELINK_ASSIGN_OR_RETURN(FolderValues values,
                          FolderValues::Open(folder, registry, 1));
  const Layout layout = Layout::Create(registry, model->blocks(), {}, {});
  ImportReport report{.family = folder.family->model_type,
                      .kind = std::string(folder.config->kind())};
  for (const LogicalTensor& tensor : layout.tensors()) {
    if (!tensor.link.empty()) continue;
    report.tensors.push_back(Row(tensor, values.sources().at(tensor.name)));
    report.parameters += tensor.shape.elements();
    report.bytes += report.tensors.back().bytes;
  }
  const std::unique_ptr<Tokenizer> tokenizer = TokenizerOf(folder, report);
  DELINK_RETURN_IF_ERROR(
      WriteImport(options,
                  {.path = folder.path,
                   .what = absl::StrCat("a Hugging Face model of the family ",
                                        folder.family->model_type),
                   .config = folder.config.get(),
                   .tokenizer = tokenizer.get(),
                   .layout = &layout,
                   .values = &values,
                   .files = FilesOf(folder, report)},
                  models, report));
  return report;
}

std::string ToString(const ImportReport& r) {
  std::vector<std::vector<std::string>> rows;
  for (const ImportReport::Tensor& tensor : r.tensors) {
    rows.push_back({tensor.ours, ShapeText(tensor.shape), "F32",
                    absl::StrCat(tensor.bytes), tensor.dtype,
                    absl::StrJoin(tensor.theirs, ", ")});
  }
  return ReportText(r, absl::StrCat(r.kind, " (", r.family, "), weights only"),
                    rows);
}

}  // namespace delink
