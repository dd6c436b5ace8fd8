// Matrix products on CUDA: cuBLASLt's, or our own if it has none.
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <type_traits>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "framework/base/check.h"
#include "framework/base/log.h"
#include "layers/kernels/compose.h"
#include "layers/kernels/cuda/cublaslt/products.h"
#include "layers/kernels/cuda/cuda.h"
#include "layers/kernels/cuda/open_library.h"

namespace delink::cuda {
namespace {

// The epilogues in DELINK_FUSE_MATMUL: 1 for all, 0 for none, or their names
// separated by commas.
std::optional<std::set<Epilogue>> FusedByEnvironment() {
  const char* const value = std::getenv("DELINK_FUSE_MATMUL");
  if (value == nullptr) return std::nullopt;
  const std::map<std::string, Epilogue> names = {
      {"gelu", Epilogue::kGelu},
      {"gelu_backward", Epilogue::kGeluBackward},
      {"bias_grad", Epilogue::kBiasGrad}};
  std::set<Epilogue> fused;
  for (const absl::string_view part : absl::StrSplit(value, ',')) {
    const std::string word(part);
    for (const auto& [name, epilogue] : names) {
      if (word == "1" || word == name) fused.insert(epilogue);
    }
    if (word != "1" && word != "0" && !names.contains(word)) {
      DELINK_LOG(kWarning) << "DELINK_FUSE_MATMUL: '" << word
                           << "' is neither 0, 1, gelu, gelu_backward nor "
                              "bias_grad";
    }
  }
  return fused;
}

bool TimedByEnvironment() {
  const char* const value = std::getenv("DELINK_TIME_MATMUL");
  return value != nullptr && std::string(value) == "1";
}

std::unique_ptr<Resident> MakeProducts() {
  const absl::StatusOr<CublasLt> library = OpenCublasLt();
  DELINK_CHECK(library.ok()) << library.status();
  return std::make_unique<Products>(
      *library, Products::Options{.timed = TimedByEnvironment(),
                                  .folder = CacheFolder(),
                                  .fused = FusedByEnvironment()});
}

Products& ProductsOf(Stream& stream) {
  return static_cast<Products&>(Kept(stream, MakeProducts));
}

template <typename T>
constexpr DType kType = std::is_same_v<T, float> ? DType::kF32 : DType::kBF16;

// Whether one call of cuBLASLt has done the product with its epilogue.
template <typename T, typename Args>
bool Fused(Stream& stream, const Args& args) {
  const MatmulArgs& product = args.product;
  return product.m > 0 && product.n > 0 && product.k > 0 &&
         ProductsOf(stream).Multiply(stream, args, kType<T>);
}

template <typename T>
using Made = Composed<Matmul<T>, BiasGrad<T>, GeluForward<T>, GeluBackward<T>>;

}  // namespace

template <typename T>
void Matmul(Stream& stream, const MatmulArgs& args) {
  if (args.m == 0 || args.n == 0) return;
  if (args.k > 0 && ProductsOf(stream).Multiply(stream, args, kType<T>)) return;
  TiledMatmul<T>(stream, args);
}

template <typename T>
void MatmulGelu(Stream& stream, const MatmulGeluArgs& args) {
  if (!Fused<T>(stream, args)) Made<T>::MatmulGelu(stream, args);
}

template <typename T>
void MatmulGeluBackward(Stream& stream, const MatmulGeluBackwardArgs& args) {
  if (!Fused<T>(stream, args)) Made<T>::MatmulGeluBackward(stream, args);
}

template <typename T>
void MatmulBiasGrad(Stream& stream, const MatmulBiasGradArgs& args) {
  if (!Fused<T>(stream, args)) Made<T>::MatmulBiasGrad(stream, args);
}

#define DELINK_INSTANTIATE(T)                                                  \
  template void Matmul<T>(Stream&, const MatmulArgs&);                         \
  template void MatmulGelu<T>(Stream&, const MatmulGeluArgs&);                 \
  template void MatmulGeluBackward<T>(Stream&, const MatmulGeluBackwardArgs&); \
  template void MatmulBiasGrad<T>(Stream&, const MatmulBiasGradArgs&);
DELINK_INSTANTIATE(float)
DELINK_INSTANTIATE(BFloat16)
#undef DELINK_INSTANTIATE

std::string MissingLibrary() {
  const absl::Status status = OpenCublasLt().status();
  return status.ok() ? "" : std::string(status.message());
}

}  // namespace delink::cuda
