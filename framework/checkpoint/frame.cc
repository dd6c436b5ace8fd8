#include "framework/checkpoint/frame.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/random_access_file.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/layout.h"

namespace delink::checkpoint {
namespace {

// HDF5 stores at most 64 KiB in an attribute.
constexpr size_t kLongest = 60'000;

// The digest of all bytes outside these ranges, which are in order and in the
// file.
absl::StatusOr<std::string> DigestAround(const RandomAccessFile& file,
                                         const ValueRanges& values) {
  constexpr int64_t kAtOnce = 1 << 20;
  Sha256 digest;
  std::string some;
  const auto add = [&](int64_t begin, int64_t end) -> absl::Status {
    for (; begin < end; begin += kAtOnce) {
      const int64_t size = std::min(kAtOnce, end - begin);
      some.resize(static_cast<size_t>(size));
      DELINK_RETURN_IF_ERROR(file.Read(begin, size, some.data()));
      digest.Update(some);
    }
    return absl::OkStatus();
  };
  int64_t done = 0;
  for (const auto& [begin, end] : values) {
    DELINK_RETURN_IF_ERROR(add(done, begin));
    done = end;
  }
  DELINK_RETURN_IF_ERROR(add(done, file.size()));
  return digest.Hex();
}

struct Frame {
  std::string digest;
  ValueRanges values;
};

// Nothing if the text is no frame of a file of so many bytes.
std::optional<Frame> Parse(const std::string& text, int64_t bytes) {
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  Frame frame{.digest = words.front()};
  int64_t done = 0;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::vector<std::string> ends = absl::StrSplit(words[i], '-');
    int64_t begin = 0, end = 0;
    if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &begin) ||
        !absl::SimpleAtoi(ends[1], &end) || begin < done || end <= begin ||
        end > bytes) {
      return std::nullopt;
    }
    frame.values[begin] = done = end;
  }
  return frame;
}

}  // namespace

absl::StatusOr<std::string> FrameOf(const std::string& path,
                                    const ValueRanges& values) {
  DELINK_ASSIGN_OR_RETURN(const RandomAccessFile file,
                          RandomAccessFile::Open(path));
  DELINK_ASSIGN_OR_RETURN(std::string text, DigestAround(file, values));
  for (const auto& [begin, end] : values) {
    absl::StrAppend(&text, " ", begin, "-", end);
  }
  return text;
}

absl::Status WriteFrames(const std::map<std::string, std::string>& frames,
                         hdf5::File& index) {
  DELINK_RETURN_IF_ERROR(index.CreateGroup(kModelGroup));
  for (const auto& [name, text] : frames) {
    if (text.size() > kLongest) continue;
    DELINK_RETURN_IF_ERROR(index.SetText(kModelGroup, name, text));
  }
  return absl::OkStatus();
}

absl::Status CheckFrame(const hdf5::File& index, const std::string& name,
                        const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::string text,
                          index.GetText(kModelGroup, name));
  DELINK_ASSIGN_OR_RETURN(const RandomAccessFile file,
                          RandomAccessFile::Open(path));
  const std::optional<Frame> frame = Parse(text, file.size());
  if (!frame) {
    return absl::DataLossError(
        absl::StrCat(path,
                     ": its entry in the index is damaged; restore the "
                     "checkpoint or use another"));
  }
  DELINK_ASSIGN_OR_RETURN(const std::string digest,
                          DigestAround(file, frame->values));
  if (digest == frame->digest) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(path,
                   ": damaged outside of its values; restore the file or "
                   "use another checkpoint"));
}

}  // namespace delink::checkpoint
