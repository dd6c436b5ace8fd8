// A Section that writes out what describes itself, key by key.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "recipes/schema/section.h"

namespace delink::schema {

struct Entry {
  std::string header;   // "[run]", or "[[stage]]"
  std::string section;  // "run", "stage[1]"
  std::string name;     // within it: "seed", "parallel.data"
  std::string text;     // TOML
  bool fixed = false;

  std::string key() const { return section + "." + name; }
};

// Appends to `entries`, which outlives it. The document's own writer has no
// arguments besides; sections of it are made by SubTable.
class Writer final : public Section {
 public:
  explicit Writer(std::vector<Entry>* entries) : entries_(entries) {}

  void SubTable(std::string_view name, const TableKey& key,
                const std::function<void(Section&)>& describe) override;
  bool complete() const override { return false; }
  void Error(std::string_view, std::string_view) override {}

 protected:
  void Visit(const Field& field) override;
  void VisitTables(std::string_view name, const TableKey& key,
                   const TableList& list) override;

 private:
  std::vector<Entry>* entries_;
  Entry place_;         // what entries made here begin with
  std::string prefix_;  // "parallel.", inside a section
};

// The document: a header wherever the section changes.
std::string ToToml(const std::vector<Entry>& entries);

}  // namespace delink::schema
