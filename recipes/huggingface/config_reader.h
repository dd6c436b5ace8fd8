// Reads a config.json key by key, strictly. The caller says what values each
// key may have. A key that is not read is an error, unless it is known not to
// affect what a model computes. All problems are reported at once.
//
// A null key counts as missing.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace delink::huggingface {

class ConfigReader {
 public:
  // Larger than any size of a model.
  static constexpr int64_t kMaxSize = 1 << 24;

  // `name`: of the file, for messages. `config` is an object.
  ConfigReader(std::string name, const nlohmann::json& config);
  ConfigReader(const ConfigReader&) = delete;
  ConfigReader& operator=(const ConfigReader&) = delete;
  ~ConfigReader();

  // Whether the key is given and not null; whether it is given, maybe as null.
  bool Has(std::string_view key) const;
  bool Given(std::string_view key) const;

  // The value, or `otherwise`, the default of `transformers`, if the key is
  // missing. Without `otherwise` the key is required. A value of another type
  // or out of range is a problem; the result is then some value in range.
  int64_t Int(std::string_view key, std::optional<int64_t> otherwise = {},
              int64_t min = 1, int64_t max = kMaxSize);
  double Float(std::string_view key, std::optional<double> otherwise = {});
  bool Bool(std::string_view key, std::optional<bool> otherwise = {});
  std::string Text(std::string_view key,
                   std::optional<std::string> otherwise = {});

  // Checks that the key, if given, has this value, which our model has. `why`:
  // what the model cannot do.
  void MustBe(std::string_view key, bool value, std::string_view why);
  void MustBe(std::string_view key, double value, std::string_view why);

  // Whether the texts of a list are all `value`; true without a list.
  bool AllAre(std::string_view key, std::string_view value);

  // A list of integers; empty without it.
  std::vector<int64_t> Ints(std::string_view key);

  // Ignores a key that does not affect what the model computes; ignores all
  // remaining keys, for use after an error.
  void PassOver(std::string_view key);
  void PassOverAll();
  // The object under a key, read like this one; empty if there is none.
  ConfigReader& Table(std::string_view key);

  // "NAME: key: message".
  void Error(std::string_view key, std::string_view message);
  // InvalidArgument with all problems, a line each, including those of tables
  // and of keys that were not read.
  absl::Status Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace delink::huggingface
