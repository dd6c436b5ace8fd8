// A folder of safetensors as `transformers` writes it: model.safetensors, or
// model.safetensors.index.json and the shards that it names.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/safetensors/file.h"

namespace delink::safetensors {

inline constexpr char kSingleName[] = "model.safetensors";
inline constexpr char kIndexName[] = "model.safetensors.index.json";

// Thread-safe. Move-only.
class Folder {
 public:
  struct Tensor {
    const File* file = nullptr;
    const Entry* entry = nullptr;
  };

  // If both exist, model.safetensors is used, as in `transformers`. Every
  // tensor of the index must be in the shard that it names, and every tensor of
  // a shard in the index; otherwise one error names all that are not.
  static absl::StatusOr<Folder> Open(const std::string& dir);

  // As RandomAccessFile does, of all files.
  void ReadPastCache() {
    for (File& file : files_) file.ReadPastCache();
  }

  const std::string& path() const { return path_; }
  // Those named by the index, by name.
  const std::deque<File>& files() const { return files_; }
  // All, by name.
  const std::map<std::string, Tensor, std::less<>>& tensors() const {
    return tensors_;
  }
  // Null if none has that name. Valid as long as this.
  const Tensor* Find(std::string_view name) const;

 private:
  explicit Folder(std::string path) : path_(std::move(path)) {}
  absl::Status OpenShards();

  std::string path_;
  std::deque<File> files_;  // elements never move
  std::map<std::string, Tensor, std::less<>> tensors_;
};

}  // namespace delink::safetensors
