// Writes index.h5: the header, and every logical tensor as virtual datasets
// over the writers' files. Private to the checkpoint code.
#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "framework/checkpoint/checkpoint.h"
#include "framework/checkpoint/file_plan.h"

namespace delink::checkpoint {

// `frames`: of the writers' files, by name (frame.h).
using Frames = std::map<std::string, std::string>;
absl::Status WriteIndex(const std::string& path, const CheckpointHeader& header,
                        const FilePlan& plan, const ModelValues& model,
                        const Frames& frames);

}  // namespace delink::checkpoint
