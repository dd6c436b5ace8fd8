#include "data/corpus/staging.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"

namespace delink {
namespace {

std::string SidePath(const std::string& out, int side,
                     const std::string& suffix = "") {
  return JoinPath(out, std::string(kSideNames[side]) + suffix);
}

}  // namespace

absl::StatusOr<CorpusStaging> CorpusStaging::Create(const std::string& out,
                                                    bool overwrite) {
  for (const int side : {0, 1}) {
    const std::string path = SidePath(out, side);
    if (PathExists(path) && !overwrite) {
      return absl::AlreadyExistsError(absl::StrCat(
          path, ": exists; give --overwrite to replace it, or another --out"));
    }
  }
  CorpusStaging staging(out, PathExists(out));
  for (const int side : {0, 1}) {
    DELINK_RETURN_IF_ERROR(RemoveAll(staging.dir(side)));
    DELINK_RETURN_IF_ERROR(MakeDirectories(staging.dir(side)));
  }
  return staging;
}

CorpusStaging::CorpusStaging(std::string out, bool existed)
    : out_(std::move(out)), existed_(existed) {}

CorpusStaging::CorpusStaging(CorpusStaging&& other) noexcept
    : out_(std::exchange(other.out_, "")), existed_(other.existed_) {}

CorpusStaging::~CorpusStaging() {
  if (out_.empty()) return;
  for (const int side : {0, 1}) RemoveAll(dir(side)).IgnoreError();
  if (!existed_) RemoveAll(out_).IgnoreError();
}

std::string CorpusStaging::dir(int side) const {
  return SidePath(out_, side, ".partial");
}

absl::Status CorpusStaging::Publish(int sides) {
  // From here on OUT is not removed, whatever fails.
  existed_ = true;
  for (const int side : {0, 1}) {
    const std::string path = SidePath(out_, side);
    const std::string old = SidePath(out_, side, ".old");
    DELINK_RETURN_IF_ERROR(RemoveAll(old));
    if (side >= sides) {
      DELINK_RETURN_IF_ERROR(RemoveAll(dir(side)));
      DELINK_RETURN_IF_ERROR(RemoveAll(path));
      continue;
    }
    if (PathExists(path)) DELINK_RETURN_IF_ERROR(Rename(path, old));
    DELINK_RETURN_IF_ERROR(SyncDirectory(dir(side)));
    DELINK_RETURN_IF_ERROR(Rename(dir(side), path));
    DELINK_RETURN_IF_ERROR(RemoveAll(old));
  }
  return absl::OkStatus();
}

}  // namespace delink
