#include "recipes/run/setup/prepare_folder.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/status_macros.h"
#include "recipes/record/run_folder.h"
#include "recipes/record/trace_file.h"
#include "recipes/schema/recipe_io.h"

namespace delink {

std::string FolderOf(const TrainOptions& options) {
  if (!options.out.empty()) return options.out;
  return JoinPath("runs",
                  std::filesystem::path(options.recipe).stem().string());
}

absl::Status PrepareFolder(const TrainOptions& options, const std::string& out,
                           const Recipe& recipe, const Beginning& beginning) {
  if (!options.trace.empty()) {
    DELINK_RETURN_IF_ERROR(TraceFile::Check(options.trace));
  }
  DELINK_RETURN_IF_ERROR(
      RunFolder::Prepare(out, options.overwrite ? RunFolder::Mode::kOverwrite
                              : options.resume  ? RunFolder::Mode::kResume
                                                : RunFolder::Mode::kFresh));
  DELINK_RETURN_IF_ERROR(
      WriteFileAtomically(RunFolder::Recipe(out), ToToml(recipe)));
  DELINK_RETURN_IF_ERROR(beginning.SetLaterAside(out));
  if (SetLogFile(RunFolder::Log(out))) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(RunFolder::Log(out), ": cannot be written"));
}

}  // namespace delink
