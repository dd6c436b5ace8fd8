#include "recipes/convert/convert.h"

#include <algorithm>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "recipes/convert/export.h"
#include "recipes/convert/import.h"
#include "recipes/huggingface/model_folder.h"

namespace delink {
namespace {

using safetensors::Type;

ModelForm FormOf(const std::string& path) {
  return huggingface::IsModelFolder(path) ? ModelForm::kHuggingFace
                                          : ModelForm::kDelink;
}

absl::Status CheckWay(const ConvertOptions& options, ModelForm from,
                      ModelForm to) {
  if (from == to) {
    return absl::InvalidArgumentError(absl::StrCat(
        options.in, ": is of the form '", std::string(ToString(from)),
        "' already; leave --to out, or name another"));
  }
  if (to == ModelForm::kDelink &&
      options.dtype.value_or(Type::kF32) != Type::kF32) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.in,
                     ": would be a checkpoint, whose weights are fp32 whatever "
                     "a run computes with; leave --dtype out"));
  }
  return absl::OkStatus();
}

int ThreadsOf(const ConvertOptions& options) {
  if (options.threads > 0) return options.threads;
  return std::max(static_cast<int>(std::thread::hardware_concurrency()), 1);
}

}  // namespace

std::string_view ToString(ModelForm form) {
  switch (form) {
    case ModelForm::kDelink:
      return "delink";
    case ModelForm::kHuggingFace:
      return "huggingface";
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
    DELINK_ASSIGN_OR_RETURN(const ImportReport report,
                            ImportHuggingFace({.in = options.in,
                                               .out = options.out,
                                               .dry_run = options.dry_run,
                                               .progress = options.progress},
                                              models));
    return ToString(report);
  }
  DELINK_ASSIGN_OR_RETURN(
      const ExportReport report,
      ExportHuggingFace({.in = options.in,
                         .out = options.out,
                         .dtype = options.dtype.value_or(Type::kF32),
                         .shard_bytes = options.shard_bytes,
                         .threads = ThreadsOf(options),
                         .dry_run = options.dry_run,
                         .progress = options.progress},
                        models));
  return ToString(report);
}

}  // namespace delink
