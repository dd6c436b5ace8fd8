#include <cmath>
#include <filesystem>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/layout.h"

namespace delink::checkpoint {
namespace {

absl::Status Impossible(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": ", what, "; another program wrote it"));
}

absl::Status CheckCounts(const std::string& path, const CheckpointHeader& h) {
  constexpr int64_t kMost = int64_t{1} << 62;  // tokens that can be counted
  const std::tuple<const char*, int64_t, int64_t> bounds[] = {
      {"step", h.step, kMostSteps},
      {"tokens", h.tokens, kMost},
      {"samples", h.samples, kMost},
      {"stage_index", h.stage_index, kMostSteps},
      {"stage_begin_step", h.stage_begin_step, h.step},
      {"stage_begin_samples", h.stage_begin_samples, h.samples},
      {"vocab", h.vocab, std::numeric_limits<int32_t>::max()}};
  for (const auto& [name, value, most] : bounds) {
    if (0 <= value && value <= most) continue;
    return Impossible(path, absl::StrCat("its ", name, " is ", value,
                                         ", not from 0 to ", most));
  }
  return absl::OkStatus();
}

// Numbers of steps, or -1 for none, among what is kept as floating point.
bool IsStep(double value, const CheckpointHeader& h) {
  return value >= -1 && value <= static_cast<double>(h.step) &&
         value == std::floor(value);
}

absl::Status CheckLists(const std::string& path, const CheckpointHeader& h) {
  double last = -1;
  for (size_t i = 0; i + 2 < h.stage_probes.size(); i += 3) {
    const double step = h.stage_probes[i];
    if (!IsStep(step, h) || step <= last ||
        !std::isfinite(h.stage_probes[i + 1] + h.stage_probes[i + 2])) {
      return Impossible(path, absl::StrCat(kStageProbes, " makes no sense"));
    }
    last = step;
  }
  const std::tuple<const char*, const std::vector<double>*, size_t, size_t>
      steps[] = {{kValidation, &h.validation, 1, 3},
                 {kSkipped, &h.skipped, 0, 1}};
  for (const auto& [name, values, first, second] : steps) {
    if (values->size() <= second) continue;
    if (!IsStep((*values)[first], h) || !IsStep((*values)[second], h)) {
      return Impossible(path, absl::StrCat(name, " makes no sense"));
    }
  }
  return absl::OkStatus();
}

// A run that goes on sets aside what is later than its step, by folders' names.
absl::Status CheckName(const std::string& path, const CheckpointHeader& h) {
  std::filesystem::path folder = std::filesystem::path(path).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const int64_t named = StepOfName(folder.filename().string());
  if (named < 0 || named == h.step) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": is of step ", h.step,
      ", and not of the one in its name; call the folder ", StepName(h.step)));
}

}  // namespace

absl::Status CheckHeader(const std::string& path, const CheckpointHeader& h) {
  DELINK_RETURN_IF_ERROR(CheckCounts(path, h));
  DELINK_RETURN_IF_ERROR(CheckName(path, h));
  return CheckLists(path, h);
}

}  // namespace delink::checkpoint
