#include "recipes/schema/reader.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/check.h"

namespace delink::schema {

Reader::Reader(const Table& table, std::string path, ReadContext* context)
    : table_(table),
      path_(std::move(path)),
      context_(context),
      problems_before_(context->problems.size()) {}

std::string Reader::PathOf(std::string_view key) const {
  return path_.empty() ? std::string(key)
                       : absl::StrFormat("%s.%s", path_, key);
}

const Member* Reader::Take(std::string_view name) {
  DELINK_CHECK(std::find(known_.begin(), known_.end(), name) == known_.end())
      << PathOf(name) << " is described twice";
  known_.emplace_back(name);
  for (const Member& member : table_) {
    if (member.key != name) continue;
    context_->positions->Set(PathOf(name), member.source);
    return &member;
  }
  return nullptr;
}

void Reader::Visit(const Field& field) {
  const Member* member = Take(field.name);
  const std::string path = PathOf(field.name);
  if (member != nullptr) {
    Report report(&context_->problems, path, context_->folder);
    field.read(member->value, report);
  } else if (field.required) {
    context_->problems.Add(context_->positions->Find(path), path,
                           absl::StrFormat("required, but not given (%s: %s)",
                                           field.type, field.doc));
  }
}

void Reader::SubTable(std::string_view name, const TableKey& key,
                      const std::function<void(Section&)>& describe) {
  const Member* member = Take(name);
  static const Table kEmpty;
  const Table* table = &kEmpty;
  if (member != nullptr) {
    table = member->value.As<Table>();
    if (table == nullptr) {
      context_->problems.Add(
          member->value.source, PathOf(name),
          absl::StrFormat("expected a table, got %s%s", Describe(member->value),
                          key.instead.empty()
                              ? ""
                              : absl::StrFormat("; give %s", key.instead)));
      return;
    }
  }
  Reader section(*table, PathOf(name), context_);
  describe(section);
  section.Finish();
}

void Reader::VisitTables(std::string_view name, const TableKey& key,
                         const TableList& list) {
  const Member* member = Take(name);
  if (member == nullptr) return;
  const List* items = member->value.As<List>();
  if (items == nullptr || items->empty()) {
    context_->problems.Add(
        member->value.source, PathOf(name),
        absl::StrFormat(
            "expected [[%s]] tables, got %s", PathOf(name),
            items == nullptr ? Describe(member->value) : "an empty list"));
    return;
  }
  list.resize(items->size());
  for (size_t i = 0; i < items->size(); ++i) {
    const std::string path = absl::StrFormat("%s[%d]", PathOf(name), i);
    const Value& item = (*items)[i];
    context_->positions->Set(path, item.source);
    const Table* table = item.As<Table>();
    if (table == nullptr) {
      context_->problems.Add(
          item.source, path,
          absl::StrFormat("expected a table, got %s", Describe(item)));
      continue;
    }
    Reader section(*table, path, context_);
    list.describe(i, section);
    section.Finish();
  }
}

bool Reader::Has(std::string_view name) const {
  return Find(table_, name) != nullptr;
}

bool Reader::complete() const {
  return context_->problems.size() == problems_before_;
}

void Reader::Error(std::string_view key, std::string_view message) {
  const std::string path = PathOf(key);
  context_->problems.Add(context_->positions->Find(path), path, message);
}

void Reader::Finish() {
  if (forgiving_) return;
  for (const Member& member : table_) {
    if (std::find(known_.begin(), known_.end(), member.key) != known_.end()) {
      continue;
    }
    std::string hint = Suggestion(member.key, known_);
    if (hint.empty()) {
      hint = absl::StrCat("; known here: ", absl::StrJoin(known_, ", "));
    }
    context_->problems.Add(member.source, PathOf(member.key),
                           absl::StrCat("unknown key", hint));
  }
}

}  // namespace delink::schema
