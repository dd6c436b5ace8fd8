// Values by name that a checkpoint keeps for its writer, without knowing what
// they mean.
//
// In index.h5 a number or a text is an attribute, "samples" one of the root,
// "sources/0/samples" one of the group /sources/0; a list is a dataset,
// /stage/losses. Names do not begin with "model/" or "optimizer/".
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace delink {

using NamedValues =
    std::map<std::string,
             std::variant<int64_t, double, std::string, std::vector<double>>>;

// A variable that is kept under a name.
struct KeptValue {
  std::string name;
  std::variant<int64_t*, double*, std::string*, std::vector<double>*> value;
  // An empty value (for a real number: NaN) is not stored. If none is stored,
  // the variable keeps its value.
  bool optional = false;
};

void PutValues(const std::vector<KeptValue>& kept, NamedValues& values);

// Moves what is kept out of `values`, into the variables. Errors name `path`,
// the checkpoint, and the first value that is missing or of another kind.
absl::Status TakeValues(const std::string& path,
                        const std::vector<KeptValue>& kept,
                        NamedValues& values);

// The error of a checkpoint with an impossible value, which `what` describes.
absl::Status Impossible(const std::string& path, std::string_view what);

// Checks that the count `name` is from 0 to `most`.
absl::Status CheckCount(const std::string& path, std::string_view name,
                        int64_t value, int64_t most);

}  // namespace delink
