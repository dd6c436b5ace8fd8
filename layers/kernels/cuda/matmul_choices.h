// Chooses a library's algorithm for a matrix product. Algorithms are timed once
// on this device, and the choice is kept in a file, so that a run is the same
// every time.
//
// The file is JSON: format and format_version, the device's name, the library's
// version, and for each product the algorithm (the library's own 64 bytes, in
// hexadecimal), its seconds, and its place in the library's own order. If the
// file is broken, or from another device or version, it is ignored with a
// warning and rewritten.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "framework/tensor/dtype.h"
#include "layers/kernels/arguments.h"

namespace delink::cuda {

// Work that a library does together with the product (arguments.h).
enum class Epilogue : uint8_t { kNone, kGelu, kGeluBackward, kBiasGrad };

// Everything that makes an algorithm correct and fast for a product.
struct MatmulProblem {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;
  DType dtype = DType::kF32;    // of A and B
  DType c_dtype = DType::kF32;  // of C
  bool transpose_a = false, transpose_b = false;
  bool bias = false, accumulate = false;
  // The largest power of two up to 256 that divides the address.
  int align_a = 0, align_b = 0, align_c = 0, align_bias = 0;
  Epilogue epilogue = Epilogue::kNone;
  int align_beside = 0;  // of the epilogue's operand

  // clang-tidy 14 takes the 0 of a defaulted comparison for a pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const MatmulProblem&, const MatmulProblem&) = default;
};

// `beside`: the epilogue's operand, `pre` or `db`; null without an epilogue.
MatmulProblem ProblemOf(const MatmulArgs& args, DType dtype,
                        Epilogue epilogue = Epilogue::kNone,
                        const void* beside = nullptr);
// "bf16 N T 1024 x 2304 x 768, ld 768 768 2304, to bf16, bias, align 256 256
// 256 16", with an epilogue ", gelu, align 256" and so on: one for each
// problem.
std::string ToString(const MatmulProblem& problem);

struct MatmulChoice {
  std::array<uint64_t, 8> algorithm = {};
  double seconds = 0;
  int place = 0;  // 0: the library's own first choice

  friend bool operator==(const MatmulChoice&, const MatmulChoice&) = default;
};

// Calls `seconds` with 0 .. count - 1; it returns nothing for an algorithm that
// does not run. Returns the fastest; a later one must be more than 2 % faster,
// since smaller differences are noise. Empty if none runs.
struct Fastest {
  int place = 0;
  double seconds = 0;
};
std::optional<Fastest> FindFastest(
    int count, const std::function<std::optional<double>(int)>& seconds);

class MatmulChoices {
 public:
  struct Origin {
    std::string device;
    int64_t library = 0;  // version
  };
  // Reads the file of this device and library in `folder`, if there is one. If
  // `folder` is empty, nothing is read or written.
  MatmulChoices(const std::string& folder, Origin origin);

  // Null if nothing was chosen yet.
  const MatmulChoice* Find(const std::string& problem) const;
  // Keeps the choice, also in the file, with those that other processes have
  // written there meanwhile. If another process chose first, returns its
  // choice. If the file cannot be written, warns once.
  MatmulChoice Keep(const std::string& problem, const MatmulChoice& choice);

  const std::string& path() const { return path_; }

 private:
  void Read();
  void Write();

  const Origin origin_;
  std::string path_;
  std::map<std::string, MatmulChoice> choices_;
  bool warned_ = false;
};

}  // namespace delink::cuda
