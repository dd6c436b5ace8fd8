// Rows of numbers stored by column, and thinning of long columns, so that a
// plot of a thousand pixels can show a million steps.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace delink::report {

// Missing numbers of a row are NaN. The first Set of a column creates it.
class Columns {
 public:
  using Cell = std::pair<std::string_view, double>;
  struct Column {
    std::string name;
    std::vector<double> values;  // one for each row
  };

  void AddRow(std::initializer_list<Cell> cells);
  // Sets a number of the last row.
  void Set(std::string_view name, double value);
  // Multiplies the numbers of a column from row `begin` on.
  void Scale(std::string_view name, size_t begin, double factor);

  size_t rows() const { return rows_; }
  const std::vector<Column>& all() const { return columns_; }
  // Empty when there is no such column.
  const std::vector<double>& Values(std::string_view name) const;

 private:
  size_t rows_ = 0;
  std::vector<Column> columns_;
};

// Statistics of a column. Last may return a NaN of the column, the others skip
// NaNs. NaN if there are no numbers.
double Last(const std::vector<double>& values);
double Least(const std::vector<double>& values);
double Largest(const std::vector<double>& values);
double Median(std::vector<double> values);
// The mean of the last `count` rows before row `end`, or of all if there are
// fewer. NaNs are left out, since a skipped step may have no loss.
double MeanOfLast(const std::vector<double>& values, size_t end, size_t count);

// The rows to keep, in order: all rows if there are at most `budget`. Otherwise
// the table is divided into equal ranges; in each range the rows with the least
// and greatest value of each column of `keys` are kept, and the first and the
// last row of the table.
std::vector<size_t> ThinRows(const Columns& table,
                             const std::vector<std::string>& keys,
                             size_t budget);

// For each kept row: the mean of `values` over the rows after the previous kept
// row up to this one, without NaNs; NaN if there are no numbers.
std::vector<double> MeansBetween(const std::vector<double>& values,
                                 const std::vector<size_t>& kept);

}  // namespace delink::report
