#include "recipes/saved/layout_sets.h"

#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "recipes/schema/limits.h"
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
  int64_t* const to = key == "tensor"     ? &parallel.tensor
                      : key == "pipeline" ? &parallel.pipeline
                      : key == "expert"   ? &parallel.expert
                      : key == "zero"     ? &parallel.zero
                      : key == "shard"    ? &parallel.shard
                                          : nullptr;
  if (to == nullptr) {
    return Refused(
        set, absl::StrCat("only tensor, pipeline, expert, zero = 3 and shard "
                          "divide a checkpoint's weights among ranks; leave ",
                          std::string(key), " out"));
  }
  const int64_t* const number = value.As<int64_t>();
  if (key == "zero") {
    if (number != nullptr && (*number == 1 || *number == 2)) {
      return Refused(set, absl::StrCat("zero = ", *number,
                                       " keeps whole weights on each rank; use "
                                       "zero = 3, or leave zero out"));
    }
    if (number == nullptr || (*number != 0 && *number != 3)) {
      return Refused(set, absl::StrCat("parallel.zero is 0 or 3, not ",
                                       schema::Describe(value)));
    }
  } else if (const int64_t least = key == "shard" ? 0 : 1;
             number == nullptr || *number < least ||
             *number > schema::kMaxRanks) {
    return Refused(set, absl::StrCat("parallel.", std::string(key),
                                     " is a whole number of at least ", least,
                                     " and at most ", schema::kMaxRanks,
                                     ", not ", schema::Describe(value)));
  }
  *to = *number;
  return absl::OkStatus();
}

// The parts of "stage.N.parallel.tensor=2", where N must be `stage`.
struct StageSet {
  std::string_view table, key;  // "parallel", "tensor", which may be empty
  std::string_view value;
};

absl::StatusOr<StageSet> Parse(std::string_view set, size_t stage) {
  const std::string of = absl::StrCat("stage.", stage);
  const size_t equals = set.find('=');
  std::string_view key = set.substr(0, equals);
  const std::string_view list = Word(&key), number = Word(&key);
  const std::string_view table = Word(&key);
  const bool numbered =
      !number.empty() &&
      number.find_first_not_of("0123456789") == std::string_view::npos;
  if (equals == std::string_view::npos || list != "stage" || !numbered ||
      (table != "parallel" && table != "offload")) {
    return Refused(
        set, absl::StrCat("of a checkpoint's recipe only the placement "
                          "of weights can be set: ",
                          of, ".parallel.tensor, ", of, ".parallel.pipeline, ",
                          of, ".parallel.expert, ", of, ".parallel.zero, ", of,
                          ".parallel.shard and ", of, ".offload"));
  }
  if (number != absl::StrCat(stage)) {
    return Refused(
        set, absl::StrCat("the checkpoint was saved in stage ", stage,
                          ", so only that stage can be set; give ", of, ".",
                          std::string(table)));
  }
  return StageSet{.table = table, .key = key, .value = set.substr(equals + 1)};
}

absl::Status SetAll(std::string_view set, const StageSet& parsed,
                    ParallelConfig& parallel) {
  const schema::Value value = schema::ParseSetValue(
      parsed.value, {absl::StrCat("--set ", std::string(set))});
  if (!parsed.key.empty()) return SetOne(set, parsed.key, value, parallel);
  const schema::Table* const table = value.As<schema::Table>();
  if (table == nullptr) {
    const std::string_view key = set.substr(0, set.find('='));
    return Refused(
        set, absl::StrCat("expected a table, as in ", std::string(key),
                          "={tensor=2}, or a key, as in ", std::string(key),
                          ".tensor=2"));
  }
  parallel.tensor = parallel.pipeline = parallel.expert = 1;
  parallel.zero = parallel.shard = 0;
  for (const schema::Member& member : *table) {
    const absl::Status status = SetOne(set, member.key, member.value, parallel);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SavedSets> SortSets(const std::vector<std::string>& sets,
                                   size_t stage) {
  SavedSets sorted;
  for (const std::string& set : sets) {
    DELINK_ASSIGN_OR_RETURN(const StageSet parsed, Parse(set, stage));
    (parsed.table == "parallel" ? sorted.parallel : sorted.offload)
        .push_back(set);
  }
  return sorted;
}

absl::Status SetParallel(const std::vector<std::string>& sets, size_t stage,
                         ParallelConfig& parallel) {
  for (const std::string& set : sets) {
    DELINK_ASSIGN_OR_RETURN(const StageSet parsed, Parse(set, stage));
    DELINK_RETURN_IF_ERROR(SetAll(set, parsed, parallel));
  }
  if (!sets.empty() && parallel.shard > 0 && parallel.zero < 3) {
    return Refused(sets.back(), absl::StrCat("shard = ", parallel.shard,
                                             ", but zero = ", parallel.zero,
                                             " keeps whole weights; use "
                                             "zero = 3, or shard = 0"));
  }
  return absl::OkStatus();
}

}  // namespace delink
