#include "recipes/convert/write_import.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/comm/thread_communicator.h"
#include "recipes/convert/output_folder.h"
#include "recipes/convert/shared_values.h"
#include "recipes/huggingface/as_recipe.h"
#include "recipes/record/environment.h"
#include "recipes/run/position/saved_run.h"
#include "recipes/schema/recipe_io.h"

namespace delink {
namespace {

// The checkpoint's header and small files.
struct Sayings {
  CheckpointHeader header;
  CheckpointFiles files;
};

absl::StatusOr<Sayings> Describe(const ImportedModel& model,
                                 const ModelList& models) {
  DELINK_ASSIGN_OR_RETURN(const std::string text,
                          huggingface::AsRecipe(*model.config, model.path));
  DELINK_ASSIGN_OR_RETURN(
      const Recipe recipe,
      ParseRecipe(text, model.path, model.path, {}, KindsOf(models)));
  Sayings sayings;
  sayings.files = model.files;
  sayings.files["recipe.toml"] = text;
  sayings.files["tokenizer"] = model.tokenizer->Serialize();
  SavedRun run;
  run.stage = recipe.stages.front().name;
  run.imported = model.what;
  sayings.header = {.model = std::string(recipe.model->kind()),
                    .optimizer = recipe.optimizer.kind_name(),
                    .seed = recipe.run.seed,
                    .vocab = recipe.model->vocab,
                    .program = BuildLine(),
                    .values = run.Values()};
  return sayings;
}

// Writes a number of files that grows with the model, each by its own thread.
// So some are digested, which takes longest, while others are written.
absl::Status WriteFiles(const ImportOptions& options,
                        const ImportedModel& model, const Sayings& sayings,
                        const std::string& folder) {
  int64_t parameters = 0;
  for (const LogicalTensor& tensor : model.layout->tensors()) {
    if (tensor.link.empty()) parameters += tensor.shape.elements();
  }
  constexpr int64_t kMostFiles = 16;
  const int files = static_cast<int>(std::clamp<int64_t>(
      parameters * SizeOf(DType::kF32) / options.file_bytes, 1, kMostFiles));
  const Layout layout =
      Layout::Create(model.layout->registry(), model.layout->blocks(), {},
                     {.mesh = {.data = files}});
  SharedValues values(*model.values, layout, options.progress);
  // All ranks have the same, and it need not be said of which it is.
  absl::Status written;
  const absl::Status ranks = RunRanks(files, [&](Communicator& comm) {
    const absl::Status status =
        WriteCheckpoint(
            comm, folder, sayings.header,
            {.layout = &layout,
             .updates = std::vector<int64_t>(layout.slabs().size(), 0),
             .values = &values},
            sayings.files, 0)
            .status();
    if (comm.rank() == 0) written = status;
    return absl::OkStatus();
  });
  DELINK_RETURN_IF_ERROR(written);
  return ranks;
}

// Checks that the disk has room for `bytes`, if the file system can tell,
// before anything is written.
absl::Status CheckRoom(const std::string& folder, int64_t bytes) {
  const std::string path = JoinPath(folder, "room");
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return FileError(errno, path, "open for writing");
  const int error = ::fallocate(file, 0, 0, bytes) == 0 ? 0 : errno;
  ::close(file);
  ::unlink(path.c_str());
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) {
    return absl::OkStatus();
  }
  return FileError(error, folder,
                   absl::StrCat("make room for ", bytes, " bytes"));
}

// The origin of OUT.tmp. An import always starts afresh.
std::string OriginOf(const ImportedModel& model) {
  nlohmann::ordered_json origin;
  origin["program"] = BuildLine();
  origin["from"] = model.what;
  return JsonText(origin, 2) + "\n";
}

}  // namespace

std::unique_ptr<Tokenizer> IdsTokenizer(int64_t vocab, int32_t end) {
  return MakeIdsTokenizer(static_cast<int32_t>(vocab),
                          end >= 0 ? end : static_cast<int32_t>(vocab - 1));
}

absl::Status WriteImport(const ImportOptions& options,
                         const ImportedModel& model, const ModelList& models,
                         ImportReport& report) {
  DELINK_ASSIGN_OR_RETURN(const Sayings sayings, Describe(model, models));
  report.from = model.path;
  report.to = JoinPath(options.out, "step-00000000");
  if (options.dry_run) return absl::OkStatus();
  DELINK_ASSIGN_OR_RETURN(OutputFolder folder,
                          OutputFolder::Begin(options.out, OriginOf(model)));
  absl::Status status = CheckRoom(folder.path(), report.bytes);
  if (status.ok()) status = WriteFiles(options, model, sayings, folder.path());
  if (status.ok()) status = folder.Publish();
  if (!status.ok()) {
    folder.Discard();
    return status;
  }
  report.written = true;
  DELINK_ASSIGN_OR_RETURN(report.files, ReadSums(report.to));
  return absl::OkStatus();
}

}  // namespace delink
