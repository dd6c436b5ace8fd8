// What tests of the whole program stand on: a corpus of bytes, and one straight
// run of recipes/tiny.toml, which tests look at and do not change.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/testing/temp_dir.h"
#include "tests/tools/program.h"

namespace delink::testing {

class Program : public ::testing::Test {
 protected:
  static constexpr int kSwitch = 10, kSteps = 20;  // of the recipe

  static void SetUpTestSuite();
  static void TearDownTestSuite() { dir_.reset(); }

  // In a folder of the suite's own; it has `corpus`, the texts of which it is
  // made (text0.txt, ...), and the run `straight`.
  static std::string Path(const std::string& name) { return *dir_ / name; }
  // A checkpoint of the run in Path(run).
  static std::string Step(const std::string& run, int step);

  // The arguments that train recipes/tiny.toml into Path(out).
  static Words TrainWords(const std::string& out, const Words& more = {});

  // What a command that must succeed prints.
  static nlohmann::json Json(const Words& words);
  // The loss of a checkpoint on the start of the validation corpus.
  static double Loss(const std::string& checkpoint);
  // The losses of all steps of a run; and what it last validated.
  static std::vector<double> Losses(const std::string& run);
  static double LastValidation(const std::string& run);
  // That checkpoints of two runs are the same, bit for bit.
  static void ExpectSameBits(const std::string& run, const std::string& other,
                             int step = kSteps);

 private:
  static std::unique_ptr<TempDir> dir_;
};

void WriteText(const std::string& path, const std::string& text);

}  // namespace delink::testing
