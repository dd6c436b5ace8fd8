// `delink convert` from and to the model files of llm.c (llm_c_file.h): GPT-2
// in fp32 or bf16. An imported file is exported again byte by byte.
#pragma once

#include "absl/status/statusor.h"
#include "recipes/convert/export.h"
#include "recipes/convert/import.h"

namespace delink {

// As ImportHuggingFace, but options.in is a file. Its tokens are ids; the last
// id ends documents, as in GPT-2.
absl::StatusOr<ImportReport> ImportLlmC(const ImportOptions& options,
                                        const ModelList& models);

// As ExportHuggingFace, but writes one file at options.out, in bf16 or fp32.
// The file is made in OUT.tmp (output_folder.h), always from the start. Ignores
// shard_bytes; threads verify the checkpoint. InvalidArgument: a model that
// llm.c cannot express, with all reasons.
absl::StatusOr<ExportReport> ExportLlmC(const ExportOptions& options,
                                        const ModelList& models);

}  // namespace delink
