// A Section that writes out a struct, key by key.
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

// Appends to `entries`, which outlives the writer. Construct it for the
// document; SubTable creates the writers of sections.
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
  Entry place_;         // entries made here start as a copy of it
  std::string prefix_;  // "parallel.", inside a section
};

// The document, with a header wherever the section changes.
std::string ToToml(const std::vector<Entry>& entries);

}  // namespace delink::schema
