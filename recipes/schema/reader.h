// A Section that reads a table into a struct. It is strict: every key of the
// table must have been described.
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
  std::string folder;    // paths are relative to it
};

class Reader final : public Section {
 public:
  // `path` names the table in messages; empty for the document. A table that
  // was not given is read as an empty one at the position of its parent.
  Reader(const Table& table, std::string path, ReadContext* context);

  void SubTable(std::string_view name, const TableKey& key,
                const std::function<void(Section&)>& describe) override;
  bool complete() const override;
  bool Has(std::string_view name) const override;
  void Error(std::string_view key, std::string_view message) override;
  void LetUnknownKeysPass() override { forgiving_ = true; }

  // Call last. Reports the keys that were not described.
  void Finish();

 protected:
  void Visit(const Field& field) override;
  void VisitTables(std::string_view name, const TableKey& key,
                   const TableList& list) override;

 private:
  std::string PathOf(std::string_view key) const;
  // The member of that name, or null if it was not given. Notes it as known.
  const Member* Take(std::string_view name);

  const Table& table_;
  std::string path_;
  ReadContext* context_;
  size_t problems_before_;
  bool forgiving_ = false;
  std::vector<std::string> known_;
};

}  // namespace delink::schema
