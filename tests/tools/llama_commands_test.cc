// The program with a llama: train, inspect, eval, generate.
#include <map>

#include "tests/testing/source_path.h"
#include "tests/tools/program_fixture.h"

namespace delink::testing::llama_commands_test {
namespace {

using nlohmann::json;
using ::testing::StartsWith;

class LlamaCommands : public Program {
 protected:
  static void SetUpTestSuite() {
    Program::SetUpTestSuite();
    Succeed(LlamaWords("llama"));
  }
  static Words LlamaWords(const std::string& out, const Words& more = {}) {
    Words words = TrainWords(out, more);
    words[1] = SourcePath("recipes/tiny_llama.toml");
    return words;
  }
};

TEST_F(LlamaCommands, InspectTellsTensorsAndSharing) {
  const json pseudo = Json({"inspect", Step("llama", kSwitch), "--json"});
  EXPECT_EQ(pseudo["model"], "llama");
  EXPECT_EQ(pseudo["sharing"]["attention"], json::parse("[[0,1,2,3]]"));
  std::map<std::string, json> tensors;
  for (const json& tensor : pseudo["tensors"]) {
    tensors[tensor["name"].get<std::string>()] = tensor;
  }
  EXPECT_EQ(tensors["blocks/0/attn/qkv/weight"]["shape"], json({96, 32}));
  EXPECT_EQ(tensors["blocks/0/attn/q_norm/weight"]["shape"], json({12}));
  EXPECT_EQ(tensors["blocks/0/mlp/gate_up/weight"]["shape"], json({160, 32}));
  EXPECT_EQ(tensors["blocks/3/attn/k_norm/weight"]["link"],
            "blocks/0/attn/k_norm/weight");
  EXPECT_EQ(tensors["head/weight"]["link"], "embed/token/weight");
}

// The z-loss is trained with and not reported: what eval finds is what the run
// logged.
TEST_F(LlamaCommands, EvalIsTheValidationLossOfTheRun) {
  const double last = LastValidation("llama");
  EXPECT_GT(last, 0);
  EXPECT_NEAR(Loss(Path("llama")), last, 1e-9 * last);
}

TEST_F(LlamaCommands, GenerateContinuesBeyondWindowAndContext) {
  const auto generate = [](const std::string& seed) {
    const Outcome outcome =
        Succeed({"generate", Path("llama"), "--prompt", "the slab ", "--tokens",
                 "60", "--seed", seed});
    EXPECT_THAT(outcome.out, StartsWith("the slab "));
    return outcome.out;
  };
  EXPECT_EQ(generate("1"), generate("1"));
  EXPECT_NE(generate("1"), generate("2"));
}

// Of which keys decide the function, another value is another model.
TEST_F(LlamaCommands, AnotherModelIsNotResumed) {
  for (const std::string change :
       {"model.rope_scaling.factor=4.0", "model.window=8",
        "model.rope_pairing=interleaved"}) {
    ExpectRefused(LlamaWords("llama", {"--resume", "--set", change}),
                  change.substr(0, change.find('=')));
  }
}

}  // namespace
}  // namespace delink::testing::llama_commands_test
