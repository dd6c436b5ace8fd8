#include "layers/kernels/cuda/matmul_choices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "framework/base/at.h"
#include "framework/base/file.h"
#include "tests/testing/temp_dir.h"

namespace delink::cuda::matmul_choices_test {
namespace {

using ::testing::HasSubstr;

constexpr char kDevice[] = "NVIDIA H200 (141 GB)";
constexpr int64_t kLibrary = 130100;

MatmulChoice ChoiceOf(uint64_t number) {
  return {.algorithm = {number, ~uint64_t{0}, 3, 4, 5, 6, 7, number << 60},
          .seconds = 1.5e-5,
          .place = 2};
}

class Choices : public ::testing::Test {
 protected:
  MatmulChoices Open(const std::string& device = kDevice,
                     int64_t library = kLibrary) const {
    return MatmulChoices(folder(), {.device = device, .library = library});
  }
  std::string folder() const { return dir_.path() + "/cache/delink"; }

 private:
  const testing::TempDir dir_;
};

TEST_F(Choices, AreThereInTheNextRun) {
  MatmulChoices first = Open();
  EXPECT_EQ(first.Find("a"), nullptr);
  EXPECT_EQ(first.Keep("a", ChoiceOf(1)), ChoiceOf(1));
  EXPECT_EQ(first.Keep("b", ChoiceOf(9)), ChoiceOf(9));
  EXPECT_EQ(first.path(),
            folder() + "/matmul-NVIDIA-H200--141-GB--130100.json");
  const MatmulChoices second = Open();
  ASSERT_NE(second.Find("a"), nullptr);
  EXPECT_EQ(*second.Find("a"), ChoiceOf(1));
  EXPECT_EQ(*second.Find("b"), ChoiceOf(9));
  EXPECT_EQ(second.Find("c"), nullptr);
}

TEST_F(Choices, WhoWasFirstIsRight) {
  MatmulChoices one = Open(), other = Open();
  one.Keep("a", ChoiceOf(1));
  EXPECT_EQ(other.Keep("a", ChoiceOf(2)), ChoiceOf(1));
  EXPECT_EQ(other.Keep("b", ChoiceOf(3)), ChoiceOf(3));
  // What the other has written is not lost.
  one.Keep("c", ChoiceOf(4));
  const MatmulChoices later = Open();
  EXPECT_EQ(*later.Find("a"), ChoiceOf(1));
  EXPECT_EQ(*later.Find("b"), ChoiceOf(3));
  EXPECT_EQ(*later.Find("c"), ChoiceOf(4));
}

TEST_F(Choices, AreOfOneDeviceAndOneLibrary) {
  Open().Keep("a", ChoiceOf(1));
  EXPECT_EQ(Open("NVIDIA H100").Find("a"), nullptr);
  EXPECT_EQ(Open(kDevice, kLibrary + 1).Find("a"), nullptr);
  // Names that differ in what a file's name cannot show.
  EXPECT_EQ(Open("NVIDIA/H200-(141 GB)").Find("a"), nullptr);
}

TEST_F(Choices, ABrokenFileIsNotUsedAndWrittenAnew) {
  MatmulChoices choices = Open();
  choices.Keep("a", ChoiceOf(1));
  const std::string whole = *ReadFile(choices.path());
  EXPECT_THAT(whole, HasSubstr("\"format_version\": 1"));
  std::string digits = whole, version = whole;
  digits.replace(whole.find("ffffffff"), 1, "g");
  version.replace(whole.find("format_version\": 1") + 17, 1, "2");
  for (const std::string& broken :
       {std::string(), std::string("[]"), std::string("{\"format\": 3}"),
        whole.substr(0, whole.size() / 2), digits, version}) {
    ASSERT_TRUE(WriteFile(choices.path(), broken).ok());
    MatmulChoices again = Open();
    EXPECT_EQ(again.Find("a"), nullptr) << broken;
    EXPECT_EQ(again.Keep("b", ChoiceOf(5)), ChoiceOf(5));
    EXPECT_EQ(*Open().Find("b"), ChoiceOf(5)) << broken;
  }
}

TEST_F(Choices, AFolderThatCannotBeWrittenIsNoError) {
  ASSERT_TRUE(MakeDirectories(ParentPath(folder())).ok());
  ASSERT_TRUE(WriteFile(folder(), "a file where the folder should be").ok());
  MatmulChoices choices = Open();
  EXPECT_EQ(choices.Keep("a", ChoiceOf(1)), ChoiceOf(1));
  EXPECT_EQ(*choices.Find("a"), ChoiceOf(1));
}

TEST(MatmulChoices, WithoutAFolderNothingIsKept) {
  MatmulChoices choices("", {.device = kDevice, .library = kLibrary});
  EXPECT_EQ(choices.Keep("a", ChoiceOf(1)), ChoiceOf(1));
  EXPECT_EQ(choices.path(), "");
}

TEST(FindFastest, PrefersTheLibrarysOrderUnlessAnotherIsClearlyFaster) {
  const auto find = [](const std::vector<std::optional<double>>& times) {
    return FindFastest(static_cast<int>(times.size()),
                       [&](int i) { return At(times, i); });
  };
  EXPECT_EQ(find({1.0, 0.99, 1.5})->place, 0);
  EXPECT_EQ(find({1.0, 0.9, 0.89})->place, 1);
  EXPECT_EQ(find({1.0, 0.9, 0.8})->place, 2);
  EXPECT_EQ(find({std::nullopt, 0.9, 0.5})->place, 2);
  EXPECT_EQ(find({1.0, 0.9, 0.5})->seconds, 0.5);
  EXPECT_FALSE(find({std::nullopt, std::nullopt}).has_value());
  EXPECT_FALSE(find({}).has_value());
}

TEST(MatmulProblem, SaysAllThatAnAlgorithmDependsOn) {
  alignas(256) char memory[512] = {};
  MatmulArgs args{.m = 2,
                  .n = 3,
                  .k = 4,
                  .transpose_b = true,
                  .a = memory,
                  .lda = 5,
                  .b = memory + 4,
                  .ldb = 6,
                  .c = memory + 48,
                  .ldc = 7,
                  .bias = memory + 2};
  const MatmulProblem problem = ProblemOf(args, DType::kBF16);
  EXPECT_EQ(ToString(problem),
            "bf16 N T 2 x 3 x 4, ld 5 6 7, to bf16, bias, align 256 4 16 2");
  args.a = memory + 256;
  EXPECT_EQ(ProblemOf(args, DType::kBF16), problem);
  args.a = memory + 128;
  EXPECT_NE(ProblemOf(args, DType::kBF16), problem);
  args = {.m = 2,
          .n = 3,
          .k = 4,
          .transpose_a = true,
          .a = memory,
          .lda = 5,
          .b = memory,
          .ldb = 6,
          .c = memory,
          .ldc = 7,
          .accumulate = true,
          .c_is_gradient = true};
  EXPECT_EQ(ToString(ProblemOf(args, DType::kBF16)),
            "bf16 T N 2 x 3 x 4, ld 5 6 7, to f32, accumulate, align 256 256 "
            "256 0");
}

}  // namespace
}  // namespace delink::cuda::matmul_choices_test
