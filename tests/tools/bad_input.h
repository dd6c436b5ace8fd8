// The fixture of tests that give the program bad input: rows of a table, each
// with what is done, the exit code, and what the message must say.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/file.h"
#include "framework/base/sha256.h"
#include "tests/tools/program_fixture.h"

namespace delink::testing {

inline void FlipByte(const std::string& path, int64_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const int byte = file.peek();
  file.seekp(at);
  file.put(static_cast<char>(byte ^ 4));
}

class BadInput : public Program {
 protected:
  struct Row {
    Words words;
    std::vector<std::string> says;  // where, what, how to mend
    std::function<void()> set_up = [] {};
    int code = 2;
    int ranks = 1;
  };
  static Row OnRanks(int ranks, Row row) {
    row.ranks = ranks;
    return row;
  }

  static void Check(const std::vector<Row>& rows) {
    for (const Row& row : rows) {
      SCOPED_TRACE(::testing::PrintToString(row.words));
      if (row.ranks > 1 && !HaveMpirun()) continue;
      row.set_up();
      const Outcome outcome = row.ranks > 1 ? MpirunDelink(row.ranks, row.words)
                                            : RunDelink(row.words);
      EXPECT_EQ(outcome.code, row.code) << outcome.err;
      for (const std::string& words : row.says) {
        EXPECT_THAT(outcome.err, ::testing::HasSubstr(words));
      }
      // By one rank, once.
      const std::string& last = row.says.back();
      EXPECT_EQ(outcome.err.find(last), outcome.err.rfind(last)) << outcome.err;
      EXPECT_FALSE(std::filesystem::exists(Path("never")));
    }
  }

  // Arguments that train recipes/tiny.toml with one key changed.
  static Words Set(const std::string& set) {
    return TrainWords("never", {"--set", set});
  }
  static Words Resume(const std::string& from, const Words& more = {}) {
    return TrainWords("never", With({"--resume=" + from}, more));
  }
  // Writes a text and returns the arguments that make it a corpus.
  static Words Build(const std::string& text, const std::string& out) {
    return {"data", "build", "--bytes", "--validation",
            "0.5",  "--out", Path(out), Path(text)};
  }
  static void CopyCorpus(const std::string& to) {
    std::filesystem::copy(Path("corpus"), Path(to),
                          std::filesystem::copy_options::recursive);
  }
  static Words TrainOn(const std::string& corpus) {
    return Set("data.train=" + Path(corpus) + "/train");
  }
  // A copy of the straight run.
  static void CopyRun(const std::string& to) {
    std::filesystem::copy(Path("straight"), Path(to),
                          std::filesystem::copy_options::recursive);
  }
  // Digests that fit a folder as it is.
  static void SumAgain(const std::string& folder) {
    std::vector<std::string> names = ListDirectory(folder).value();
    std::erase(names, kSumsName);
    ASSERT_TRUE(WriteSums(folder, names).ok());
  }
};

}  // namespace delink::testing
