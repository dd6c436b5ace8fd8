// That every value of a folder lands where our model has it, and what is wrong
// with folders whose tensors are not the model's.
#include "recipes/huggingface/folder_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "framework/module/layout.h"
#include "recipes/models/model_list.h"
#include "tests/recipes/huggingface/tiny_folder.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::folder_values_test {
namespace {

using huggingface::FolderValues;
using huggingface::ModelFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A folder, opened, with the model of its config.
class Opened {
 public:
  Opened(const TinyFolder& folder, const std::string& path, int shards = 1)
      : models_(BuiltInModels()) {
    folder.Write(path, shards);
    const auto families = FamiliesOf(models_);
    absl::StatusOr<ModelFolder> opened =
        huggingface::OpenModelFolder(path, families);
    status = opened.status();
    if (!status.ok()) return;
    folder_ = std::make_unique<ModelFolder>(*std::move(opened));
    model_ = BuildModel(models_, Scope(registry_), *folder_->config);
    layout_ = std::make_unique<Layout>(
        Layout::Create(registry_, model_->blocks(), {}, {}));
    absl::StatusOr<FolderValues> values =
        FolderValues::Open(*folder_, registry_, 1);
    status = values.status();
    if (status.ok()) {
      values_ = std::make_unique<FolderValues>(*std::move(values));
    }
  }

  absl::Status status;
  std::string said() const { return std::string(status.message()); }
  FolderValues& values() { return *values_; }

  const LogicalTensor& Tensor(const std::string& name) const {
    for (const LogicalTensor& tensor : layout_->tensors()) {
      if (tensor.name == name) return tensor;
    }
    ADD_FAILURE() << name;
    std::abort();
  }
  std::vector<float> Read(const std::string& name, const Rect& rect) {
    const LogicalTensor& tensor = Tensor(name);
    const Extent whole = values_->Has({}, tensor).front();
    std::vector<float> values(static_cast<size_t>(rect.elements()));
    const absl::Status read =
        values_->Read({}, tensor, Part(whole, rect), values.data());
    EXPECT_TRUE(read.ok()) << std::string(read.message());
    return values;
  }
  std::vector<float> Read(const std::string& name) {
    return Read(name, WholeOf(Tensor(name).shape));
  }

 private:
  ModelList models_;
  std::unique_ptr<ModelFolder> folder_;
  ParamRegistry registry_;
  std::unique_ptr<Sequential> model_;
  std::unique_ptr<Layout> layout_;
  std::unique_ptr<FolderValues> values_;
};

// One after the other, row by row.
std::vector<float> Stacked(const TinyFolder& folder,
                           const std::vector<std::string>& names) {
  std::vector<float> all;
  for (const std::string& name : names) {
    const std::vector<float> values = folder.tensors.at(name).Widened();
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// [rows, columns] of what is [columns, rows].
std::vector<float> Transposed(const StoredTensor& tensor) {
  const std::vector<float> values = tensor.Widened();
  const auto rows = static_cast<size_t>(tensor.shape[1]);
  const auto columns = static_cast<size_t>(tensor.shape[0]);
  std::vector<float> out(values.size());
  for (size_t r = 0; r < rows; ++r) {
    for (size_t c = 0; c < columns; ++c) {
      out[r * columns + c] = values[c * rows + r];
    }
  }
  return out;
}

class FolderValuesTest : public ::testing::Test {
 protected:
  std::string Folder() { return dir_ / absl::StrCat("folder", ++folders_); }
  std::string Refused(const TinyFolder& folder) {
    Opened opened(folder, Folder());
    EXPECT_TRUE(absl::IsInvalidArgument(opened.status))
        << opened.status.ToString();
    return opened.said();
  }

 private:
  TempDir dir_;
  int folders_ = 0;
};

void ExpectLlama(const TinyFolder& folder, const std::string& type,
                 Opened& ours) {
  EXPECT_EQ(ours.Read("embed/token/weight"),
            Stacked(folder, {"model.embed_tokens.weight"}));
  EXPECT_EQ(ours.Read("norm/weight"), Stacked(folder, {"model.norm.weight"}));
  for (int i = 0; i < 4; ++i) {
    const std::string mine = absl::StrCat("blocks/", i, "/");
    const std::string theirs = absl::StrCat("model.layers.", i, ".");
    const auto expect = [&](const std::string& name,
                            std::vector<std::string> names) {
      for (std::string& one : names) one = theirs + one;
      EXPECT_EQ(ours.Read(mine + name), Stacked(folder, names)) << name;
    };
    expect("norm1/weight", {"input_layernorm.weight"});
    expect("norm2/weight", {"post_attention_layernorm.weight"});
    expect("attn/qkv/weight",
           {"self_attn.q_proj.weight", "self_attn.k_proj.weight",
            "self_attn.v_proj.weight"});
    expect("attn/out/weight", {"self_attn.o_proj.weight"});
    expect("mlp/gate_up/weight",
           {"mlp.gate_proj.weight", "mlp.up_proj.weight"});
    expect("mlp/down/weight", {"mlp.down_proj.weight"});
    if (type == "qwen2") {
      expect("attn/qkv/bias", {"self_attn.q_proj.bias", "self_attn.k_proj.bias",
                               "self_attn.v_proj.bias"});
    }
    if (type == "qwen3") {
      expect("attn/q_norm/weight", {"self_attn.q_norm.weight"});
      expect("attn/k_norm/weight", {"self_attn.k_norm.weight"});
    }
  }
}

void ExpectGpt2(const TinyFolder& folder, Opened& ours) {
  EXPECT_EQ(ours.Read("embed/token/weight"),
            Stacked(folder, {"transformer.wte.weight"}));
  EXPECT_EQ(ours.Read("embed/position/weight"),
            Stacked(folder, {"transformer.wpe.weight"}));
  EXPECT_EQ(ours.Read("norm/bias"), Stacked(folder, {"transformer.ln_f.bias"}));
  const char* const linears[][2] = {{"attn/qkv", "attn.c_attn"},
                                    {"attn/out", "attn.c_proj"},
                                    {"mlp/up", "mlp.c_fc"},
                                    {"mlp/down", "mlp.c_proj"}};
  for (int i = 0; i < 4; ++i) {
    const std::string mine = absl::StrCat("blocks/", i, "/");
    const std::string theirs = absl::StrCat("transformer.h.", i, ".");
    EXPECT_EQ(ours.Read(mine + "norm1/weight"),
              Stacked(folder, {theirs + "ln_1.weight"}));
    EXPECT_EQ(ours.Read(mine + "norm2/bias"),
              Stacked(folder, {theirs + "ln_2.bias"}));
    for (const auto& [name, other] : linears) {
      EXPECT_EQ(ours.Read(mine + name + "/weight"),
                Transposed(folder.tensors.at(theirs + other + ".weight")))
          << name;
      EXPECT_EQ(ours.Read(mine + name + "/bias"),
                Stacked(folder, {theirs + other + ".bias"}));
    }
  }
}

TEST_F(FolderValuesTest, EveryFamilysTensorsAreWhereOurModelHasThem) {
  for (const std::string type : kModelTypes) {
    for (const int shards : {1, 3}) {
      SCOPED_TRACE(absl::StrCat(type, " in ", shards));
      const TinyFolder folder = TinyOf(type);
      Opened ours(folder, Folder(), shards);
      ASSERT_TRUE(ours.status.ok()) << ours.said();
      if (type == "gpt2") {
        ExpectGpt2(folder, ours);
      } else {
        ExpectLlama(folder, type, ours);
      }
      // As many as there are: nothing is passed over.
      size_t taken = 0;
      for (const auto& [name, source] : ours.values().sources()) {
        taken += source.from.size();
      }
      EXPECT_EQ(taken, folder.tensors.size());
    }
  }
}

TEST_F(FolderValuesTest, AllThreeTypesAreWidened) {
  for (const char* const type : {"BF16", "F16"}) {
    for (const std::string family : {"gpt2", "qwen3"}) {
      SCOPED_TRACE(absl::StrCat(family, " in ", type));
      TinyFolder folder = TinyOf(family);
      for (auto& [name, tensor] : folder.tensors) tensor.dtype = type;
      Opened ours(folder, Folder());
      ASSERT_TRUE(ours.status.ok()) << ours.said();
      if (family == "gpt2") {
        ExpectGpt2(folder, ours);
      } else {
        ExpectLlama(folder, family, ours);
      }
    }
  }
}

// Any rectangle, as layouts that cut a tensor ask for.
TEST_F(FolderValuesTest, AnyRectangleIsThatOfTheWhole) {
  for (const auto& [type, name] :
       {std::pair("gpt2", "blocks/2/attn/qkv/weight"),
        std::pair("llama", "blocks/2/attn/qkv/weight")}) {
    Opened ours(TinyOf(type), Folder());
    ASSERT_TRUE(ours.status.ok()) << ours.said();
    const std::vector<float> whole = ours.Read(name);
    const Rect all = WholeOf(ours.Tensor(name).shape);
    // Over the ends of queries and keys, in a row, of a column.
    for (const Rect& rect : {Rect{40, 40, 3, 7}, Rect{47, 2, 0, 32},
                             Rect{5, 1, 30, 2}, Rect{0, 90, 31, 1}}) {
      std::vector<float> expected;
      for (int64_t r = 0; r < rect.rows; ++r) {
        const auto begin =
            whole.begin() + (rect.row + r) * all.columns + rect.column;
        expected.insert(expected.end(), begin, begin + rect.columns);
      }
      EXPECT_EQ(ours.Read(name, rect), expected);
    }
  }
}

TEST_F(FolderValuesTest, NamesOfAModelWithoutAHeadAndOldBuffersAreTaken) {
  TinyFolder folder = TinyGpt2();
  for (int i = 0; i < 4; ++i) {
    folder.Add(absl::StrCat("transformer.h.", i, ".attn.bias"), {1, 1, 4, 4});
    folder.Add(absl::StrCat("transformer.h.", i, ".attn.masked_bias"), {});
  }
  const TinyFolder whole = folder;
  folder.DropPrefix("transformer.");
  Opened ours(folder, Folder());
  ASSERT_TRUE(ours.status.ok()) << ours.said();
  ExpectGpt2(whole, ours);
  TinyFolder llama = TinyLlama("qwen2");
  llama.Add("model.layers.3.self_attn.rotary_emb.inv_freq", {6});
  Opened other(llama, Folder());
  ASSERT_TRUE(other.status.ok()) << other.said();
}

// A random head is what a forgotten flag would give.
TEST_F(FolderValuesTest, AHeadIsTiedOrStoredAsTheConfigSays) {
  TinyFolder folder = TinyLlama("llama");
  folder.config["tie_word_embeddings"] = true;
  EXPECT_THAT(Refused(folder),
              AllOf(HasSubstr("lm_head.weight"),
                    HasSubstr("is not model.embed_tokens.weight"),
                    HasSubstr("tie_word_embeddings")));
  folder.tensors["lm_head.weight"] =
      folder.tensors["model.embed_tokens.weight"];
  Opened same(folder, Folder());
  EXPECT_TRUE(same.status.ok()) << same.said();
  folder.tensors.erase("lm_head.weight");
  Opened tied(folder, Folder());
  EXPECT_TRUE(tied.status.ok()) << tied.said();
  folder.config["tie_word_embeddings"] = false;
  EXPECT_THAT(Refused(folder), AllOf(HasSubstr("lm_head.weight: is missing"),
                                     HasSubstr("tie_word_embeddings")));
}

TEST_F(FolderValuesTest, AllThatIsWrongWithTensorsIsToldOnce) {
  TinyFolder folder = TinyLlama("qwen3");
  folder.tensors.erase("model.norm.weight");
  folder.tensors.erase("model.layers.2.mlp.up_proj.weight");
  folder.Add("model.layers.1.self_attn.q_proj.weight", {32, 48});
  folder.Add("model.layers.0.self_attn.q_norm.weight", {32});
  folder.Add("model.layers.0.self_attn.q_proj.bias", {48});
  folder.Add("score.weight", {2, 32});
  folder.tensors["model.layers.3.mlp.down_proj.weight"].dtype = "F8_E4M3";
  folder.tensors["model.layers.3.mlp.up_proj.weight"].dtype = "I64";
  const std::string said = Refused(folder);
  for (const char* const part :
       {"model.norm.weight: is missing; the model needs [32]",
        "model.layers.2.mlp.up_proj.weight: is missing; the model needs [80, "
        "32]",
        "model.layers.1.self_attn.q_proj.weight: is [32, 48], but the model's "
        "is [48, 32]",
        "model.layers.0.self_attn.q_norm.weight: is [32], but the model's is "
        "[12]",
        "model.layers.0.self_attn.q_proj.bias: the model of config.json has no "
        "such tensor",
        "score.weight: the model of config.json has no such tensor",
        "model.layers.3.mlp.down_proj.weight: is F8_E4M3",
        "model.layers.3.mlp.up_proj.weight: is I64"}) {
    EXPECT_THAT(said, HasSubstr(part));
  }
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 7);
}

// Names in both forms would be two models.
TEST_F(FolderValuesTest, ATensorThatIsThereTwiceIsRefused) {
  TinyFolder folder = TinyGpt2();
  folder.tensors["h.0.ln_1.bias"] = folder.tensors["transformer.h.0.ln_1.bias"];
  EXPECT_THAT(Refused(folder), HasSubstr("h.0.ln_1.bias: the model of"));
}

}  // namespace
}  // namespace delink::testing::folder_values_test
