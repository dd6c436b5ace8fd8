#include "recipes/saved/layout_sets.h"

#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "recipes/schema/toml.h"

namespace delink {
namespace {

absl::Status Refused(std::string_view set, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("--set ", std::string(set), ": ", std::string(why)));
}

// The word in front of the next dot, or all of `key`, taken away from it.
std::string_view Word(std::string_view* key) {
  const size_t dot = key->find('.');
  const std::string_view word = key->substr(0, dot);
  *key = dot == std::string_view::npos ? "" : key->substr(dot + 1);
  return word;
}

absl::Status SetOne(std::string_view set, std::string_view key,
                    const schema::Value& value, ParallelConfig& parallel) {
  if (key != "tensor" && key != "pipeline") {
    return Refused(set,
                   absl::StrCat("ranks have a checkpoint's weights together by "
                                "tensor and pipeline alone; leave ",
                                std::string(key), " out"));
  }
  const int64_t* const ranks = value.As<int64_t>();
  if (ranks == nullptr || *ranks < 1) {
    return Refused(set, absl::StrCat("parallel.", std::string(key),
                                     " is a whole number of at least 1, not ",
                                     schema::Describe(value)));
  }
  (key == "tensor" ? parallel.tensor : parallel.pipeline) = *ranks;
  return absl::OkStatus();
}

absl::Status Set(std::string_view set, size_t stage, ParallelConfig& parallel) {
  const std::string wanted = absl::StrCat("stage.", stage, ".parallel");
  const size_t equals = set.find('=');
  std::string_view key = set.substr(0, equals);
  const std::string_view list = Word(&key), number = Word(&key);
  const bool numbered =
      !number.empty() &&
      number.find_first_not_of("0123456789") == std::string_view::npos;
  if (equals == std::string_view::npos || list != "stage" || !numbered ||
      Word(&key) != "parallel") {
    return Refused(set,
                   absl::StrCat("of a checkpoint's recipe only how ranks are "
                                "arranged may be another: ",
                                wanted, ".tensor and ", wanted, ".pipeline"));
  }
  if (number != absl::StrCat(stage)) {
    return Refused(set, absl::StrCat("the checkpoint is of stage ", stage,
                                     ", and of no other are ranks arranged; "
                                     "give ",
                                     wanted));
  }
  const schema::Value value = schema::ParseSetValue(
      set.substr(equals + 1), {absl::StrCat("--set ", std::string(set))});
  if (!key.empty()) return SetOne(set, key, value, parallel);
  const schema::Table* const table = value.As<schema::Table>();
  if (table == nullptr) {
    return Refused(set, absl::StrCat("expected a table, as in ", wanted,
                                     "={tensor=2}, or a key, as in ", wanted,
                                     ".tensor=2"));
  }
  parallel.tensor = parallel.pipeline = 1;
  for (const schema::Member& member : *table) {
    const absl::Status status = SetOne(set, member.key, member.value, parallel);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SetLayout(const std::vector<std::string>& sets, size_t stage,
                       ParallelConfig& parallel) {
  for (const std::string& set : sets) {
    const absl::Status status = Set(set, stage, parallel);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace delink
