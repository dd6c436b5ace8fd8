// One description of each key of a recipe: its name, type, default, range and
// meaning. Reading, the saved resolved recipe, the comparison of two recipes
// and docs/recipe.md all use it.
//
// A struct describes itself to a Section. The section reads a file into the
// struct, writes it out or documents it:
//
//   void Describe(Section& s) {
//     s.Int("heads", &heads, {.doc = "attention heads", .min = 1});
//     s.Int("kv_heads", &kv_heads,
//           {.doc = "key/value heads", .when_omitted = "heads", .min = 1});
//     if (!s.complete()) return;
//     if (kv_heads == 0) kv_heads = heads;
//     if (heads % kv_heads != 0) s.Error("kv_heads", "does not divide heads");
//   }
//
// The member's initial value is the default. `when_omitted` says in words what
// an omitted key means. The member of such a key is 0 or "", which no recipe
// may give, until the description or a later step resolves it. `fixed` marks a
// key that may not change when a run resumes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "recipes/schema/field.h"

namespace delink {

struct Key {
  std::string_view doc;
  bool required = false;
  bool fixed = false;
  std::string_view when_omitted = {};
};

struct IntKey {
  std::string_view doc;
  bool required = false;
  bool fixed = false;
  std::string_view when_omitted = {};
  std::optional<int64_t> min = {};
  std::optional<int64_t> max = {};
};

struct FloatKey {
  std::string_view doc;
  bool required = false;
  bool fixed = false;
  std::string_view when_omitted = {};
  std::optional<double> min = {};
  std::optional<double> above = {};  // exclusive
  std::optional<double> max = {};
  std::optional<double> below = {};  // exclusive
  size_t size = 0;                   // of a list
};

// The values of an enum, numbered from 0, that have a word in recipes. `word`
// is a switch without a default, so that -Werror=switch reports a forgotten
// value. "" marks a value that no recipe may give:
//
//   std::string_view Word(Gate gate) {
//     switch (gate) {
//       case Gate::kSoft:
//         return "soft";
//       case Gate::kHard:
//         return "hard";
//     }
//     return "";
//   }
//   ... s.Enum("gate", &gate, Word, {.doc = "how it closes"});
template <typename E>
std::vector<E> ValuesOf(std::string_view (*word)(E)) {
  constexpr int kMost = 64;
  std::vector<E> values;
  for (int i = 0; i < kMost; ++i) {
    const auto value = static_cast<E>(i);
    if (!word(value).empty()) values.push_back(value);
  }
  return values;
}

struct TableKey {
  std::string_view doc;
  bool fixed = false;  // applies to every key in it
  // Suggested if a value was given instead of a table.
  std::string_view instead = {};
};

class Section {
 public:
  virtual ~Section() = default;

  void Int(std::string_view name, int64_t* value, const IntKey& key);
  void Int(std::string_view name, std::optional<int64_t>* value,
           const IntKey& key);
  void Float(std::string_view name, double* value, const FloatKey& key);
  void Float(std::string_view name, std::optional<double>* value,
             const FloatKey& key);
  void Bool(std::string_view name, bool* value, const Key& key);
  void Bool(std::string_view name, std::optional<bool>* value, const Key& key);
  void String(std::string_view name, std::string* value, const Key& key);
  // Read relative to the recipe's folder, stored as absolute.
  void Path(std::string_view name, std::string* value, const Key& key);
  // A list of any length. An empty list is not written.
  void Ints(std::string_view name, std::vector<int64_t>* value,
            const IntKey& key);
  // A list of `size` numbers. An empty list is not written.
  void Floats(std::string_view name, std::vector<double>* value,
              const FloatKey& key);
  template <typename E>
  void Enum(std::string_view name, E* value,
            std::string_view (*word)(std::type_identity_t<E>), const Key& key) {
    EnumOf<E>(name, value, *value, word, key);
  }
  template <typename E>
  void Enum(std::string_view name, std::optional<E>* value,
            std::string_view (*word)(std::type_identity_t<E>), const Key& key) {
    EnumOf<E>(name, value, *value, word, key);
  }
  // A key of a custom type.
  void Custom(const schema::Field& field) { Visit(field); }

  virtual void SubTable(std::string_view name, const TableKey& key,
                        const std::function<void(Section&)>& describe) = 0;
  // [[name]]: a list of tables. If none is given, the vector is unchanged.
  template <typename T>
  void SubTables(std::string_view name, const TableKey& key,
                 std::vector<T>* items,
                 const std::function<void(Section&, T&)>& describe) {
    VisitTables(
        name, key,
        {.resize = [=](size_t n) { items->resize(n); },
         .size = [=] { return items->size(); },
         .describe = [=](size_t i, Section& s) { describe(s, (*items)[i]); }});
  }

  // Whether a recipe is being read and this section has had no error so far.
  // Only then may a description resolve omitted values and compare keys.
  virtual bool complete() const = 0;
  // Whether a recipe is being read and gives this key of the section.
  virtual bool Has(std::string_view) const { return false; }
  // Reports an error of a key of this section ("until.fraction").
  virtual void Error(std::string_view key, std::string_view message) = 0;
  // Ignores unknown keys, because the key that determines them was wrong.
  virtual void LetUnknownKeysPass() {}

 protected:
  struct TableList {
    std::function<void(size_t)> resize;
    std::function<size_t()> size;
    std::function<void(size_t, Section&)> describe;
  };
  virtual void Visit(const schema::Field& field) = 0;
  virtual void VisitTables(std::string_view name, const TableKey& key,
                           const TableList& list) = 0;

 private:
  template <typename E, typename T>
  void EnumOf(std::string_view name, T* value, std::optional<E> now,
              std::string_view (*word)(E), const Key& key) {
    const std::vector<E> values = ValuesOf(word);
    std::vector<std::string> words;
    std::optional<size_t> index;
    for (const E choice : values) {
      if (choice == now) index = words.size();
      words.emplace_back(word(choice));
    }
    Visit(ChoiceField(name, words, index, key,
                      [=](size_t i) { *value = values[i]; }));
  }
  static schema::Field ChoiceField(std::string_view name,
                                   const std::vector<std::string>& names,
                                   std::optional<size_t> index, const Key& key,
                                   std::function<void(size_t)> choose);
};

}  // namespace delink
