// Model files of llm.c, written here byte by byte as its train_gpt2.py does,
// and checkpoints.
#include "recipes/convert/llm_c.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/file.h"
#include "framework/hdf5/hdf5.h"
#include "framework/tensor/bfloat16.h"
#include "parallel/watch/folder_lock.h"
#include "recipes/convert/convert.h"
#include "recipes/convert/llm_c_file.h"
#include "tests/recipes/run/tiny_run.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::llm_c_test {
namespace {

using safetensors::Type;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct Sizes {
  int32_t T = 7, V = 131, L = 3, heads = 2, C = 10;
  int32_t rows = 256;
};

std::string Head(int32_t magic, int32_t version, const Sizes& s) {
  int32_t numbers[256] = {magic, version, s.T, s.V, s.L, s.heads, s.C, s.rows};
  return {reinterpret_cast<const char*>(numbers), sizeof(numbers)};
}

// Values that are all different, and exact in bf16 in their own way.
float ValueAt(int64_t i, bool half) {
  const auto value = static_cast<float>(i * 37 % 10'007 - 5'000) / 64;
  return half ? float{BFloat16(value)} : value;
}

// The n-th values after the header, and zeros for rows of no token.
std::string ModelFile(const Sizes& s, bool half) {
  std::string bytes = Head(20'240'326, half ? 5 : 3, s);
  const int64_t C = s.C;
  const int64_t count = (s.rows + s.T + 2) * C + s.L * (12 * C * C + 13 * C);
  for (int64_t i = 0; i < count; ++i) {
    const bool padding = s.V * C <= i && i < s.rows * C;
    const float value = padding ? 0 : ValueAt(i, half);
    const BFloat16 narrow(value);
    bytes.append(half ? reinterpret_cast<const char*>(&narrow)
                      : reinterpret_cast<const char*>(&value),
                 half ? 2 : 4);
  }
  return bytes;
}

void Put(const std::string& path, std::string_view bytes) {
  ASSERT_TRUE(WriteFile(path, bytes).ok());
}

std::string Converted(const ConvertOptions& options) {
  const auto report = Convert(options, BuiltInModels());
  EXPECT_TRUE(report.ok()) << std::string(report.status().message());
  return report.value_or("");
}

std::string Refused(const ConvertOptions& options) {
  const auto report = Convert(options, BuiltInModels());
  EXPECT_FALSE(report.ok());
  EXPECT_FALSE(PathExists(options.out + ".tmp"));
  return std::string(report.status().message());
}

TEST(LlmC, AFileComesBackByteByByte) {
  for (const bool half : {false, true}) {
    const TempDir dir;
    const std::string file = ModelFile({}, half);
    Put(dir / "model.bin", file);
    const std::string in =
        Converted({.in = dir / "model.bin", .out = dir / "run"});
    EXPECT_THAT(in, HasSubstr("GPT-2 of llm.c"));
    const std::string out =
        Converted({.in = dir / "run",
                   .out = dir / "back.bin",
                   .to = ModelForm::kLlmC,
                   .dtype = half ? Type::kBF16 : Type::kF32});
    const auto back = ReadFile(dir / "back.bin");
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_TRUE(*back == file) << "of " << file.size() << " bytes";
    // The digest that is told.
    EXPECT_THAT(out, HasSubstr(Sha256Hex(file)));
    EXPECT_FALSE(PathExists(dir / "back.bin.tmp"));
  }
}

// Where train_gpt2.py puts each tensor: kind by kind, layers within.
TEST(LlmC, TensorsAreWhereLlmCHasThem) {
  const TempDir dir;
  const Sizes s;
  Put(dir / "model.bin", ModelFile(s, false));
  Converted({.in = dir / "model.bin", .out = dir / "run"});
  const auto index =
      hdf5::File::OpenReadOnly(dir / "run/step-00000000/index.h5", "rank");
  ASSERT_TRUE(index.ok());
  const int64_t C = s.C, CC = C * C, L = s.L;
  const int64_t wpe = s.rows * C, ln1w = wpe + s.T * C, ln1b = ln1w + L * C;
  const int64_t qkvw = ln1b + L * C, qkvb = qkvw + L * 3 * CC;
  const int64_t outw = qkvb + L * 3 * C, outb = outw + L * CC;
  const int64_t ln2w = outb + L * C, ln2b = ln2w + L * C;
  const int64_t fcw = ln2b + L * C, fcb = fcw + L * 4 * CC;
  const int64_t downw = fcb + L * 4 * C, downb = downw + L * 4 * CC;
  const int64_t lnfw = downb + L * C;
  const struct {
    const char* ours;
    int64_t first, count;
  } places[] = {{"embed/token/weight", 0, s.V * C},
                {"embed/position/weight", wpe, s.T * C},
                {"blocks/0/norm1/weight", ln1w, C},
                {"blocks/2/norm1/bias", ln1b + 2 * C, C},
                {"blocks/1/attn/qkv/weight", qkvw + 3 * CC, 3 * CC},
                {"blocks/2/attn/qkv/bias", qkvb + 2 * 3 * C, 3 * C},
                {"blocks/1/attn/out/weight", outw + CC, CC},
                {"blocks/0/attn/out/bias", outb, C},
                {"blocks/1/norm2/weight", ln2w + C, C},
                {"blocks/1/norm2/bias", ln2b + C, C},
                {"blocks/2/mlp/up/weight", fcw + 2 * 4 * CC, 4 * CC},
                {"blocks/1/mlp/up/bias", fcb + 4 * C, 4 * C},
                {"blocks/1/mlp/down/weight", downw + 4 * CC, 4 * CC},
                {"blocks/2/mlp/down/bias", downb + 2 * C, C},
                {"norm/weight", lnfw, C},
                {"norm/bias", lnfw + C, C}};
  for (const auto& place : places) {
    const auto values =
        index->ReadAll<float>(absl::StrCat("/model/", place.ours));
    ASSERT_TRUE(values.ok()) << place.ours;
    ASSERT_EQ(static_cast<int64_t>(values->size()), place.count) << place.ours;
    for (int64_t i = 0; i < place.count; ++i) {
      ASSERT_EQ(At(*values, i), ValueAt(place.first + i, false))
          << place.ours << " " << i;
    }
  }
  const auto recipe = ReadFile(dir / "run/step-00000000/recipe.toml");
  ASSERT_TRUE(recipe.ok());
  for (const char* line : {"kind", "\"gpt\"", "layer_norm", "gelu_tanh"}) {
    EXPECT_THAT(*recipe, HasSubstr(line));
  }
}

// A large model has several files, each written by a thread of its own: the
// same tensors.
TEST(LlmC, FilesOfALargeModelAreWrittenSideBySide) {
  const TempDir dir;
  Put(dir / "model.bin", ModelFile({}, false));
  for (const auto& [name, file_bytes] :
       {std::pair("one", int64_t{1} << 31), {"more", int64_t{7'000}}}) {
    std::vector<int64_t> told;
    const auto report = ImportLlmC(
        {.in = dir / "model.bin",
         .out = dir / name,
         .file_bytes = file_bytes,
         .progress = [&](int64_t done, int64_t) { told.push_back(done); }},
        BuiltInModels());
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_EQ(told.back(), report->parameters);
    EXPECT_TRUE(std::is_sorted(told.begin(), told.end()));
  }
  EXPECT_FALSE(PathExists(dir / "one/step-00000000/rank-00001.h5"));
  EXPECT_TRUE(PathExists(dir / "more/step-00000000/rank-00002.h5"));
  Converted(
      {.in = dir / "more", .out = dir / "back.bin", .to = ModelForm::kLlmC});
  EXPECT_TRUE(*ReadFile(dir / "back.bin") == *ReadFile(dir / "model.bin"));
  // Whichever thread finds damage, it is told.
  const std::string rank = dir / "more/step-00000000/rank-00002.h5";
  std::string bytes = *ReadFile(rank);
  bytes[bytes.size() / 2] ^= 1;
  Put(rank, bytes);
  const auto damaged = ExportLlmC({.in = dir / "more/step-00000000",
                                   .out = dir / "again.bin",
                                   .threads = 3},
                                  BuiltInModels());
  EXPECT_THAT(std::string(damaged.status().message()),
              HasSubstr("rank-00002.h5: damaged"));
  EXPECT_FALSE(PathExists(dir / "again.bin"));
}

// Out and in again, a trained model is the same; a pseudo one goes out whole.
TEST(LlmC, CheckpointsComeBack) {
  const TinyRuns runs;
  runs.Go({.sets = {"data.batch=2", "run.micro_batch=2", "schedule.steps=4",
                    "schedule.warmup=0", "stage.0.until.steps=3",
                    "optimizer.lr=1e-2"},
           .out = "run"});
  for (const int64_t step : {3, 4}) {
    const std::string name = absl::StrCat("out", step);
    Converted({.in = runs.Checkpoint("run", step),
               .out = runs.Folder(name + ".bin"),
               .to = ModelForm::kLlmC});
    Converted({.in = runs.Folder(name + ".bin"), .out = runs.Folder(name)});
    const auto index = hdf5::File::OpenReadOnly(
        runs.Folder(name) + "/step-00000000/index.h5", "rank");
    ASSERT_TRUE(index.ok());
    int compared = 0;
    for (const auto& [path, values] : runs.Load("run", step)) {
      if (!path.starts_with("/model/")) continue;
      const auto back = index->ReadAll<float>(path);
      ASSERT_TRUE(back.ok()) << path;
      EXPECT_EQ(*back, values) << path;
      ++compared;
    }
    EXPECT_GT(compared, 40);
  }
}

TEST(LlmC, BlocksThatAreNotVisitedStay) {
  const TinyRuns runs;
  runs.Go(
      {.sets = {"data.batch=2", "run.micro_batch=2", "schedule.steps=4",
                "schedule.warmup=0", "stage.0.until.steps=3", "stage.0.depth=2",
                "stage.0.visit=even", "stage.0.share=none"},
       .out = "run"});
  Converted({.in = runs.Checkpoint("run", 3),
             .out = runs.Folder("two.bin"),
             .to = ModelForm::kLlmC});
  const auto values = llm_c::Values::Open(runs.Folder("two.bin"));
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ(values->header().layers, 2);
  EXPECT_EQ(values->header().vocab, 257);
  EXPECT_EQ(values->header().rows, 384);
}

TEST(LlmC, AFileHasTheValuesOfItsTensors) {
  for (const Sizes& s : {Sizes{}, Sizes{.L = 1, .heads = 1, .C = 1}}) {
    const llm_c::Header header{.max_seq = s.T,
                               .vocab = s.V,
                               .layers = s.L,
                               .heads = s.heads,
                               .dim = s.C,
                               .rows = s.rows};
    const llm_c::Tensor last = TensorsOf(header).back();
    EXPECT_EQ(ValuesIn(header), last.first + last.count);
  }
}

TEST(LlmC, FilesThatAreNoneAreRefused) {
  const TempDir dir;
  const auto refusal = [&](std::string_view bytes) {
    Put(dir / "model.bin", bytes);
    const auto values = llm_c::Values::Open(dir / "model.bin");
    EXPECT_FALSE(values.ok());
    return std::string(values.status().message());
  };
  const std::string good = ModelFile({}, true);
  EXPECT_THAT(refusal(""), HasSubstr("is no model file of llm.c"));
  EXPECT_THAT(refusal(good.substr(0, 1000)), HasSubstr("no model file"));
  EXPECT_THAT(refusal(Head(20'240'520, 1, {})), HasSubstr("no model file"));
  EXPECT_THAT(refusal(Head(20'240'326, 1, {})),
              HasSubstr("has version 1, but"));
  EXPECT_THAT(refusal(good.substr(0, good.size() - 1)),
              HasSubstr(absl::StrCat("truncated to ", good.size() - 1)));
  EXPECT_THAT(refusal(good + "x"), HasSubstr("too long"));
  for (const Sizes& sizes :
       {Sizes{.heads = 3}, Sizes{.rows = 130}, Sizes{.T = 0}, Sizes{.C = -10},
        Sizes{.L = 2'147'483'647}, Sizes{.heads = 1, .C = 2'147'483'647}}) {
    std::string spoilt = Head(20'240'326, 3, sizes);
    spoilt += good.substr(1024);
    EXPECT_THAT(refusal(spoilt), AnyOf(HasSubstr("which is impossible"),
                                       HasSubstr("truncated")));
  }
  // As large as it says, though there is nothing in it: no model either.
  const Sizes many{.T = 1, .V = 1, .L = 100'000, .heads = 1, .C = 1, .rows = 1};
  Put(dir / "model.bin", Head(20'240'326, 5, many));
  std::filesystem::resize_file(dir / "model.bin",
                               1024 + 2 * (4 + 25 * int64_t{many.L}));
  const absl::Status hollow = llm_c::Values::Open(dir / "model.bin").status();
  EXPECT_THAT(std::string(hollow.message()), HasSubstr("which is impossible"));
  // What is no such file is not taken for one.
  Put(dir / "other", std::string(2000, 'x'));
  EXPECT_FALSE(llm_c::IsModelFile(dir / "other"));
  EXPECT_FALSE(llm_c::IsModelFile(dir / "none"));
  EXPECT_FALSE(llm_c::IsModelFile(dir.path()));
}

TEST(LlmC, ModelsThatItDoesNotHaveAreRefusedWithAllReasons) {
  GptConfig config = llm_c::ConfigOf({.max_seq = 8,
                                      .vocab = 300,
                                      .layers = 1,
                                      .heads = 4,
                                      .dim = 8,
                                      .rows = 384});
  ASSERT_TRUE(llm_c::HeaderOf("run", config, Type::kF32).ok());
  EXPECT_EQ(llm_c::HeaderOf("run", config, Type::kBF16)->rows, 384);
  config.kv_heads = 2;
  config.norm = NormKind::kRmsNorm;
  config.norm_eps = 1e-6;
  config.bias = false;
  config.activation = GeluForm::kErf;
  config.tied = false;
  config.ffn = 24;
  const auto refused = llm_c::HeaderOf("run", config, Type::kF16);
  EXPECT_THAT(
      std::string(refused.status().message()),
      AllOf(HasSubstr("run: llm.c has no F16"),
            HasSubstr("run: model.kv_heads"), HasSubstr("run: model.norm:"),
            HasSubstr("run: model.norm_eps"), HasSubstr("run: model.bias"),
            HasSubstr("run: model.activation"), HasSubstr("run: model.tied"),
            HasSubstr("run: model.ffn")));
}

TEST(LlmC, NothingIsLeftOfWhatFails) {
  const TempDir dir;
  std::string file = ModelFile({}, false);
  const float large = 3.4e38F;
  std::memcpy(file.data() + 1024 + 40, &large, sizeof(large));
  Put(dir / "model.bin", file);
  Converted({.in = dir / "model.bin", .out = dir / "run"});
  const ConvertOptions out{.in = dir / "run",
                           .out = dir / "back.bin",
                           .to = ModelForm::kLlmC,
                           .dtype = Type::kBF16};
  EXPECT_THAT(Refused(out), AllOf(HasSubstr("embed/token/weight: 1 values"),
                                  HasSubstr("--dtype fp32")));
  EXPECT_FALSE(PathExists(out.out));
  // What is there is not replaced.
  Put(out.out, "mine");
  EXPECT_THAT(Refused(out), HasSubstr("already exists"));
  EXPECT_EQ(*ReadFile(out.out), "mine");
  EXPECT_THAT(Refused({.in = dir / "model.bin", .out = dir / "run"}),
              HasSubstr("already exists"));
  // Cut short: nothing begins.
  Put(dir / "model.bin", file.substr(0, 5000));
  EXPECT_THAT(Refused({.in = dir / "model.bin", .out = dir / "new"}),
              HasSubstr("truncated"));
  EXPECT_FALSE(PathExists(dir / "new"));
  EXPECT_THAT(Refused({.in = dir / "model.bin",
                       .out = dir / "new",
                       .to = ModelForm::kHuggingFace}),
              HasSubstr("to a checkpoint first"));
}

TEST(LlmC, AFileHasOneWriterAtATime) {
  const TempDir dir;
  const std::string file = ModelFile({}, false);
  Put(dir / "model.bin", file);
  Converted({.in = dir / "model.bin", .out = dir / "run"});
  const ConvertOptions out{
      .in = dir / "run", .out = dir / "back.bin", .to = ModelForm::kLlmC};
  {
    const auto other = FolderLock::Take(dir / "back.bin.tmp");
    ASSERT_TRUE(other.ok()) << other.status();
    const auto refused = Convert(out, BuiltInModels());
    EXPECT_TRUE(absl::IsAlreadyExists(refused.status()));
    EXPECT_THAT(std::string(refused.status().message()),
                HasSubstr("at work in this folder"));
    EXPECT_FALSE(PathExists(out.out));
  }
  // What one leaves that is killed is nobody's trouble.
  ASSERT_TRUE(MakeDirectories(out.out + ".tmp").ok());
  Put(out.out + ".tmp/lock", "");
  Put(out.out + ".tmp/delink.json", "a model file of llm.c\n");
  Put(out.out + ".tmp/values", std::string(2 * file.size(), 'x'));
  Converted(out);
  EXPECT_TRUE(*ReadFile(out.out) == file);
  EXPECT_FALSE(PathExists(out.out + ".tmp"));
}

TEST(LlmC, ADryRunPrintsAndWritesNothing) {
  const TempDir dir;
  Put(dir / "model.bin", ModelFile({}, false));
  Converted({.in = dir / "model.bin", .out = dir / "run"});
  const std::string out = Converted({.in = dir / "run",
                                     .out = dir / "back.bin",
                                     .to = ModelForm::kLlmC,
                                     .dry_run = true});
  EXPECT_THAT(out, AllOf(HasSubstr("qkvw[2]"), HasSubstr("[30, 10]"),
                         HasSubstr("blocks/2/attn/qkv/weight")));
  EXPECT_FALSE(PathExists(dir / "back.bin"));
  Converted({.in = dir / "model.bin", .out = dir / "new", .dry_run = true});
  EXPECT_FALSE(PathExists(dir / "new"));
}

}  // namespace
}  // namespace delink::testing::llm_c_test
