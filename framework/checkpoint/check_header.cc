#include <cstdint>
#include <filesystem>
#include <limits>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/layout.h"

namespace delink::checkpoint {
namespace {

// A resumed run sets aside checkpoints later than its step, by folders' names.
absl::Status CheckName(const std::string& path, const CheckpointHeader& h) {
  std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const int64_t named = StepOfName(folder.filename().string());
  if (named < 0 || named == h.step) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": is of step ", h.step,
                   ", but its name has another step; rename the folder to ",
                   StepName(h.step)));
}

}  // namespace

std::vector<KeptValue> IdentityOf(CheckpointHeader& h) {
  return {{"format", &h.format},        {"step", &h.step}, {"model", &h.model},
          {"optimizer", &h.optimizer},  {"seed", &h.seed}, {"vocab", &h.vocab},
          {"program", &h.program, true}};
}

absl::Status CheckHeader(const std::string& path, const CheckpointHeader& h) {
  DELINK_RETURN_IF_ERROR(CheckCount(path, "step", h.step, kMostSteps));
  DELINK_RETURN_IF_ERROR(
      CheckCount(path, "vocab", h.vocab, std::numeric_limits<int32_t>::max()));
  return CheckName(path, h);
}

}  // namespace delink::checkpoint
