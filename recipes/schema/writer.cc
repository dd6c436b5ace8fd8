#include "recipes/schema/writer.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/check.h"

namespace delink::schema {

void Writer::Visit(const Field& field) {
  DELINK_CHECK(!place_.section.empty()) << field.name << " is in no section";
  const std::optional<Value> value = field.write();
  if (!value) return;
  Entry entry = place_;
  entry.name = prefix_ + field.name;
  entry.text = ToToml(*value);
  entry.fixed = entry.fixed || field.fixed;
  entries_->push_back(std::move(entry));
}

void Writer::SubTable(std::string_view name, const TableKey& key,
                      const std::function<void(Section&)>& describe) {
  Writer section = *this;
  if (place_.section.empty()) {
    section.place_.header = absl::StrFormat("[%s]", name);
    section.place_.section = std::string(name);
  } else {
    section.prefix_ += absl::StrFormat("%s.", name);
  }
  section.place_.fixed = place_.fixed || key.fixed;
  describe(section);
}

void Writer::VisitTables(std::string_view name, const TableKey& key,
                         const TableList& list) {
  // The header of a table in a list names the list, and refers to its last
  // table.
  const std::string dot = place_.section.empty() ? "" : ".";
  const std::string below = absl::StrFormat("%s%s%s", dot, prefix_, name);
  std::string title = place_.header;
  std::erase_if(title, [](char c) { return c == '[' || c == ']'; });
  for (size_t i = 0; i < list.size(); ++i) {
    Writer section = *this;
    section.prefix_.clear();
    section.place_.header = absl::StrFormat("[[%s%s]]", title, below);
    section.place_.section =
        absl::StrFormat("%s%s[%d]", place_.section, below, i);
    section.place_.fixed = place_.fixed || key.fixed;
    list.describe(i, section);
  }
}

std::string ToToml(const std::vector<Entry>& entries) {
  std::string text;
  std::string section;
  for (const Entry& entry : entries) {
    if (entry.section != section) {
      absl::StrAppend(&text, text.empty() ? "" : "\n", entry.header, "\n");
      section = entry.section;
    }
    absl::StrAppend(&text, entry.name, " = ", entry.text, "\n");
  }
  return text;
}

}  // namespace delink::schema
