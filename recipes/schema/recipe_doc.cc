#include "recipes/schema/recipe_doc.h"

#include <functional>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "recipes/schema/describe.h"
#include "recipes/schema/section.h"

namespace delink {
namespace {

using schema::Field;

constexpr char kIntroduction[] = R"(# Recipes

<!-- Generated from recipes/schema/describe.cc and the kinds of model by
     recipe_doc_test, which says how to write it anew. -->

A recipe is a TOML file that decides a run: what is trained, on what, how, and
by which stages of Pseudo-to-Real. `recipes/` has some to start from.

- It is read strictly: a key that is not known, or whose value has the wrong
  type, is an error that names file, line and column.
- `--set key=value` on the command line changes one key: dotted, an element of a
  list by its index from 0 (`--set stage.1.parallel.data=2`). The value is TOML,
  else taken as a string. The last one wins.
- Paths are relative to the recipe.
- A dotted key below, `parallel.data`, may as well be written as a table:
  `parallel = { data = 2 }`.
- Keys marked *fixed* may not change when a run resumes; nor may any of
  `[model]`.
- The resolved recipe, with every default written out, is saved as `recipe.toml`
  in the run's folder and with every checkpoint.
- A fraction of the steps is rounded to the nearest whole step, a half upwards:
  0.25 of 10 is 3.

## A whole recipe

`recipes/commented.toml`:

<!-- cut from recipes/commented.toml -->
```toml
)";

// Writes a heading and a table of keys for each section.
class Documenter final : public Section {
 public:
  explicit Documenter(std::string* text) : text_(text) {}

  void SubTable(std::string_view name, const TableKey& key,
                const std::function<void(Section&)>& describe) override {
    Documenter section = *this;
    section.fixed_ = fixed_ || key.fixed;
    if (inside_) {
      section.prefix_ += absl::StrFormat("%s.", name);
      section.note_ = absl::StrFormat(" (`%s`: %s)", name, key.doc);
    } else {
      section.within_ = absl::StrFormat("%s.", name);
      section.Begin(absl::StrFormat("[%s]", name), key.doc);
    }
    describe(section);
  }
  bool complete() const override { return false; }
  void Error(std::string_view, std::string_view) override {}

  void Rows(const std::function<void(Section&)>& describe) {
    absl::StrAppend(text_,
                    "\n| key | value | default | meaning |\n"
                    "|---|---|---|---|\n");
    inside_ = true;
    describe(*this);
  }

 protected:
  void Visit(const Field& field) override {
    std::string value = "none";
    if (field.required) {
      value = "required";
    } else if (!field.when_omitted.empty()) {
      value = field.when_omitted;
    } else if (const auto given = field.write()) {
      value = absl::StrFormat("`%s`", schema::ToToml(*given));
    }
    std::string doc = field.doc + note_;
    if (fixed_ || field.fixed) absl::StrAppend(&doc, "; *fixed*");
    absl::StrAppend(text_,
                    absl::StrFormat("| `%s%s` | %s | %s | %s |\n", prefix_,
                                    field.name, field.type, value, doc));
    note_.clear();
  }
  void VisitTables(std::string_view name, const TableKey& key,
                   const TableList& list) override {
    Documenter section = *this;
    section.Begin(absl::StrFormat("[[%s%s%s]]", within_, prefix_, name),
                  key.doc);
    section.within_ = absl::StrFormat("%s%s%s.", within_, prefix_, name);
    section.prefix_.clear();
    list.resize(1);
    list.describe(0, section);
  }

 private:
  void Begin(const std::string& title, std::string_view doc) {
    absl::StrAppend(text_, absl::StrFormat("\n## `%s`\n\n%s\n", title, doc));
    Rows([](Section&) {});
  }

  std::string* text_;
  bool inside_ = false;
  bool fixed_ = false;
  std::string within_;  // "data.", in a section
  std::string prefix_;  // "parallel."
  std::string note_;    // of the table, said at its first key
};

}  // namespace

std::string RecipeDoc(const std::vector<ModelKind>& kinds,
                      std::string_view example) {
  std::string text = absl::StrCat(kIntroduction, std::string(example), "```\n");
  Documenter document(&text);
  std::shared_ptr<const ModelConfig> none;
  schema::DescribeModel(document, &none, kinds);
  for (const ModelKind& kind : kinds) {
    absl::StrAppend(&text, absl::StrFormat("\n### `kind = \"%s\"`\n\n%s\n",
                                           kind.name, kind.doc));
    const std::unique_ptr<ModelConfig> model = kind.make();
    Documenter(&text).Rows([&](Section& s) { model->Describe(s); });
  }
  Recipe recipe;
  schema::DescribeRest(document, recipe);
  return text;
}

}  // namespace delink
