// TensorBoard's event files: scalars over the steps of a run, and texts.
//
// An event file is a sequence of TFRecords, each an Event message of protocol
// buffers. The few needed fields are encoded here instead of by libprotobuf: a
// program that links it with SentencePiece, which contains its own copy, aborts
// at start.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink {

using Scalars = std::vector<std::pair<std::string, double>>;  // by tag

inline constexpr char kEventFilePrefix[] = "events.out.tfevents.";

class EventFile {
 public:
  // A new file in `folder`, named as TensorBoard expects it, for a run that
  // begins after `step` steps. It hides later steps in older files of the
  // folder.
  static absl::StatusOr<EventFile> Create(const std::string& folder,
                                          int64_t step);
  EventFile(EventFile&& other) noexcept;
  EventFile& operator=(EventFile&&) = delete;
  ~EventFile();

  // Written through at once. Values that are not finite are left out.
  absl::Status Write(int64_t step, const Scalars& scalars);
  // `text`, UTF-8, is shown as Markdown.
  absl::Status WriteText(int64_t step, const std::string& tag,
                         std::string_view text);

 private:
  EventFile(std::string path, std::FILE* file)
      : path_(std::move(path)), file_(file) {}
  absl::Status WriteRecord(std::string_view data);

  std::string path_;
  std::FILE* file_;
};

// CRC-32C (Castagnoli) of the bytes, masked as in TFRecords.
uint32_t MaskedCrc32c(std::string_view bytes);

}  // namespace delink
