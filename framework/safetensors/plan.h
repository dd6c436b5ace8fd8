// Which tensors go into which files: decided, and the headers written, before
// a value is.
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

// As `transformers` has it: 5 GB.
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

// Files take tensors in the order given while these are no more than
// `shard_bytes`; a tensor that is larger by itself has a file of its own. One
// file is model.safetensors; more are model-00001-of-0000N.safetensors beside
// an index. In a file the tensors of the largest elements come first, so that
// all are aligned; else they keep their order, which is also that of the
// header's keys. InvalidArgument: a name that is there twice, or is
// "__metadata__"; a header or sizes that no file can have.
absl::StatusOr<Plan> PlanFiles(std::vector<PlannedTensor> tensors,
                               int64_t shard_bytes = kShardBytes);

}  // namespace delink::safetensors
