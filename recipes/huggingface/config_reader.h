// A config.json, read key by key, strictly: whoever reads it says what each key
// may be, and a key that nobody reads is an error unless it is known to change
// nothing that a model computes. All problems are told at once.
//
// A key that is null is as one that is not there.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

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

  // Whether it is there, and no null; whether it is there at all.
  bool Has(std::string_view key) const;
  bool Given(std::string_view key) const;

  // The value, or `otherwise`, what `transformers` takes for a key that is not
  // there; without one the key is required. A value of another type, or out of
  // range, is a problem, and then the result is some value in range.
  int64_t Int(std::string_view key, std::optional<int64_t> otherwise = {},
              int64_t min = 1, int64_t max = kMaxSize);
  double Float(std::string_view key, std::optional<double> otherwise = {});
  bool Bool(std::string_view key, std::optional<bool> otherwise = {});
  std::string Text(std::string_view key,
                   std::optional<std::string> otherwise = {});

  // That the key has this value, the one that our model has, where it is there
  // at all. `why`: what the model cannot do.
  void MustBe(std::string_view key, bool value, std::string_view why);
  void MustBe(std::string_view key, double value, std::string_view why);

  // Whether the texts of a list are all `value`; also where there is no list.
  bool AllAre(std::string_view key, std::string_view value);

  // A key that says nothing of what the model computes; all that are left,
  // which say nothing once there is an error.
  void PassOver(std::string_view key);
  void PassOverAll();
  // The object under a key, read like this one; empty where there is none.
  ConfigReader& Table(std::string_view key);

  // "NAME: key: message".
  void Error(std::string_view key, std::string_view message);
  // InvalidArgument with all problems, a line each, those of tables and of keys
  // that nobody has read among them.
  absl::Status Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace delink::huggingface
