// The frame of a writer's file: all bytes except values, which HDF5 reads to
// find the values. The index has a separate digest of the frame, so that a file
// can be opened before its values are verified. Private to the checkpoint code.
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

// The digest of all bytes around the values of a file, and where the values
// are: "DIGEST BEGIN-END BEGIN-END ...".
absl::StatusOr<std::string> FrameOf(const std::string& path,
                                    const ValueRanges& values);

// Writes frames, by file name, as attributes of the index. Leaves out a frame
// that is too long for an attribute.
absl::Status WriteFrames(const std::map<std::string, std::string>& frames,
                         hdf5::File& index);

// Checks that the file at `path` has the frame that the index stores for
// `name`. NotFound: the index has none, as in checkpoints of early builds.
// DataLoss: the frames differ.
absl::Status CheckFrame(const hdf5::File& index, const std::string& name,
                        const std::string& path);

}  // namespace delink::checkpoint
