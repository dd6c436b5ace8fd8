// The folders of a corpus that is being made: OUT/train and OUT/validation,
// written under temporary names and put in their places when whole. What is not
// published is removed, and OUT is left as it was. Move-only.
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
  // AlreadyExists where OUT holds a side and `overwrite` is false. Makes OUT
  // and an empty folder for each side.
  static absl::StatusOr<CorpusStaging> Create(const std::string& out,
                                              bool overwrite);

  CorpusStaging(CorpusStaging&& other) noexcept;
  ~CorpusStaging();

  // Where side 0 or 1 is to be written.
  std::string dir(int side) const;

  // Puts the new folders of the first `sides` in the places of the old, and
  // removes the others' old ones.
  absl::Status Publish(int sides = 2);

 private:
  CorpusStaging(std::string out, bool existed);

  std::string out_;  // empty: nothing to remove
  bool existed_ = false;
};

}  // namespace delink
