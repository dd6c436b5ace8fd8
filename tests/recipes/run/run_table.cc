#include "tests/recipes/run/run_table.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/check.h"
#include "tests/testing/full_test.h"

namespace delink::testing {
namespace {

constexpr int kTries = 40;  // for each row, of which the best is taken

bool In(const std::vector<std::string>& list, const std::string& name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

using At = Configuration::value_type;

RunTable::Pair InOrder(const At& a, const At& b) {
  return a.first < b.first ? RunTable::Pair(a, b) : RunTable::Pair(b, a);
}

// How many of its pairs with `configuration` are missing.
int64_t Missing(const At& at, const Configuration& configuration,
                const std::set<RunTable::Pair>& missing) {
  auto count = static_cast<int64_t>(missing.count({at, at}));
  for (const At& other : configuration) {
    if (other.first == at.first) continue;
    count += static_cast<int64_t>(missing.count(InOrder(at, other)));
  }
  return count;
}

int64_t Missing(const Configuration& configuration,
                const std::set<RunTable::Pair>& missing) {
  int64_t count = 0;
  for (const At& at : configuration) {
    count += Missing(at, configuration, missing);
  }
  return count;
}

}  // namespace

std::vector<Value> Optimizers() {
  return {{"adamw"},
          {"adamw bf16", "optimizer.moments=bf16"},
          {"adamw 8bit", "optimizer.moments=8bit"},
          {"sgd", "optimizer.kind=sgd optimizer.lr=0.02"},
          {"lion", "optimizer.kind=lion optimizer.lr=3e-4"},
          {"adafactor",
           "optimizer.kind=adafactor optimizer.relative_step=false "
           "optimizer.lr=1e-3"},
          {"muon",
           "optimizer.kind=muon optimizer.lr=1e-2 optimizer.adamw_lr=1e-3"}};
}

std::vector<Value> Precisions() {
  return {{"fp32"},
          {"bf16", "run.precision=bf16"},
          {"bf16 gradients", "run.precision=bf16 run.gradients=bf16"},
          {"split", "run.precision=bf16 run.master=split"},
          {"none", "run.precision=bf16 run.master=none run.gradients=bf16"}};
}

Value Both(const std::string& name, const std::string& words) {
  return {name, absl::StrCat("stage.0.parallel.", words, " stage.1.parallel.",
                             words)};
}

bool Has(const Configuration& configuration, const Configuration& some) {
  return std::all_of(some.begin(), some.end(), [&](const auto& at) {
    return configuration.at(at.first) == at.second;
  });
}

bool RunTable::Allows(const Configuration& given) const {
  return std::all_of(rules_.begin(), rules_.end(), [&](const Rule& rule) {
    const auto axis = given.find(rule.axis), other = given.find(rule.other);
    return axis == given.end() || other == given.end() ||
           !In(rule.values, axis->second) || In(rule.only, other->second);
  });
}

std::set<RunTable::Pair> RunTable::Pairs() const {
  std::set<Pair> pairs;
  for (const Axis& a : axes_) {
    for (const Value& x : a.values) {
      if (a.alone) pairs.insert({{a.name, x.name}, {a.name, x.name}});
    }
    for (const Axis& b : axes_) {
      if (a.name == b.name || a.alone || b.alone) continue;
      for (const Value& x : a.values) {
        for (const Value& y : b.values) {
          const Configuration two = {{a.name, x.name}, {b.name, y.name}};
          if (Allows(two)) pairs.insert({*two.begin(), *two.rbegin()});
        }
      }
    }
  }
  return pairs;
}

Configuration RunTable::Complete(Configuration given,
                                 const std::set<Pair>& missing,
                                 const Configuration& from) {
  std::vector<const Axis*> open;
  for (const Axis& axis : axes_) {
    if (given.count(axis.name) == 0) open.push_back(&axis);
  }
  for (; !open.empty(); open.pop_back()) {
    std::swap(open[Random(open.size())], open.back());
    const Axis& axis = *open.back();
    const size_t first = Random(axis.values.size());
    Configuration best;
    int64_t most = -1;
    for (size_t i = 0; i < axis.values.size(); ++i) {
      const At at(axis.name,
                  axis.values[(first + i) % axis.values.size()].name);
      Configuration with = given;
      with.insert(at);
      if (!Allows(with)) continue;
      const auto old = from.find(axis.name);
      const bool other = old != from.end() && old->second != at.second;
      const int64_t news = Missing(at, given, missing) + (other ? 1 : 0);
      if (news > most) {
        best = with;
        most = news;
      }
    }
    DELINK_CHECK_GE(most, 0) << "rules leave no value: " << axis.name;
    given = best;
  }
  return given;
}

std::vector<Configuration> RunTable::Cover(
    const std::vector<Configuration>& first, size_t count, size_t others) {
  std::set<Pair> missing = Pairs();
  std::vector<Configuration> rows;
  const auto add = [&](const Configuration& row) {
    rows.push_back(row);
    for (const At& a : row) {
      for (const At& b : row) missing.erase({a, b});
    }
  };
  const auto is_enough = [&] {
    return count == 0 ? rows.size() >= first.size() && missing.empty()
                      : rows.size() >= count;
  };
  while (!is_enough()) {
    Configuration best;
    for (int i = 0; i < (missing.empty() ? 1 : kTries); ++i) {
      Configuration given;
      if (rows.size() < first.size()) {
        given = first[rows.size()];
      } else if (!missing.empty()) {
        const Pair& pair = *std::next(
            missing.begin(), static_cast<int64_t>(Random(missing.size())));
        given = {pair.first, pair.second};
      }
      given = Complete(given, missing, {});
      if (best.empty() || Missing(given, missing) > Missing(best, missing)) {
        best = given;
      }
    }
    add(best);
    for (size_t i = 0; i < others && !is_enough(); ++i) {
      add(Another(rows.back(), {Change::kNothing}, missing));
    }
  }
  return rows;
}

Configuration RunTable::Another(const Configuration& from,
                                const std::set<Change>& changes,
                                const std::set<Pair>& missing) {
  Configuration kept;
  for (const Axis& axis : axes_) {
    const bool exact = !axis.exact.empty() && Has(from, axis.exact);
    if (changes.count(exact ? Change::kNothing : axis.change) == 0) {
      kept[axis.name] = from.at(axis.name);
    }
  }
  return Complete(kept, missing, from);
}

std::vector<std::string> RunTable::Sets(
    const Configuration& configuration) const {
  std::vector<std::string> sets;
  for (const Axis& axis : axes_) {
    for (const Value& value : axis.values) {
      if (value.name != configuration.at(axis.name)) continue;
      for (const auto word :
           absl::StrSplit(value.words, ' ', absl::SkipEmpty())) {
        sets.emplace_back(word);
      }
    }
  }
  return sets;
}

int64_t RunSteps() { return IsFullTest() ? 20 : 12; }

std::vector<std::string> StepWords() {
  return {absl::StrCat("schedule.steps=", RunSteps()),
          absl::StrCat("stage.0.until={steps=", RunSteps() / 2, "}")};
}

std::string TrainCommand(int ranks, const std::string& recipe,
                         const std::vector<std::string>& sets) {
  std::string command =
      absl::StrCat("mpirun -np ", ranks, " delink train recipes/", recipe,
                   ".toml --set data.train=CORPUS/train");
  for (const std::string& set : sets) {
    absl::StrAppend(&command, " --set '", set, "'");
  }
  return command;
}

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  uint64_t number = otherwise;
  DELINK_CHECK(text == nullptr || absl::SimpleAtoi(text, &number)) << name;
  return number;
}

uint64_t RowCount(const char* name, uint64_t few, uint64_t many) {
  return FromEnvironment(name, IsFullTest() ? many : few);
}

}  // namespace delink::testing
