// A Section that reads a table into what describes itself, strictly: every key
// of the table must be one that was described.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "recipes/schema/problems.h"
#include "recipes/schema/section.h"
#include "recipes/schema/value.h"

namespace delink::schema {

// Shared by the sections of one document.
struct ReadContext {
  Problems problems;
  Positions* positions;  // filled with every key that was given
  std::string folder;    // what paths are relative to
};

class Reader final : public Section {
 public:
  // `path` is the name of the table in messages, empty for the document. A
  // table that was not given is an empty one at the place of the one around it.
  Reader(const Table& table, std::string path, ReadContext* context);

  void SubTable(std::string_view name, const TableKey& key,
                const std::function<void(Section&)>& describe) override;
  bool complete() const override;
  bool Has(std::string_view name) const override;
  void Error(std::string_view key, std::string_view message) override;
  void LetUnknownKeysPass() override { forgiving_ = true; }

  // Call last: reports the keys that nothing described.
  void Finish();

 protected:
  void Visit(const Field& field) override;
  void VisitTables(std::string_view name, const TableKey& key,
                   const TableList& list) override;

 private:
  std::string PathOf(std::string_view key) const;
  // The member of that name, noted as known; null when it was not given.
  const Member* Take(std::string_view name);

  const Table& table_;
  std::string path_;
  ReadContext* context_;
  size_t problems_before_;
  bool forgiving_ = false;
  std::vector<std::string> known_;
};

}  // namespace delink::schema
