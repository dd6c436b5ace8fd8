// The folders of a corpus that is being built: OUT/train and OUT/validation.
// They are written under temporary names and renamed by Publish. Without it
// they are removed, and OUT is left as it was. Move-only.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace delink {

// The sides of a corpus, training first.
inline constexpr std::string_view kSideNames[] = {"train", "validation"};

class CorpusStaging {
 public:
  // Makes OUT and an empty folder for each side. AlreadyExists if OUT holds a
  // side and `overwrite` is false.
  static absl::StatusOr<CorpusStaging> Create(const std::string& out,
                                              bool overwrite);

  CorpusStaging(CorpusStaging&& other) noexcept;
  ~CorpusStaging();

  // Where side 0 or 1 is to be written.
  std::string dir(int side) const;

  // Replaces the first `sides` sides by the new folders, and removes the old
  // folders of the others.
  absl::Status Publish(int sides = 2);

 private:
  CorpusStaging(std::string out, bool existed);

  std::string out_;  // empty: nothing to remove
  bool existed_ = false;
};

}  // namespace delink
