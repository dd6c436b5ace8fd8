// A good folder of files kept in memory, from which each input spoils a copy.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "tests/data/text_samples.h"

namespace delink::fuzz {

class Folder {
 public:
  // What is at `path` now; it is also where Restore puts it back.
  explicit Folder(const std::string& path) : path_(path) {
    const std::vector<std::string> names = ListDirectory(path).value();
    for (const std::string& name : names) {
      files_[name] = ReadFile(JoinPath(path, name)).value();
    }
  }

  const std::string& path() const { return path_; }
  const std::map<std::string, std::string>& files() const { return files_; }
  std::string File(const std::string& name) const {
    return JoinPath(path_, name);
  }

  // Undoes what has been done to a file and to the digests.
  void Restore(const std::string& name) const {
    testing::WriteOrDie(File(name), files_.at(name));
    testing::WriteOrDie(File(kSumsName), files_.at(kSumsName));
  }

  // Makes the digests those of the files as they are.
  void SumAgain() const {
    std::vector<std::string> names;
    for (const auto& [name, bytes] : files_) {
      if (name != kSumsName) names.push_back(name);
    }
    DELINK_CHECK(WriteSums(path_, names).ok());
  }

 private:
  std::string path_;
  std::map<std::string, std::string> files_;
};

// Flips one bit that `where` chooses, and says in which file.
inline std::string FlipOne(const Folder& folder, int64_t where) {
  int64_t at = where & ((int64_t{1} << 40) - 1);
  int64_t total = 0;
  for (const auto& [name, bytes] : folder.files()) {
    total += static_cast<int64_t>(bytes.size()) * 8;
  }
  at %= total;
  for (const auto& [name, bytes] : folder.files()) {
    const int64_t bits = static_cast<int64_t>(bytes.size()) * 8;
    if (at >= bits) {
      at -= bits;
      continue;
    }
    std::string flipped = bytes;
    At(flipped, at / 8) ^= static_cast<char>(1 << at % 8);
    testing::WriteOrDie(folder.File(name), flipped);
    return name;
  }
  return "";
}

}  // namespace delink::fuzz
