#include "tests/tools/program_fixture.h"

#include <fstream>

#include "tests/testing/source_path.h"

namespace delink::testing {
namespace {

// Words that follow each other with some regularity.
std::string SomeText(unsigned seed, int count) {
  const char* const words[] = {"the ",   "slab ",   "of ",  "a ",
                               "layer ", "holds ",  "its ", "weights ",
                               "and ",   "moves.\n"};
  std::string text;
  unsigned state = seed;
  for (int i = 0; i < count; ++i) {
    state = state * 1103515245u + 12345u;
    text += words[(state >> 16) % (i % 3 == 0 ? 10 : 4)];
  }
  return text;
}

}  // namespace

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

std::unique_ptr<TempDir> Program::dir_;

void Program::SetUpTestSuite() {
  dir_ = std::make_unique<TempDir>();
  Words words = {"data", "build", "--bytes",     "--validation",
                 "0.2",  "--out", Path("corpus")};
  for (unsigned i = 0; i < 10; ++i) {
    const std::string text = Path("text" + std::to_string(i) + ".txt");
    WriteText(text, SomeText(i + 1, 500));
    words.push_back(text);
  }
  Succeed(words);
  Succeed(TrainWords("straight"));
}

std::string Program::Step(const std::string& run, int step) {
  const std::string digits = std::to_string(step);
  return Path(run) + "/checkpoints/step-" +
         std::string(8 - digits.size(), '0') + digits;
}

Words Program::TrainWords(const std::string& out, const Words& more) {
  return With({"train", SourcePath("recipes/tiny.toml"), "--out", Path(out),
               "--set", "data.train=" + Path("corpus/train"), "--set",
               "run.keep=0", "--threads", "1"},
              more);
}

nlohmann::json Program::Json(const Words& words) {
  const Outcome outcome = Succeed(words);
  const auto parsed = nlohmann::json::parse(outcome.out, nullptr, false);
  EXPECT_TRUE(parsed.is_object()) << outcome.out;
  return parsed;
}

double Program::Loss(const std::string& checkpoint) {
  return Json({"eval", checkpoint, "--data", Path("corpus/validation"),
               "--batches", "2", "--json"})["loss"]
      .get<double>();
}

std::vector<double> Program::Losses(const std::string& run) {
  std::vector<double> losses;
  for (const nlohmann::json& row : Rows(Path(run + "/metrics.jsonl"))) {
    if (row.contains("loss")) losses.push_back(row["loss"]);
  }
  return losses;
}

double Program::LastValidation(const std::string& run) {
  double last = 0;
  for (const nlohmann::json& row : Rows(Path(run + "/metrics.jsonl"))) {
    if (row.contains("validation_loss")) last = row["validation_loss"];
  }
  return last;
}

void Program::ExpectSameBits(const std::string& run, const std::string& other,
                             int step) {
  EXPECT_EQ(Difference(ReadBits(Step(run, step)), ReadBits(Step(other, step))),
            "");
}

}  // namespace delink::testing
