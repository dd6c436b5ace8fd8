#include "tools/report/columns.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "framework/base/check.h"
#include "framework/base/median.h"

namespace delink::report {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Keeps the rows in [begin, end) with the least and the greatest value.
void AddExtremes(const std::vector<double>& values, size_t begin, size_t end,
                 std::set<size_t>* rows) {
  size_t least = end, greatest = end;
  for (size_t i = begin; i < end; ++i) {
    if (std::isnan(values[i])) continue;
    if (least == end || values[i] < values[least]) least = i;
    if (greatest == end || values[i] > values[greatest]) greatest = i;
  }
  if (least == end) return;
  rows->insert(least);
  rows->insert(greatest);
}

}  // namespace

void Columns::AddRow(std::initializer_list<Cell> cells) {
  ++rows_;
  for (Column& column : columns_) column.values.push_back(kNone);
  for (const auto& [name, value] : cells) Set(name, value);
}

void Columns::Set(std::string_view name, double value) {
  DELINK_CHECK(rows_ > 0) << "no row to set " << std::string(name) << " of";
  auto it = std::find_if(columns_.begin(), columns_.end(),
                         [&](const Column& c) { return c.name == name; });
  if (it == columns_.end()) {
    columns_.push_back({std::string(name), std::vector<double>(rows_, kNone)});
    it = columns_.end() - 1;
  }
  it->values.back() = value;
}

void Columns::Scale(std::string_view name, size_t begin, double factor) {
  for (Column& column : columns_) {
    if (column.name != name) continue;
    for (size_t row = begin; row < rows_; ++row) column.values[row] *= factor;
  }
}

const std::vector<double>& Columns::Values(std::string_view name) const {
  static const std::vector<double> none;
  for (const Column& column : columns_) {
    if (column.name == name) return column.values;
  }
  return none;
}

double Last(const std::vector<double>& values) {
  return values.empty() ? kNone : values.back();
}

// std::fmin and std::fmax prefer a number to a NaN.
double Least(const std::vector<double>& values) {
  double least = kNone;
  for (const double value : values) least = std::fmin(least, value);
  return least;
}

double Largest(const std::vector<double>& values) {
  double largest = kNone;
  for (const double value : values) largest = std::fmax(largest, value);
  return largest;
}

double Median(std::vector<double> values) {
  std::erase_if(values, [](double v) { return std::isnan(v); });
  if (values.empty()) return kNone;
  return delink::Median(std::move(values));
}

double MeanOfLast(const std::vector<double>& values, size_t end, size_t count) {
  end = std::min(end, values.size());
  double sum = 0, counted = 0;
  for (size_t i = end - std::min(count, end); i < end; ++i) {
    if (std::isnan(values[i])) continue;
    sum += values[i];
    ++counted;
  }
  return counted == 0 ? kNone : sum / counted;
}

std::vector<size_t> ThinRows(const Columns& table,
                             const std::vector<std::string>& keys,
                             size_t budget) {
  const size_t rows = table.rows();
  std::set<size_t> kept;
  if (rows <= budget || keys.empty()) {
    for (size_t i = 0; i < rows; ++i) kept.insert(kept.end(), i);
  } else {
    const size_t buckets = std::max<size_t>(1, budget / (2 * keys.size()));
    for (size_t b = 0; b < buckets; ++b) {
      const size_t begin = b * rows / buckets, end = (b + 1) * rows / buckets;
      for (const std::string& key : keys) {
        const std::vector<double>& values = table.Values(key);
        if (!values.empty()) AddExtremes(values, begin, end, &kept);
      }
    }
    kept.insert(0);
    kept.insert(rows - 1);
  }
  return {kept.begin(), kept.end()};
}

std::vector<double> MeansBetween(const std::vector<double>& values,
                                 const std::vector<size_t>& kept) {
  std::vector<double> means;
  size_t next = 0;
  for (const size_t row : kept) {
    double sum = 0;
    int count = 0;
    for (; next <= row; ++next) {
      if (std::isnan(values[next])) continue;
      sum += values[next];
      ++count;
    }
    means.push_back(count == 0 ? kNone : sum / count);
  }
  return means;
}

}  // namespace delink::report
