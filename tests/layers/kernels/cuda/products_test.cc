// Products on the emulated device: our own kernel, and what cuBLASLt is asked
// for, of a fake that does what its documentation says.
#include "layers/kernels/cuda/cublaslt/products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "framework/base/file.h"
#include "layers/kernels/cuda/cuda.h"
#include "tests/layers/kernels/cuda/fake_cublaslt.h"
#include "tests/layers/kernels/cuda/fused_product.h"
#include "tests/layers/kernels/cuda/product.h"
#include "tests/testing/temp_dir.h"

namespace delink::testing::products_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr DType kTypes[] = {DType::kF32, DType::kBF16};

const std::set<cuda::Epilogue> kAll = {cuda::Epilogue::kGelu,
                                       cuda::Epilogue::kGeluBackward,
                                       cuda::Epilogue::kBiasGrad};
const std::set<cuda::Epilogue> kNothing;

// All forms of a product, at one size.
std::vector<Product> FormsOf(int64_t m, int64_t n, int64_t k) {
  std::vector<Product> forms;
  for (int i = 0; i < 4; ++i) {
    for (const int64_t pad : {0, 3}) {
      Product p{.m = m,
                .n = n,
                .k = k,
                .transpose_a = (i & 1) != 0,
                .transpose_b = (i & 2) != 0,
                .pad = pad};
      for (const bool accumulate : {false, true}) {
        p.accumulate = accumulate;
        p.gradient = false;
        p.bias = (i == 1) != accumulate;
        p.shift = pad;
        forms.push_back(p);
        p.bias = false;
        p.gradient = true;
        forms.push_back(p);
      }
    }
  }
  return forms;
}

class ProductsTest : public ::testing::Test {
 protected:
  cuda::Products Open(const cuda::Products::Options& options = {}) {
    return cuda::Products(FakeCublasLt::Fresh(), options);
  }
  static Multiply By(cuda::Products& products, DType dtype) {
    return [&products, dtype](Stream& stream, const MatmulArgs& args) {
      EXPECT_TRUE(products.Multiply(stream, args, dtype));
    };
  }
  DeviceStream on() { return {*device_, *stream_}; }
  FakeCublasLt& fake() { return FakeCublasLt::Instance(); }

 private:
  std::unique_ptr<Device> device_ = *NewCudaDevice(0);
  std::unique_ptr<Stream> stream_ = device_->NewStream();
};

TEST_F(ProductsTest, OurOwnKernelIsLikeTheReference) {
  const auto multiply = [](DType dtype) -> Multiply {
    return dtype == DType::kF32 ? cuda::TiledMatmul<float>
                                : cuda::TiledMatmul<BFloat16>;
  };
  for (const DType dtype : kTypes) {
    for (const Product& p : FormsOf(5, 7, 3)) {
      ExpectLikeReference(on(), dtype, p, multiply(dtype));
    }
    for (const Product& p : FormsOf(65, 67, 17)) {
      ExpectLikeReference(on(), dtype, p, multiply(dtype));
    }
    for (const Product& p : FormsOf(3, 70, 0)) {
      ExpectLikeReference(on(), dtype, p, multiply(dtype));
    }
    // Whole tiles, a tile and one, no rows.
    for (const int64_t m : {64, 129, 0}) {
      ExpectLikeReference(on(), dtype,
                          {.m = m, .n = 64, .k = 32, .transpose_b = true},
                          multiply(dtype));
    }
  }
}

TEST_F(ProductsTest, CublasLtIsAskedForTheRowMajorProduct) {
  cuda::Products products = Open();
  for (const DType dtype : kTypes) {
    for (const auto& [m, n, k] :
         {std::array<int64_t, 3>{5, 7, 3}, {1, 9, 4}, {8, 1, 16}, {6, 33, 1}}) {
      for (const Product& p : FormsOf(m, n, k)) {
        ExpectLikeReference(on(), dtype, p, By(products, dtype));
      }
    }
  }
  EXPECT_THAT(fake().run, Each(0));
}

TEST_F(ProductsTest, SumsAreKeptInF32AndAlignmentsTold) {
  cuda::Products products = Open();
  Product p{.m = 4, .n = 5, .k = 6, .bias = true};
  ExpectLikeReference(on(), DType::kBF16, p, By(products, DType::kBF16));
  EXPECT_EQ(fake().reduction_schemes,
            uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
  EXPECT_THAT(fake().alignments, Each(256));
  p.shift = 1;
  ExpectLikeReference(on(), DType::kBF16, p, By(products, DType::kBF16));
  EXPECT_THAT(fake().alignments, Each(2));
  EXPECT_EQ(fake().proposals_asked, 2);
}

TEST_F(ProductsTest, AProblemIsPlannedOnceAndTakenApartAtTheEnd) {
  {
    cuda::Products products = Open();
    const Product p{.m = 4, .n = 5, .k = 6};
    for (int i = 0; i < 3; ++i) {
      ExpectLikeReference(on(), DType::kF32, p, By(products, DType::kF32));
    }
    EXPECT_EQ(fake().proposals_asked, 1);
    EXPECT_GT(fake().live, 0);
  }
  EXPECT_EQ(fake().live, 0);
}

TEST_F(ProductsTest, WhatNeedsMoreWorkspaceIsNotTaken) {
  cuda::Products products = Open();
  fake().want_workspace = {0, 1};
  ExpectLikeReference(on(), DType::kF32, {.m = 4, .n = 5, .k = 6},
                      By(products, DType::kF32));
  EXPECT_THAT(fake().run, Each(2));
}

TEST_F(ProductsTest, SaysWhatItHasNoAlgorithmFor) {
  cuda::Products products = Open();
  fake().algorithms = 0;
  OnDevice<float, float>(
      on(), {.m = 4, .n = 5, .k = 6},
      [&](Stream& stream, const MatmulArgs& args) {
        EXPECT_FALSE(products.Multiply(stream, args, DType::kF32));
      });
  EXPECT_TRUE(fake().run.empty());
}

TEST_F(ProductsTest, EpiloguesAreLikeTheReference) {
  cuda::Products products = Open({.fused = kAll});
  for (const DType dtype : kTypes) {
    for (const Beside& p : FusedForms(8)) {
      EXPECT_TRUE(ExpectLikeReference(on(), dtype, p, products)) << p.n;
    }
  }
  EXPECT_THAT(fake().run, Each(0));
}

// One row of `pre` begins behind the other by less than cuBLASLt's units.
TEST_F(ProductsTest, WhatAnEpilogueCannotReadIsNotAsked) {
  cuda::Products products = Open({.fused = kAll});
  for (const DType dtype : kTypes) {
    for (const Beside& p : FusedForms(9)) {
      EXPECT_EQ(ExpectLikeReference(on(), dtype, p, products),
                p.kind == Beside::kBiasGrad);
    }
    Beside erf = FusedForms(8).front();
    erf.form = GeluForm::kErf;
    EXPECT_FALSE(ExpectLikeReference(on(), dtype, erf, products));
  }
}

TEST_F(ProductsTest, WithoutAnAlgorithmForAnEpilogueThereIsNone) {
  for (const cublasStatus_t refusal :
       {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_INVALID_VALUE}) {
    cuda::Products products = Open({.fused = kAll});
    fake().refusal = refusal;
    fake().algorithms = 0;
    for (const Beside& p : FusedForms(8)) {
      EXPECT_FALSE(ExpectLikeReference(on(), DType::kBF16, p, products));
    }
    EXPECT_TRUE(fake().run.empty());
    // An algorithm that was proposed but does not run is not asked for again.
    cuda::Products others = Open({.fused = kAll});
    fake().refusal = refusal;
    fake().do_not_run = {0, 1, 2};
    const Beside p = FusedForms(8).front();
    for (int i = 0; i < 2; ++i) {
      EXPECT_FALSE(ExpectLikeReference(on(), DType::kBF16, p, others));
    }
    EXPECT_EQ(fake().proposals_asked, 1);
  }
}

TEST_F(ProductsTest, TheFirstProposalThatRunsIsTaken) {
  cuda::Products products = Open();
  fake().do_not_run = {0, 1};
  for (int i = 0; i < 2; ++i) {
    ExpectLikeReference(on(), DType::kF32, {.m = 4, .n = 5, .k = 6},
                        By(products, DType::kF32));
  }
  EXPECT_FALSE(fake().run.empty());
  EXPECT_THAT(fake().run, Each(2));
  EXPECT_EQ(fake().proposals_asked, 1);
}

TEST_F(ProductsTest, EachEpilogueHasItsSwitch) {
  cuda::Products products = Open({.fused = {{cuda::Epilogue::kBiasGrad}}});
  for (const Beside& p : FusedForms(8)) {
    EXPECT_EQ(ExpectLikeReference(on(), DType::kBF16, p, products),
              p.kind == Beside::kBiasGrad);
  }
}

TEST_F(ProductsTest, EpiloguesAreNotAskedForWhereTheyAreOff) {
  cuda::Products products = Open({.fused = kNothing});
  for (const Beside& p : FusedForms(8)) {
    EXPECT_FALSE(ExpectLikeReference(on(), DType::kBF16, p, products));
  }
  EXPECT_EQ(fake().proposals_asked, 0);
}

// As far as that goes without a GPU: descriptions are made and checked by the
// host alone.
TEST_F(ProductsTest, TheRealLibraryTakesWhatIsDescribed) {
  const absl::StatusOr<cuda::CublasLt> real = cuda::OpenCublasLt();
  if (!real.ok()) GTEST_SKIP() << real.status();
  cuda::CublasLt mixed = *real;
  const cuda::CublasLt faked = FakeCublasLt::Fresh();
  mixed.create = faked.create;
  mixed.destroy = faked.destroy;
  mixed.heuristic = faked.heuristic;
  fake().algorithms = 0;
  cuda::Products products(mixed, {.fused = kAll});
  for (const DType dtype : kTypes) {
    for (const Beside& p : FusedForms(8)) {
      EXPECT_FALSE(ExpectLikeReference(on(), dtype, p, products));
    }
    for (const Product& p : FormsOf(4, 5, 6)) {
      const Multiply multiply = [&](Stream& stream, const MatmulArgs& args) {
        EXPECT_FALSE(products.Multiply(stream, args, dtype));
      };
      if (dtype == DType::kBF16 && !p.gradient) {
        OnDevice<BFloat16, BFloat16>(on(), p, multiply);
      } else {
        OnDevice<float, float>(on(), p, multiply);
      }
    }
  }
  EXPECT_GT(fake().proposals_asked, 0);
  EXPECT_GE(real->version(), 130000u);
}

TEST_F(ProductsTest, TheFastestIsTimedOnceAndKeptForTheNextRun) {
  const TempDir dir;
  const cuda::Products::Options options{.timed = true, .folder = dir.path()};
  const Product p{.m = 4, .n = 5, .k = 6, .accumulate = true};
  {
    cuda::Products products = Open(options);
    fake().algorithms = 4;
    fake().do_not_run = {1};
    fake().seconds = {8e-3, 0, 5e-4, 6e-3};
    ExpectLikeReference(on(), DType::kF32, p, By(products, DType::kF32));
    EXPECT_EQ(fake().proposals_asked, 1);
    EXPECT_EQ(fake().run.back(), 2);
  }
  EXPECT_EQ(ListDirectory(dir.path())->size(), 1u);
  // Now another would be faster, but nothing is timed.
  cuda::Products next = Open(options);
  fake().seconds = {0, 0, 1e-3, 0};
  ExpectLikeReference(on(), DType::kF32, p, By(next, DType::kF32));
  EXPECT_EQ(fake().proposals_asked, 0);
  EXPECT_THAT(fake().run, ElementsAre(2, 2));
  // What was kept but does not serve any more is chosen again.
  cuda::Products later = Open(options);
  fake().not_of_this_device = {2};
  ExpectLikeReference(on(), DType::kF32, p, By(later, DType::kF32));
  EXPECT_EQ(fake().proposals_asked, 1);
  EXPECT_NE(fake().run.back(), 2);
}

}  // namespace
}  // namespace delink::testing::products_test
