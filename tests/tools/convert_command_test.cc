// `delink convert` as a person uses it.
#include <filesystem>
#include <fstream>

#include "tests/tools/program_fixture.h"

namespace delink::testing::convert_command_test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ConvertCommand : public Program {
 protected:
  static json ReadJson(const std::string& path) {
    std::ifstream in(path);
    return json::parse(in, nullptr, false);
  }
};

TEST_F(ConvertCommand, OutAndInAgain) {
  const std::string out = Path("published"), back = Path("back");
  const Outcome there = Succeed({"convert", Path("straight"), out});
  EXPECT_THAT(there.out,
              AllOf(HasSubstr("converted " + Step("straight", kSteps)),
                    HasSubstr("to " + out + ": GPT2LMHeadModel (gpt2), F32"),
                    ContainsRegex("\n[0-9a-f]{64}  model.safetensors\n"),
                    ContainsRegex("\n[0-9a-f]{64}  config.json\n")));
  EXPECT_EQ(RunShell("cd \"$1\" && sha256sum -c SHA256SUMS", {out}).code, 0);

  const Outcome here = Succeed({"convert", out, back});
  EXPECT_THAT(here.out, AllOf(HasSubstr(back + "/step-00000000"),
                              ContainsRegex("\n[0-9a-f]{64}  index.h5\n")));
  const std::string again = Path("again");
  Succeed({"convert", back, again});
  for (const char* file : {"/model.safetensors", "/config.json"}) {
    EXPECT_EQ(RunShell("cmp \"$1\" \"$2\"", {out + file, again + file}).code, 0)
        << file;
  }
}

TEST_F(ConvertCommand, ADryRunPrintsTheTableOfTensors) {
  const std::string out = Path("dry");
  const Outcome there = Succeed({"convert", Path("straight"), out, "--dry-run",
                                 "--dtype", "bf16", "--shard-size", "20KB"});
  EXPECT_THAT(there.out,
              AllOf(HasSubstr("would convert"),
                    ContainsRegex("transformer.h.1.attn.c_attn.weight +"
                                  "\\[32, 96\\] +BF16 +6144  "
                                  "model-0000[0-9]-of-0000[0-9].safetensors  "
                                  "blocks/1/attn/qkv/weight\n")));
  EXPECT_FALSE(fs::exists(out));

  Succeed({"convert", Path("straight"), Path("full"), "--dtype", "bf16"});
  const Outcome here = Succeed({"convert", Path("full"), out, "--dry-run"});
  EXPECT_THAT(here.out,
              ContainsRegex("blocks/1/attn/qkv/weight +\\[96, 32\\] +F32 +12288"
                            "  BF16  transformer.h.1.attn.c_attn.weight\n"));
  EXPECT_FALSE(fs::exists(out));
}

TEST_F(ConvertCommand, WhatCannotBeIsRefused) {
  Succeed({"convert", Path("straight"), Path("there")});
  const struct {
    Words words;
    const char* says;
  } cases[] = {{{Path("straight"), Path("there")}, "already exists"},
               {{Path("straight"), Path("x"), "--to", "delink"},
                "is already of the form 'delink'"},
               {{Path("there"), Path("x"), "--to", "huggingface"},
                "is already of the form 'huggingface'"},
               {{Path("there"), Path("x"), "--dtype", "bf16"},
                "which always stores fp32 weights"},
               {{Path("there"), Path("x"), "--threads", "2"},
                "the form 'delink' does not use --threads"},
               {{Path("there"), Path("x"), "--shard-size", "1GB"},
                "the form 'delink' does not use --shard-size"},
               {{Path("straight"), Path("x"), "--to", "llmc", "--threads", "2"},
                "the form 'llmc' does not use --threads"},
               {{Path("corpus"), Path("x")}, "no checkpoint there"}};
  for (const auto& [words, says] : cases) {
    const Outcome outcome = ExpectRefused(With({"convert"}, words), says);
    EXPECT_THAT(outcome.out, IsEmpty());
    EXPECT_FALSE(fs::exists(Path("x")));
  }
  if (!HaveMpirun()) GTEST_SKIP() << "a build without MPI";
  const Outcome several =
      MpirunDelink(2, {"convert", Path("straight"), Path("x")});
  EXPECT_EQ(several.code, 2);
  EXPECT_THAT(several.err, HasSubstr("runs in one process"));
}

// Once a folder of Hugging Face has been unpacked over a run.
TEST_F(ConvertCommand, ARunWithAStrayConfigIsARun) {
  const std::string out = Path("of-run");
  ASSERT_EQ(RunShell("cp -r \"$1\" \"$2\" && echo {} > \"$2/config.json\"",
                     {Path("straight"), Path("strayed")})
                .code,
            0);
  const Outcome there = Succeed({"convert", Path("strayed"), out});
  EXPECT_THAT(there.out, HasSubstr("to " + out + ": GPT2LMHeadModel"));
}

TEST_F(ConvertCommand, AFullDiskLeavesNothing) {
  SmallDisk disk("100k");
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small disk needs root";
  const Outcome outcome =
      RunDelink({"convert", Path("straight"), disk.path() + "/out"});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("No space left"));
  EXPECT_TRUE(fs::is_empty(disk.path()));
}

}  // namespace
}  // namespace delink::testing::convert_command_test
