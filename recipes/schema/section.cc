#include "recipes/schema/section.h"

#include <cmath>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace delink {

using schema::Field;
using schema::Report;
using schema::Value;

namespace schema {

void Report::WrongType(const Value& value, std::string_view expected) {
  Error(value.source,
        absl::StrFormat("expected %s, got %s", expected, Describe(value)));
}

}  // namespace schema

namespace {

template <typename AnyKey>
Field MakeField(std::string_view name, std::string type, const AnyKey& key) {
  Field field;
  field.name = std::string(name);
  field.type = std::move(type);
  field.doc = std::string(key.doc);
  field.required = key.required;
  field.fixed = key.fixed;
  field.when_omitted = std::string(key.when_omitted);
  return field;
}

// The range of a number, and its text.
struct Range {
  std::optional<double> min, above, max, below;

  bool Holds(double x) const {
    return std::isfinite(x) && (!min || x >= *min) && (!above || x > *above) &&
           (!max || x <= *max) && (!below || x < *below);
  }
  std::string Text() const {
    std::string low, high;
    if (min) low = absl::StrFormat("at least %s", schema::ToToml(Value(*min)));
    if (above) low = absl::StrFormat("above %s", schema::ToToml(Value(*above)));
    if (max) high = absl::StrFormat("at most %s", schema::ToToml(Value(*max)));
    if (below) {
      high = absl::StrFormat("below %s", schema::ToToml(Value(*below)));
    }
    return low.empty() || high.empty() ? low + high : low + ", " + high;
  }
};

Range RangeOf(const FloatKey& key) {
  return {key.min, key.above, key.max, key.below};
}

bool Holds(const IntKey& key, int64_t x) {
  return (!key.min || x >= *key.min) && (!key.max || x <= *key.max);
}

std::string RangeText(const IntKey& key) {
  if (key.min && key.max) {
    return *key.min == *key.max ? absl::StrCat(*key.min)
                                : absl::StrCat(*key.min, " to ", *key.max);
  }
  if (key.min) return absl::StrCat("at least ", *key.min);
  return key.max ? absl::StrCat("at most ", *key.max) : "";
}

// For docs/recipe.md, which leaves out limits far above any use.
std::string ShownRange(IntKey key) {
  if (key.max && *key.max >= (1 << 20)) key.max.reset();
  return RangeText(key);
}

std::string TypeText(std::string_view type, const std::string& range) {
  return range.empty() ? std::string(type)
                       : absl::StrFormat("%s, %s", type, range);
}

std::optional<int64_t> ReadInt(const Value& value, const IntKey& key,
                               Report& report) {
  const int64_t* x = value.As<int64_t>();
  if (x == nullptr) {
    report.WrongType(value, "an integer");
    return std::nullopt;
  }
  if (!Holds(key, *x)) {
    report.Error(value.source,
                 absl::StrFormat("%d is out of range: %s", *x, RangeText(key)));
    return std::nullopt;
  }
  return *x;
}

std::optional<double> ReadFloat(const Value& value, const Range& range,
                                Report& report) {
  double x = 0;
  if (const double* real = value.As<double>()) {
    x = *real;
  } else if (const int64_t* whole = value.As<int64_t>()) {
    x = static_cast<double>(*whole);
  } else {
    report.WrongType(value, "a number");
    return std::nullopt;
  }
  if (!range.Holds(x)) {
    const std::string wanted = range.Text();
    report.Error(
        value.source,
        absl::StrFormat("%s is out of range: %s", schema::ToToml(value),
                        wanted.empty() ? "a finite number" : wanted));
    return std::nullopt;
  }
  return x;
}

const schema::List* ReadList(const Value& value, size_t size, Report& report) {
  const schema::List* list = value.As<schema::List>();
  if (list == nullptr) {
    report.WrongType(value, "a list of numbers");
    return nullptr;
  }
  if (list->size() != size) {
    report.Error(value.source, absl::StrFormat("expected %d numbers, got %d",
                                               size, list->size()));
    return nullptr;
  }
  return list;
}

// The hint for a path of --set that does not exist, while the current folder,
// from which a shell would take it, has something of that name; else "".
std::string ElsewhereThan(const std::filesystem::path& path,
                          const std::string& given,
                          const schema::Source& source) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!source.origin.starts_with("--set ") || fs::exists(path, error)) {
    return "";
  }
  const fs::path here = fs::absolute(given, error);
  if (error || !fs::exists(here, error)) return "";
  return absl::StrFormat(
      "there is no %s: a path in a recipe is relative to the recipe's folder; "
      "the current folder has %s",
      path.string(), here.lexically_normal().string());
}

}  // namespace

void Section::Int(std::string_view name, int64_t* value, const IntKey& key) {
  Field field = MakeField(name, TypeText("integer", ShownRange(key)), key);
  field.read = [=](const Value& given, Report& report) {
    if (const auto x = ReadInt(given, key, report)) *value = *x;
  };
  field.write = [=]() -> std::optional<Value> {
    if (!key.when_omitted.empty() && *value == 0) return std::nullopt;
    return Value(*value);
  };
  Visit(field);
}

void Section::Int(std::string_view name, std::optional<int64_t>* value,
                  const IntKey& key) {
  Field field = MakeField(name, TypeText("integer", ShownRange(key)), key);
  field.read = [=](const Value& given, Report& report) {
    if (const auto x = ReadInt(given, key, report)) *value = *x;
  };
  field.write = [=]() -> std::optional<Value> {
    if (!value->has_value()) return std::nullopt;
    return Value(**value);
  };
  Visit(field);
}

void Section::Float(std::string_view name, double* value, const FloatKey& key) {
  const Range range = RangeOf(key);
  Field field = MakeField(name, TypeText("number", range.Text()), key);
  field.read = [=](const Value& given, Report& report) {
    if (const auto x = ReadFloat(given, range, report)) *value = *x;
  };
  field.write = [=]() -> std::optional<Value> {
    if (!key.when_omitted.empty() && *value == 0) return std::nullopt;
    return Value(*value);
  };
  Visit(field);
}

void Section::Float(std::string_view name, std::optional<double>* value,
                    const FloatKey& key) {
  const Range range = RangeOf(key);
  Field field = MakeField(name, TypeText("number", range.Text()), key);
  field.read = [=](const Value& given, Report& report) {
    if (const auto x = ReadFloat(given, range, report)) *value = *x;
  };
  field.write = [=]() -> std::optional<Value> {
    if (!value->has_value()) return std::nullopt;
    return Value(**value);
  };
  Visit(field);
}

void Section::Bool(std::string_view name, bool* value, const Key& key) {
  Field field = MakeField(name, "true or false", key);
  field.read = [=](const Value& given, Report& report) {
    if (const bool* x = given.As<bool>()) {
      *value = *x;
    } else {
      report.WrongType(given, "true or false");
    }
  };
  field.write = [=] { return Value(*value); };
  Visit(field);
}

void Section::Bool(std::string_view name, std::optional<bool>* value,
                   const Key& key) {
  Field field = MakeField(name, "true or false", key);
  field.read = [=](const Value& given, Report& report) {
    if (const bool* x = given.As<bool>()) {
      *value = *x;
    } else {
      report.WrongType(given, "true or false");
    }
  };
  field.write = [=]() -> std::optional<Value> {
    if (!value->has_value()) return std::nullopt;
    return Value(**value);
  };
  Visit(field);
}

void Section::String(std::string_view name, std::string* value,
                     const Key& key) {
  Field field = MakeField(name, "string", key);
  field.read = [=](const Value& given, Report& report) {
    const std::string* x = given.As<std::string>();
    if (x == nullptr) {
      report.WrongType(given, "a string");
    } else if (x->empty()) {
      report.Error(given.source, "must not be empty");
    } else {
      *value = *x;
    }
  };
  field.write = [=]() -> std::optional<Value> {
    if (value->empty()) return std::nullopt;
    return Value(*value);
  };
  Visit(field);
}

void Section::Path(std::string_view name, std::string* value, const Key& key) {
  Field field = MakeField(name, "path", key);
  field.read = [=](const Value& given, Report& report) {
    const std::string* x = given.As<std::string>();
    if (x == nullptr) {
      report.WrongType(given, "a path");
    } else if (x->empty() || x->find('\0') != std::string::npos) {
      report.Error(given.source, "is not a path");
    } else {
      std::filesystem::path path =
          (std::filesystem::path(report.folder()) / *x).lexically_normal();
      const std::string meant = ElsewhereThan(path, *x, given.source);
      if (!meant.empty()) return report.Error(given.source, meant);
      // "corpus/train/" is "corpus/train".
      if (!path.has_filename() && path.has_relative_path()) {
        path = path.parent_path();
      }
      *value = path.string();
    }
  };
  field.write = [=]() -> std::optional<Value> {
    if (value->empty()) return std::nullopt;
    return Value(*value);
  };
  Visit(field);
}

void Section::Ints(std::string_view name, std::vector<int64_t>* value,
                   const IntKey& key) {
  Field field =
      MakeField(name, TypeText("list of integers", ShownRange(key)), key);
  field.read = [=](const Value& given, Report& report) {
    const schema::List* list = given.As<schema::List>();
    if (list == nullptr) return report.WrongType(given, "a list of integers");
    std::vector<int64_t> all;
    for (const Value& item : *list) {
      if (const auto x = ReadInt(item, key, report)) all.push_back(*x);
    }
    if (all.size() == list->size()) *value = all;
  };
  field.write = [=]() -> std::optional<Value> {
    if (value->empty()) return std::nullopt;
    schema::List list;
    for (const int64_t x : *value) list.emplace_back(x);
    return Value(std::move(list));
  };
  Visit(field);
}

void Section::Floats(std::string_view name, std::vector<double>* value,
                     const FloatKey& key) {
  const Range range = RangeOf(key);
  const std::string type = absl::StrFormat("%d numbers", key.size);
  Field field = MakeField(name, TypeText(type, range.Text()), key);
  field.read = [=](const Value& given, Report& report) {
    const schema::List* list = ReadList(given, key.size, report);
    if (list == nullptr) return;
    std::vector<double> all;
    for (const Value& item : *list) {
      if (const auto x = ReadFloat(item, range, report)) all.push_back(*x);
    }
    if (all.size() == list->size()) *value = all;
  };
  field.write = [=]() -> std::optional<Value> {
    if (value->empty()) return std::nullopt;
    schema::List list;
    for (const double x : *value) list.emplace_back(x);
    return Value(std::move(list));
  };
  Visit(field);
}

Field Section::ChoiceField(std::string_view name,
                           const std::vector<std::string>& names,
                           std::optional<size_t> index, const Key& key,
                           std::function<void(size_t)> choose) {
  std::vector<std::string> quoted;
  for (const std::string& word : names) {
    quoted.push_back(absl::StrFormat("\"%s\"", word));
  }
  const std::string all = absl::StrJoin(quoted, ", ");
  Field field = MakeField(name, absl::StrJoin(quoted, " or "), key);
  field.read = [=](const Value& given, Report& report) {
    const std::string* word = given.As<std::string>();
    if (word == nullptr) return report.WrongType(given, "one of " + all);
    for (size_t i = 0; i < names.size(); ++i) {
      if (names[i] == *word) return choose(i);
    }
    report.Error(
        given.source,
        absl::StrFormat("expected one of %s, got %s%s", all, Describe(given),
                        schema::Suggestion(*word, names)));
  };
  field.write = [=]() -> std::optional<Value> {
    if (!index) return std::nullopt;
    return Value(names[*index]);
  };
  return field;
}

}  // namespace delink
