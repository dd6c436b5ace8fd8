// What somebody made to be read amiss, knowing the formats and with digests
// that fit; several runs in one folder; and what the system does to files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>

#include "framework/base/sha256.h"
#include "framework/hdf5/hdf5.h"
#include "tests/framework/hdf5/crafted.h"
#include "tests/testing/temp_dir.h"
#include "tests/tools/bad_input.h"

namespace delink::testing::crafted_input_test {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class CraftedInput : public BadInput {
 protected:
  // A copy of the run whose newest checkpoint has been changed by somebody who
  // knows its format, and its digests.
  static std::function<void()> Craft(const std::string& run,
                                     const std::string& file,
                                     const std::function<void(hid_t)>& change,
                                     int step = kSteps) {
    return [=] {
      CopyRun(run);
      testing::Craft(Step(run, step) + "/" + file, change);
      SumAgain(Step(run, step));
    };
  }
  // The same with its index opened as our own programs do.
  static std::function<void()> Edit(
      const std::string& run,
      const std::function<absl::Status(hdf5::File&)>& change,
      int step = kSteps) {
    return [=] {
      CopyRun(run);
      hdf5::File index =
          *hdf5::File::OpenReadWrite(Step(run, step) + "/index.h5");
      ASSERT_TRUE(change(index).ok());
      ASSERT_TRUE(index.Close().ok());
      SumAgain(Step(run, step));
    };
  }
  static std::function<void()> SetInt(const std::string& run,
                                      const std::string& object,
                                      const std::string& name, int64_t value,
                                      int step = kSteps) {
    return Edit(
        run, [=](hdf5::File& f) { return f.SetInt(object, name, value); },
        step);
  }
};

// Checkpoints that somebody made to read other files, or to abort the reader,
// with digests that fit. What else HDF5 files can do: virtual_test.cc, and what
// of a run makes no sense: saved_run_test.cc and named_values_test.cc.
TEST_F(CraftedInput, CraftedCheckpoints) {
  const std::string tensor = "/model/blocks/0/attn/qkv/weight";
  const std::string slab = "/weight/blocks/0/attention";
  const auto load = [](const std::string& run) {
    return Resume(Step(run, kSteps));
  };
  const auto delinked = [](const std::string& run) {
    return Words{"delink", Step(run, kSwitch), Path("never")};
  };
  const auto many_dimensions = [&](const std::string& run) {
    return Edit(
        run,
        [=](hdf5::File& index) {
          const float one = 1;
          EXPECT_TRUE(index.Remove(tensor).ok());
          return index.WriteAll(tensor, hdf5::Shape(7, 1), &one);
        },
        kSwitch);
  };
  const auto linked_file = [](const std::string& run, const std::string& name,
                              const std::string& target) {
    return [=] {
      CopyRun(run);
      fs::remove(Step(run, kSteps) + "/" + name);
      fs::create_symlink(target, Step(run, kSteps) + "/" + name);
    };
  };
  const std::string theirs = "another program wrote it";
  const std::string seven_dimensions =
      "blocks/0/attn/qkv/weight is [1, 1, 1, 1, 1, 1, 1], but the model's is "
      "[96, 32]";
  Check({
      {delinked("x-storage"),
       {"rank-00000.h5: " + slab, "another file that is no HDF5 file", theirs},
       Craft(
           "x-storage", "rank-00000.h5",
           [&](hid_t f) { StoreIn(f, slab, "/etc/passwd"); }, kSwitch)},
      {{"inspect", Step("x-source", kSteps)},
       {"index.h5: " + tensor, "not from a file rank-NNNNN.h5", theirs},
       Craft("x-source", "index.h5",
             [&](hid_t f) {
               VirtualOver(f, tensor, "../step-00000005/rank-00000.h5", slab);
             })},
      {load("x-link"),
       {"index.h5: " + tensor, "is a link out of the file", theirs},
       Craft("x-link", "index.h5",
             [&](hid_t f) {
               LinkOutside(f, tensor, Step("straight", 5) + "/index.h5",
                           tensor);
             })},
      {load("x-rank"),
       {"rank-00000.h5: is a link, not a file", "put the file itself"},
       linked_file("x-rank", "rank-00000.h5",
                   Step("straight", kSteps) + "/rank-00000.h5")},
      {load("x-recipe"),
       {"recipe.toml: is a link, not a file", "put the file itself"},
       linked_file("x-recipe", "recipe.toml", "/dev/zero")},
      {delinked("x-shape"), {seven_dimensions}, many_dimensions("x-shape")},
      {TrainWords("never", {"--init=" + Step("x-shape-init", kSwitch)}),
       {seven_dimensions},
       many_dimensions("x-shape-init")},
      {delinked("x-updates"),
       {"blocks/0/attn/qkv/weight has been updated -9223372036854775808 "
        "times",
        theirs},
       SetInt("x-updates", "/optimizer/blocks/0/attn/qkv/weight", "updates",
              INT64_MIN, kSwitch)},
      {load("x-begin"),
       {"stage_begin_step is 4611686018427387904, not from 0 to 20", theirs},
       SetInt("x-begin", "/", "stage_begin_step", int64_t{1} << 62)},
      {load("x-samples"),
       {"in 4611686018427387904 samples of", theirs},
       SetInt("x-samples", "/", "samples", int64_t{1} << 62)},
      {load("x-format"),
       {"has checkpoint format -1", theirs},
       SetInt("x-format", "/", "format", -1)},
      // Resuming would set it aside.
      {load("x-name"),
       {"step-00000020: is of step 12", "rename the folder to step-00000012"},
       SetInt("x-name", "/", "step", 12)},
      {load("x-optimizer"),
       {"its optimizer is 'sgd', but its recipe's 'adamw'", theirs},
       Edit("x-optimizer",
            [](hdf5::File& f) { return f.SetText("/", "optimizer", "sgd"); })},
  });
  EXPECT_TRUE(fs::exists(Step("x-name", kSteps)));
}

TEST_F(CraftedInput, CraftedCorpora) {
  const auto craft = [](const std::string& corpus, const std::string& file,
                        const std::function<void(hid_t)>& change) {
    return [=] {
      CopyCorpus(corpus);
      testing::Craft(Path(corpus) + "/train/" + file, change);
      SumAgain(Path(corpus) + "/train");
    };
  };
  const auto linked_shard = [] {
    CopyCorpus("y-shard");
    const std::string file = Path("y-shard/train/shard-00000.h5");
    fs::remove(file);
    fs::create_symlink(Path("corpus/validation/shard-00000.h5"), file);
  };
  const auto no_format = [] {
    CopyCorpus("y-format");
    hdf5::File index =
        *hdf5::File::OpenReadWrite(Path("y-format/train/index.h5"));
    ASSERT_TRUE(index.SetInt("/", "format", -1).ok());
    ASSERT_TRUE(index.Close().ok());
    SumAgain(Path("y-format/train"));
  };
  const auto damaged_list = [] {
    CopyCorpus("y-list");
    const std::string list = Path("y-list/train/SHA256SUMS");
    const auto size = static_cast<int64_t>(fs::file_size(list));
    // A digit at the end of the last digest.
    FlipByte(list, size - 1 - int64_t{sizeof("shard-00000.h5")} - 2);
  };
  const std::string theirs = "another program wrote it";
  const std::string other = Path("corpus/validation/shard-00000.h5");
  Check({
      {{"data", "check", Path("y-storage")},
       {"shard-00000.h5: /tokens", "another file that is no HDF5 file", theirs},
       craft("y-storage", "shard-00000.h5",
             [](hid_t f) { StoreIn(f, "/tokens", "/etc/passwd"); })},
      {{"data", "info", Path("y-source")},
       {"index.h5: /documents", "not from a file shard-NNNNN.h5", theirs},
       craft("y-source", "index.h5",
             [&](hid_t f) {
               VirtualOver(f, "/documents", other, "/documents");
             })},
      {{"data", "check", Path("y-virtual")},
       {"shard-00000.h5: /tokens", "instead of holding it", theirs},
       craft("y-virtual", "shard-00000.h5",
             [&](hid_t f) { VirtualOver(f, "/tokens", other, "/tokens"); })},
      {TrainOn("y-shard"),
       {"shard-00000.h5: is a link, not a file", "put the file itself"},
       linked_shard},
      {TrainOn("y-format"), {"format -1", theirs}, no_format},
      {TrainOn("y-list"),
       {"y-list/train/SHA256SUMS: damaged: its digest of", "restore"},
       damaged_list,
       1},
  });
}

// Several runs are started in one folder at once: one trains, whoever comes
// while it does is refused, and whoever comes later finds it done.
TEST_F(CraftedInput, OneRunAtATimeInAFolder) {
  int refused = 0;
  for (int round = 0; round < 10; ++round) {
    const std::string name = "race" + std::to_string(round);
    std::vector<Words> starts = {{"--resume"}, {"--resume"}};
    if (round % 3 == 0) {
      starts = {{}, {"--resume"}, {"--overwrite"}};
    } else {
      // With a course to leave, which is what two must not do.
      CopyRun(name);
      fs::remove_all(Step(name, kSteps));
    }
    std::vector<std::future<Outcome>> runs;
    for (const Words& words : starts) {
      runs.push_back(std::async(std::launch::async, [&name, &words] {
        return RunDelink(TrainWords(name, words));
      }));
    }
    int trained = 0;
    for (std::future<Outcome>& run : runs) {
      const Outcome outcome = run.get();
      if (outcome.code == 0) {
        ++trained;
        continue;
      }
      EXPECT_EQ(outcome.code, 2) << outcome.err;
      EXPECT_THAT(outcome.err,
                  AnyOf(AllOf(HasSubstr(name + ": another run is at work"),
                              HasSubstr("name another folder")),
                        HasSubstr(name + ": holds a run")));
      refused +=
          static_cast<int>(outcome.err.find("at work") != std::string::npos);
    }
    EXPECT_GE(trained, 1);
    int step = 0;
    for (const auto& row : Rows(Path(name) + "/metrics.jsonl")) {
      if (!row.contains("loss")) continue;
      EXPECT_EQ(row["step"], ++step) << name;
    }
    EXPECT_EQ(step, kSteps) << name;
    EXPECT_FALSE(fs::exists(Path(name) + "/lock"));
  }
  EXPECT_GT(refused, 0);
}

TEST_F(CraftedInput, AFullDiskIsToldOfInOneSentence) {
  for (const char* room : {"4k", "40k", "100k"}) {
    SCOPED_TRACE(room);
    SmallDisk disk(room);
    if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
    WriteText(Path("much.txt"), std::string(200'000, 'x') + "\n\nthe end\n");
    Words words = Build("much.txt", "unused");
    words[6] = disk.path() + "/corpus";
    words.push_back(Path("text0.txt"));
    const Outcome outcome = RunDelink(words);
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr(disk.path() + "/corpus"),
                      HasSubstr("No space left on device; free"),
                      Not(HasSubstr("HDF5")), Not(HasSubstr("errno"))));
    EXPECT_FALSE(fs::exists(disk.path() + "/corpus"));
  }
}

// What network file systems and quotas put off until a file is closed.
TEST_F(CraftedInput, ErrorsOfCloseAreTold) {
  const auto run = [](const std::string& failing, const Words& words) {
    setenv("DELINK_CLOSE_FAILS", failing.c_str(), 1);
    setenv("LD_PRELOAD", CloseFails(), 1);
    Outcome outcome = RunDelink(words);
    unsetenv("LD_PRELOAD");
    unsetenv("DELINK_CLOSE_FAILS");
    return outcome;
  };
  const struct {
    const char* failing;  // in the path
    Words words;
  } rows[] = {
      {"step-00000010.tmp/rank-00000.h5", TrainWords("close-rank")},
      {"step-00000010.tmp/index.h5", TrainWords("close-index")},
      {"step-00000010.tmp/recipe.toml", TrainWords("close-text")},
      {"step-00000010.tmp/SHA256SUMS", TrainWords("close-sums")},
      {"train.partial/shard-00000.h5", Build("text0.txt", "close-shard")},
      {"train.partial/index.h5", Build("text0.txt", "close-corpus")},
  };
  for (auto [failing, words] : rows) {
    SCOPED_TRACE(failing);
    if (words[0] == "data") words.push_back(Path("text1.txt"));
    const Outcome outcome = run(failing, words);
    EXPECT_EQ(outcome.code, 1) << outcome.err;
    EXPECT_THAT(outcome.err,
                AllOf(HasSubstr(failing), HasSubstr("Input/output error"),
                      HasSubstr("the disk may be failing")));
  }
  EXPECT_EQ(Json({"inspect", Path("close-rank"), "--json"})["step"], 5);
  EXPECT_FALSE(fs::exists(Path("close-shard")));
  // Nothing is lost where a file was only read.
  const Outcome read = run("step-000000", {"inspect", Path("straight")});
  EXPECT_EQ(read.code, 0) << read.err;
}

}  // namespace
}  // namespace delink::testing::crafted_input_test
