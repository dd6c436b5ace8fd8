// How a checkpoint of another model holds the tensors of this one. Everything
// that reads values by name (CheckpointValues, ReadSharing, LoadWeights) can
// read it as if it were this model's.
#pragma once

#include <map>
#include <string>

namespace delink {

struct SavedAs {
  struct Source {
    std::string name;       // in the checkpoint; empty: it is not there
    bool repeated = false;  // [E, ...] is E copies of what is saved
  };
  // By the tensor's name in this model. Others are saved by their own names.
  std::map<std::string, Source> sources;

  bool empty() const { return sources.empty(); }
  const std::string& NameOf(const std::string& tensor) const {
    const auto at = sources.find(tensor);
    return at == sources.end() ? tensor : at->second.name;
  }
  // Whether the checkpoint lacks it, so that it begins fresh.
  bool IsFresh(const std::string& tensor) const {
    return NameOf(tensor).empty();
  }
  bool IsRepeated(const std::string& tensor) const {
    const auto at = sources.find(tensor);
    return at != sources.end() && at->second.repeated;
  }
};

}  // namespace delink
