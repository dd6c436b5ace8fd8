// Matrix products on CUDA: cuBLASLt's, and our own where it has none.
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>

#include "framework/base/check.h"
#include "framework/base/log.h"
#include "layers/kernels/cuda/cublaslt/products.h"
#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/open_library.h"

namespace delink::cuda {
namespace {

std::unique_ptr<Resident> MakeProducts() {
  const absl::StatusOr<CublasLt> library = OpenCublasLt();
  DELINK_CHECK(library.ok()) << library.status();
  const char* const timed = std::getenv("DELINK_TIME_MATMUL");
  return std::make_unique<Products>(
      *library,
      Products::Options{.timed = timed != nullptr && timed == std::string("1"),
                        .folder = CacheFolder()});
}

}  // namespace

template <typename T>
void Matmul(Stream& stream, const MatmulArgs& args) {
  if (args.m == 0 || args.n == 0) return;
  constexpr DType kType = std::is_same_v<T, float> ? DType::kF32 : DType::kBF16;
  if (args.k > 0) {
    auto& products = static_cast<Products&>(Kept(stream, MakeProducts));
    if (products.Multiply(stream, args, kType)) return;
  }
  TiledMatmul<T>(stream, args);
}

template void Matmul<float>(Stream&, const MatmulArgs&);
template void Matmul<BFloat16>(Stream&, const MatmulArgs&);

std::string MissingLibrary() {
  const absl::Status status = OpenCublasLt().status();
  return status.ok() ? "" : std::string(status.message());
}

}  // namespace delink::cuda
