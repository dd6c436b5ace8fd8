// What a writer's file has besides values: what HDF5 reads to find them. The
// index has a digest of it by itself, so that files whose values are not
// verified yet can be opened. Private to the checkpoint code.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/hdf5/hdf5.h"

namespace delink::checkpoint {

// Where values are in a file: begins and ends, in bytes.
using ValueRanges = std::map<int64_t, int64_t>;

// The digest of what is around the values of a file, and where these are:
// "DIGEST BEGIN-END BEGIN-END ...".
absl::StatusOr<std::string> FrameOf(const std::string& path,
                                    const ValueRanges& values);

// Frames by the names of files, as attributes of the index. One that no
// attribute has room for is left out.
absl::Status WriteFrames(const std::map<std::string, std::string>& frames,
                         hdf5::File& index);

// That the file at `path` has the frame that the index has of `name`. NotFound
// where that has none, as those of early builds; DataLoss where it is another.
absl::Status CheckFrame(const hdf5::File& index, const std::string& name,
                        const std::string& path);

}  // namespace delink::checkpoint
