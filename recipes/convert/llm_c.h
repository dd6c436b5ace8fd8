// `delink convert` from and to the model files of llm.c (llm_c_file.h): GPT-2
// in fp32 or bf16. A file that came in goes out as it was, byte by byte.
#pragma once

#include "absl/status/statusor.h"
#include "recipes/convert/export.h"
#include "recipes/convert/import.h"

namespace delink {

// As ImportHuggingFace; options.in is a file. Its tokens are ids, the last of
// which ends documents, as GPT-2's does.
absl::StatusOr<ImportReport> ImportLlmC(const ImportOptions& options,
                                        const ModelList& models);

// As ExportHuggingFace, one file at options.out, in bf16 or fp32; it is made in
// OUT.tmp (output_folder.h), always from its begin. shard_bytes changes
// nothing; threads verify the checkpoint. InvalidArgument: a model that llm.c
// does not have, with all reasons.
absl::StatusOr<ExportReport> ExportLlmC(const ExportOptions& options,
                                        const ModelList& models);

}  // namespace delink
