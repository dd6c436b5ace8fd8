// Assigns tensors to files and makes the files' headers, before a value is
// written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "framework/safetensors/type.h"

namespace delink::safetensors {

struct PlannedTensor {
  std::string name;
  Type type = Type::kF32;
  std::vector<int64_t> shape;
};

// The default of `transformers`: 5 GB.
inline constexpr int64_t kShardBytes = 5'000'000'000;

struct Plan {
  struct Place {
    size_t file = 0;
    int64_t begin = 0, end = 0;  // bytes of the file
  };
  struct File {
    std::string name;
    std::string header;  // its length in front, padded to a multiple of 8
    int64_t bytes = 0;   // of the file
  };

  std::vector<PlannedTensor> tensors;  // as given
  std::vector<Place> places;           // of each
  std::vector<File> files;
  int64_t total_bytes = 0;  // of all tensors
  std::string index;        // its text; empty where there is one file

  // Bytes of an element of a tensor.
  int64_t ElementSize(size_t tensor) const;
};

// Fills files with tensors in the order given, up to `shard_bytes` each; a
// larger tensor has a file to itself. A single file is model.safetensors;
// several are model-00001-of-0000N.safetensors with an index. Within a file,
// tensors with larger elements come first, so that all are aligned; otherwise
// they keep their order, which is also the order of the header's keys.
// InvalidArgument: a name is given twice, or is "__metadata__"; a header or
// sizes that no file can have.
absl::StatusOr<Plan> PlanFiles(std::vector<PlannedTensor> tensors,
                               int64_t shard_bytes = kShardBytes);

}  // namespace delink::safetensors
