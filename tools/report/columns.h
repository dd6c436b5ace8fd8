// Rows of numbers kept by column, and the thinning of long ones: what a plot of
// a thousand pixels can show of a million steps.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace delink::report {

// What a row lacks is NaN. Columns come into being when they are first set.
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

// Of a column, NaNs left out but in Last; NaN where there are none.
double Last(const std::vector<double>& values);
double Least(const std::vector<double>& values);
double Largest(const std::vector<double>& values);
double Median(std::vector<double> values);
// The mean of the last `count` rows before row `end`, or of as many as there
// are; steps that were skipped may have no loss.
double MeanOfLast(const std::vector<double>& values, size_t end, size_t count);

// The rows to keep, in order: all of them when there are at most `budget`,
// otherwise, of each of equally many rows, those where a column of `keys` is
// least and greatest, and the first and the last row of all.
std::vector<size_t> ThinRows(const Columns& table,
                             const std::vector<std::string>& keys,
                             size_t budget);

// For each row kept: the mean of `values` over the rows after the one kept
// before, up to it. NaNs are left out; NaN where nothing is left.
std::vector<double> MeansBetween(const std::vector<double>& values,
                                 const std::vector<size_t>& kept);

}  // namespace delink::report
