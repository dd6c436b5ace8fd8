#include "tools/sweep/spec.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "recipes/schema/reader.h"
#include "recipes/schema/toml.h"

namespace delink::sweep {
namespace {

using schema::Field;
using schema::List;
using schema::Report;
using schema::Value;

// A value as shown in a table.
std::string Label(const Value& value) {
  const auto* text = value.As<std::string>();
  return text != nullptr ? *text : schema::ToToml(value);
}

// A list; `take` accepts or refuses each element.
void ListKey(Section& section, std::string name, std::string type,
             std::string doc, bool required,
             std::function<bool(const Value&)> take) {
  Field field;
  field.name = std::move(name);
  field.type = std::move(type);
  field.doc = std::move(doc);
  field.required = required;
  field.read = [type = field.type, take](const Value& given, Report& report) {
    const auto* list = given.As<List>();
    if (list == nullptr || list->empty()) {
      report.WrongType(given, type);
      return;
    }
    for (const Value& value : *list) {
      if (!take(value)) report.WrongType(value, "an element of " + type);
    }
  };
  section.Custom(field);
}

void TextsKey(Section& section, std::string name, std::string doc,
              bool required, std::vector<std::string>* to) {
  ListKey(section, std::move(name), "a list of strings", std::move(doc),
          required, [to](const Value& value) {
            const auto* text = value.As<std::string>();
            if (text != nullptr) to->push_back(*text);
            return text != nullptr;
          });
}

void NumbersKey(Section& section, std::string name, std::string doc,
                int64_t least, std::vector<int64_t>* to) {
  ListKey(section, std::move(name),
          absl::StrCat("a list of integers of at least ", least),
          std::move(doc), false, [to, least](const Value& value) {
            const auto* number = value.As<int64_t>();
            if (number == nullptr || *number < least) return false;
            to->push_back(*number);
            return true;
          });
}

// May be more than an integer can hold, such as 1e21.
void FlopsKey(Section& section, std::string name, std::string doc,
              std::vector<double>* to) {
  ListKey(
      section, std::move(name), "a list of numbers above 0", std::move(doc),
      false, [to](const Value& value) {
        const auto* whole = value.As<int64_t>();
        const auto* real = value.As<double>();
        if (whole == nullptr && real == nullptr) return false;
        to->push_back(real != nullptr ? *real : static_cast<double>(*whole));
        return to->back() > 0 && std::isfinite(to->back());
      });
}

// Returns what is wrong with the values of an axis, or an empty string.
std::string TakeValues(const std::vector<Value>& values,
                       const std::vector<std::string>& labels, Axis* axis) {
  if (!labels.empty() && labels.size() != values.size()) {
    return absl::StrFormat("%d labels for %d values", labels.size(),
                           values.size());
  }
  std::set<std::string> seen;
  for (size_t i = 0; i < values.size(); ++i) {
    Axis::Choice choice{.label = labels.empty() ? "" : labels[i]};
    std::vector<Value> parts = {values[i]};
    if (axis->keys.size() > 1) {
      const auto* list = values[i].As<List>();
      if (list == nullptr || list->size() != axis->keys.size()) {
        return absl::StrFormat(
            "values[%d] has to be a list of %d, one value for each key", i,
            axis->keys.size());
      }
      parts = *list;
    }
    for (const Value& part : parts) {
      choice.values.push_back(schema::ToToml(part));
      if (labels.empty()) {
        absl::StrAppend(&choice.label, choice.label.empty() ? "" : "+",
                        Label(part));
      }
    }
    if (!seen.insert(choice.label).second) {
      return absl::StrCat("'", choice.label,
                          "' occurs twice; give other `labels`");
    }
    axis->choices.push_back(std::move(choice));
  }
  return "";
}

void DescribeAxis(Section& s, Axis& axis) {
  std::string key;
  std::vector<std::string> labels;
  std::vector<Value> values;
  s.String("name", &axis.name,
           {.doc = "what tables call it",
            .when_omitted = "the last word of the key"});
  s.String("key", &key,
           {.doc = "a key of the recipe, as --set has it, or \"recipe\"",
            .when_omitted = "see keys"});
  TextsKey(s, "keys", "keys that move together", false, &axis.keys);
  ListKey(s, "values", "a list",
          "what the key takes in turn; with `keys` a "
          "list for each",
          true, [&](const Value& value) {
            values.push_back(value);
            return true;
          });
  TextsKey(s, "labels", "what tables call the values", false, &labels);
  if (!s.complete()) return;
  if (key.empty() == axis.keys.empty()) {
    s.Error("key", "give either `key` or `keys`");
    return;
  }
  if (axis.keys.empty()) axis.keys = {key};
  if (axis.name.empty()) {
    const std::string& first = axis.keys.front();
    axis.name = first.substr(first.rfind('.') + 1);
  }
  const std::string problem = TakeValues(values, labels, &axis);
  if (!problem.empty()) s.Error("values", problem);
}

void DescribeSkip(Section& s, Skip& skip) {
  Field where;
  where.name = "where";
  where.type = "a table of axes with a value or a list of values each";
  where.doc = "combinations that have one of these on each of the axes";
  where.required = true;
  where.read = [&](const Value& given, Report& report) {
    const auto* table = given.As<schema::Table>();
    if (table == nullptr || table->empty()) {
      report.WrongType(given, where.type);
      return;
    }
    for (const schema::Member& member : *table) {
      std::vector<std::string> labels;
      if (const auto* list = member.value.As<List>()) {
        for (const Value& value : *list) labels.push_back(Label(value));
      } else {
        labels.push_back(Label(member.value));
      }
      skip.emplace_back(member.key, std::move(labels));
    }
  };
  s.Custom(where);
}

void CheckSeeds(Section& s, const std::vector<int64_t>& seeds) {
  std::set<int64_t> seen;
  for (const int64_t seed : seeds) {
    if (seen.insert(seed).second) continue;
    s.Error("seeds", absl::StrCat(seed,
                                  " occurs twice; both runs would be the same, "
                                  "so remove one"));
  }
}

// Checks across the file: axes with the same name, and the names in `skip`.
void CheckNames(Section& s, const Spec& spec) {
  std::vector<std::string> names;
  bool chooses = false;
  for (const Axis& axis : spec.axes) {
    if (axis.name == "seed" ||
        std::find(names.begin(), names.end(), axis.name) != names.end()) {
      s.Error("axis", absl::StrCat("two axes are called '", axis.name,
                                   "'; give one a `name`"));
    }
    names.push_back(axis.name);
    for (const std::string& key : axis.keys) {
      chooses |= key == kRecipeKey;
      if (key != "run.seed") continue;
      s.Error("axis",
              "run.seed cannot be the key of an axis; list the `seeds` "
              "instead");
    }
  }
  if (chooses == !spec.recipe.empty()) {
    s.Error("recipe", chooses ? "given, but an axis chooses it as well; remove "
                                "one of the two"
                              : "required, unless an axis has it as its key");
  }
  for (const Skip& skip : spec.skips) {
    for (const auto& [name, labels] : skip) {
      const auto axis = std::find_if(
          spec.axes.begin(), spec.axes.end(),
          [&name = name](const Axis& a) { return a.name == name; });
      if (axis == spec.axes.end()) {
        s.Error("skip", absl::StrCat("there is no axis '", name, "'",
                                     schema::Suggestion(name, names)));
        continue;
      }
      for (const std::string& label : labels) {
        if (std::any_of(
                axis->choices.begin(), axis->choices.end(),
                [&](const Axis::Choice& c) { return c.label == label; })) {
          continue;
        }
        s.Error("skip",
                absl::StrCat("axis '", name, "' has no value '", label, "'"));
      }
    }
  }
}

void DescribeSpec(Section& s, Spec& spec) {
  constexpr int64_t kMaxRanks = 1 << 10;
  s.Path("recipe", &spec.recipe,
         {.doc = "the recipe, relative to this file",
          .when_omitted = "an axis has the key \"recipe\""});
  TextsKey(s, "set", "keys of the recipe, as --set has them", false,
           &spec.sets);
  NumbersKey(s, "seeds", "run.seed of each run of a combination", 0,
             &spec.seeds);
  s.Int("ranks", &spec.ranks,
        {.doc = "processes of a run; more than one are started by mpirun",
         .min = 1,
         .max = kMaxRanks});
  NumbersKey(s, "at_tokens", "tokens after which losses are tabulated", 1,
             &spec.at_tokens);
  NumbersKey(s, "at_seconds", "the same in seconds of training", 1,
             &spec.at_seconds);
  FlopsKey(s, "at_flops", "the same in FLOPs computed", &spec.at_flops);
  s.SubTables<Axis>("axis", {.doc = "what is varied"}, &spec.axes,
                    DescribeAxis);
  s.SubTables<Skip>("skip", {.doc = "what is left out"}, &spec.skips,
                    DescribeSkip);
  if (!s.complete()) return;
  CheckSeeds(s, spec.seeds);
  CheckNames(s, spec);
}

}  // namespace

absl::StatusOr<Spec> ReadSpec(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  DELINK_ASSIGN_OR_RETURN(const schema::Table document,
                          schema::ParseToml(text, path));
  Spec spec{.path = path, .folder = ParentPath(path)};
  Positions positions(path);
  schema::ReadContext context{.positions = &positions, .folder = spec.folder};
  schema::Reader reader(document, "", &context);
  DescribeSpec(reader, spec);
  reader.Finish();
  DELINK_RETURN_IF_ERROR(context.problems.ToStatus());
  return spec;
}

}  // namespace delink::sweep
