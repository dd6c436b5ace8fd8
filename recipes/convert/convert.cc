#include "recipes/convert/convert.h"

#include <algorithm>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "recipes/convert/export.h"
#include "recipes/convert/import.h"
#include "recipes/convert/llm_c.h"
#include "recipes/convert/llm_c_file.h"
#include "recipes/huggingface/model_folder.h"

namespace delink {
namespace {

using safetensors::Type;

ModelForm FormOf(const std::string& path) {
  if (llm_c::IsModelFile(path)) return ModelForm::kLlmC;
  return huggingface::IsModelFolder(path) ? ModelForm::kHuggingFace
                                          : ModelForm::kDelink;
}

absl::Status CheckWay(const ConvertOptions& options, ModelForm from,
                      ModelForm to) {
  if (from == to) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.in, ": is already of the form '", std::string(ToString(from)),
        "'; leave --to out, or give another form"));
  }
  if (from != ModelForm::kDelink && to != ModelForm::kDelink) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.in, ": cannot be converted from '", std::string(ToString(from)),
        "' to '", std::string(ToString(to)),
        "' directly; convert it to a checkpoint first, with --to delink"));
  }
  if (to != ModelForm::kHuggingFace &&
      (options.shard_bytes || options.threads)) {
    const std::string given =
        options.shard_bytes ? "--shard-size" : "--threads";
    return absl::InvalidArgumentError(
        absl::StrCat(options.out, ": the form '", std::string(ToString(to)),
                     "' does not use ", given,
                     ", which is for Hugging Face folders only; leave it out"));
  }
  if (to == ModelForm::kDelink &&
      options.dtype.value_or(Type::kF32) != Type::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.in,
                     ": becomes a checkpoint, which always stores fp32 "
                     "weights; leave --dtype out"));
  }
  return absl::OkStatus();
}

int ThreadsOf(const ConvertOptions& options) {
  // Half of them wait for the disk.
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return options.threads.value_or(2 * std::max(cores, 1));
}

}  // namespace

std::string_view ToString(ModelForm form) {
  switch (form) {
    case ModelForm::kDelink:
      return "delink";
    case ModelForm::kHuggingFace:
      return "huggingface";
    case ModelForm::kLlmC:
      return "llmc";
  }
  return "";
}

absl::StatusOr<std::string> Convert(const ConvertOptions& options,
                                    const ModelList& models) {
  if (!PathExists(options.in)) {
    return absl::NotFoundError(
        absl::StrCat(options.in, ": there is no such file or folder"));
  }
  const ModelForm from = FormOf(options.in);
  const ModelForm to =
      options.to.value_or(from == ModelForm::kDelink ? ModelForm::kHuggingFace
                                                     : ModelForm::kDelink);
  DELINK_RETURN_IF_ERROR(CheckWay(options, from, to));
  if (to == ModelForm::kDelink) {
    const ImportOptions import{.in = options.in,
                               .out = options.out,
                               .dry_run = options.dry_run,
                               .progress = options.progress};
    DELINK_ASSIGN_OR_RETURN(const ImportReport report,
                            from == ModelForm::kLlmC
                                ? ImportLlmC(import, models)
                                : ImportHuggingFace(import, models));
    return ToString(report);
  }
  const ExportOptions exported{
      .in = options.in,
      .out = options.out,
      .dtype = options.dtype.value_or(Type::kF32),
      .shard_bytes = options.shard_bytes.value_or(safetensors::kShardBytes),
      .threads = ThreadsOf(options),
      .dry_run = options.dry_run,
      .progress = options.progress};
  DELINK_ASSIGN_OR_RETURN(const ExportReport report,
                          to == ModelForm::kLlmC
                              ? ExportLlmC(exported, models)
                              : ExportHuggingFace(exported, models));
  return ToString(report);
}

}  // namespace delink
