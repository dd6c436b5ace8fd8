#include "recipes/convert/llm_c.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint_values.h"
#include "framework/comm/self_communicator.h"
#include "framework/module/mover.h"
#include "recipes/convert/llm_c_file.h"
#include "recipes/convert/open_saved.h"
#include "recipes/convert/output_folder.h"
#include "recipes/convert/write_import.h"
#include "recipes/saved/saved_model.h"

namespace delink {
namespace {

constexpr char kFamily[] = "GPT-2 of llm.c";
// For OUT.tmp. An interrupted export is never continued.
constexpr char kOrigin[] = "a model file of llm.c\n";
constexpr char kValues[] = "values";

// The tensors of a checkpoint, by their names in a model of only the visited
// blocks.
std::map<std::string, const LogicalTensor*> ByPlace(const Layout& layout) {
  std::map<std::string, std::string> names;
  for (int place = 1; place <= layout.depth(); ++place) {
    names[absl::StrCat("blocks/", At(layout.visited(), place) - 1, "/")] =
        absl::StrCat("blocks/", place - 1, "/");
  }
  std::map<std::string, const LogicalTensor*> tensors;
  for (const LogicalTensor& tensor : layout.tensors()) {
    const size_t local = tensor.name.find('/', sizeof("blocks/") - 1) + 1;
    const auto block = names.find(tensor.name.substr(0, local));
    tensors[block == names.end() ? tensor.name
                                 : block->second + tensor.name.substr(local)] =
        &tensor;
  }
  return tensors;
}

// A model to export.
struct Outgoing {
  const SavedModel& saved;
  const Layout& layout;
  const llm_c::Header& header;
};

absl::StatusOr<FileSum> WriteLlmC(const Outgoing& model,
                                  const std::string& path,
                                  const ExportOptions& options) {
  DELINK_ASSIGN_OR_RETURN(
      CheckpointValues values,
      CheckpointValues::Open(model.saved.path(), model.layout, {},
                             DType::kF32));
  DELINK_ASSIGN_OR_RETURN(llm_c::Sink sink,
                          llm_c::Sink::Create(path, model.header));
  const std::map<std::string, const LogicalTensor*> tensors =
      ByPlace(model.layout);
  const int64_t all = ValuesIn(model.header);
  SelfCommunicator comm;
  for (const llm_c::Tensor& tensor : TensorsOf(model.header)) {
    const LogicalTensor* const from = tensors.at(tensor.ours);
    DELINK_RETURN_IF_ERROR(values.Check({}, *from));
    DELINK_RETURN_IF_ERROR(sink.Begin(tensor));
    Move move;
    move.from = from;
    move.to = {from};
    DELINK_RETURN_IF_ERROR(MoveValues(values, sink, {&move, 1}, comm));
    if (options.progress) options.progress(tensor.first + tensor.count, all);
  }
  return sink.Finish();
}

}  // namespace

absl::StatusOr<ImportReport> ImportLlmC(const ImportOptions& options,
                                        const ModelList& models) {
  DELINK_RETURN_IF_ERROR(CheckIsNew(options.out, "folder"));
  DELINK_ASSIGN_OR_RETURN(llm_c::Values values,
                          llm_c::Values::Open(options.in));
  const GptConfig config = ConfigOf(values.header());
  ParamRegistry registry;
  const std::unique_ptr<Sequential> model =
      BuildModel(models, Scope(registry), config);
  const Layout layout = Layout::Create(registry, model->blocks(), {}, {});
  ImportReport report{.family = kFamily, .kind = std::string(config.kind())};
  std::map<std::string, const LogicalTensor*> tensors = ByPlace(layout);
  for (const llm_c::Tensor& tensor : TensorsOf(values.header())) {
    const auto dims = tensors.at(tensor.ours)->shape.dims();
    report.tensors.push_back(
        {.ours = tensor.ours,
         .shape = {dims.begin(), dims.end()},
         .theirs = {tensor.theirs},
         .dtype = std::string(safetensors::ToString(values.header().type)),
         .bytes = tensor.count * SizeOf(DType::kF32)});
    report.parameters += tensor.count;
    report.bytes += report.tensors.back().bytes;
  }
  report.notes.push_back(
      absl::StrCat(options.in,
                   ": has no tokenizer; the checkpoint reads and writes token "
                   "ids instead of text"));
  const std::unique_ptr<Tokenizer> tokenizer = IdsTokenizer(config.vocab);
  DELINK_RETURN_IF_ERROR(WriteImport(options,
                                     {.path = options.in,
                                      .what = "a model file of llm.c",
                                      .config = &config,
                                      .tokenizer = tokenizer.get(),
                                      .layout = &layout,
                                      .values = &values},
                                     models, report));
  return report;
}

absl::StatusOr<ExportReport> ExportLlmC(const ExportOptions& options,
                                        const ModelList& models) {
  DELINK_RETURN_IF_ERROR(CheckIsNew(options.out, "file"));
  DELINK_ASSIGN_OR_RETURN(const std::unique_ptr<SavedModel> saved,
                          OpenSaved(options.in, models, options.threads));
  // Each layer's own tensors, even if the checkpoint has links.
  const Layout layout =
      Layout::Create(saved->registry(), saved->blocks(),
                     {.visited = saved->sharing().visited}, {});
  const std::unique_ptr<ModelConfig> config = saved->recipe().model->Clone();
  config->layers = layout.depth();
  DELINK_ASSIGN_OR_RETURN(
      const llm_c::Header header,
      llm_c::HeaderOf(saved->path(), *config, options.dtype));
  ExportReport report{.from = saved->path(),
                      .to = options.out,
                      .model_type = "gpt2",
                      .architecture = kFamily,
                      .dtype = options.dtype};
  const std::map<std::string, const LogicalTensor*> tensors = ByPlace(layout);
  for (const llm_c::Tensor& tensor : TensorsOf(header)) {
    const LogicalTensor& from = *tensors.at(tensor.ours);
    const auto dims = from.shape.dims();
    report.tensors.push_back(
        {.theirs = tensor.theirs,
         .shape = {dims.begin(), dims.end()},
         .bytes = tensor.count * safetensors::SizeOf(header.type),
         .file = options.out,
         .ours = from.name});
    report.parameters += tensor.count;
    report.bytes += report.tensors.back().bytes;
  }
  if (options.dry_run) return report;

  DELINK_ASSIGN_OR_RETURN(OutputFolder folder,
                          OutputFolder::Begin(options.out, kOrigin));
  absl::StatusOr<FileSum> sum =
      WriteLlmC({.saved = *saved, .layout = layout, .header = header},
                JoinPath(folder.path(), kValues), options);
  absl::Status status = sum.status();
  if (status.ok()) status = folder.PublishFile(kValues);
  if (!status.ok()) {
    folder.Discard();
    return status;
  }
  sum->name = options.out;
  report.files = {*std::move(sum)};
  report.written = true;
  return report;
}

}  // namespace delink
