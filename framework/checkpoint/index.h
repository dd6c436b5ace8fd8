// Writes index.h5: the header, and every logical tensor as virtual datasets
// over the writers' files. Private to the checkpoint code.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/file_plan.h"

namespace delink::checkpoint {

absl::Status WriteIndex(const std::string& path, const CheckpointHeader& header,
                        const FilePlan& plan, const ModelValues& model);

}  // namespace delink::checkpoint
