#include "layers/kernels/cuda/matmul_choices.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/log.h"

namespace delink::cuda {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kFormat[] = "delink-matmul";
constexpr int kFormatVersion = 1;
constexpr double kNoFaster = 0.98;
constexpr uintptr_t kLargestAlignment = 256;
constexpr size_t kDigits = 16;  // of a 64-bit number

int AlignmentOf(const void* address) {
  const auto number = reinterpret_cast<uintptr_t>(address);
  if (number == 0) return 0;
  return static_cast<int>(
      std::min(kLargestAlignment, uintptr_t{1} << std::countr_zero(number)));
}

const char* NameOf(Epilogue epilogue) {
  switch (epilogue) {
    case Epilogue::kNone:
      return "";
    case Epilogue::kGelu:
      return "gelu";
    case Epilogue::kGeluBackward:
      return "gelu backward";
    case Epilogue::kBiasGrad:
      return "bias gradient";
  }
  return "";
}

std::string Hexadecimal(const std::array<uint64_t, 8>& words) {
  std::string text;
  for (const uint64_t word : words) {
    absl::StrAppend(&text, absl::Hex(word, absl::kZeroPad16));
  }
  return text;
}

bool ReadHexadecimal(const std::string& text, std::array<uint64_t, 8>* words) {
  if (text.size() != words->size() * kDigits) return false;
  for (size_t i = 0; i < words->size(); ++i) {
    if (!absl::SimpleHexAtoi(text.substr(i * kDigits, kDigits), &(*words)[i])) {
      return false;
    }
  }
  return true;
}

// Lets the JSON library's exceptions pass.
std::optional<std::map<std::string, MatmulChoice>> Parse(
    const std::string& text, const MatmulChoices::Origin& origin) {
  const Json json = ParseOrderedJson(text);
  if (json.at("format") != kFormat ||
      json.at("format_version") != kFormatVersion ||
      json.at("device") != origin.device ||
      json.at("library") != origin.library) {
    return std::nullopt;
  }
  std::map<std::string, MatmulChoice> choices;
  for (const auto& [problem, entry] : json.at("choices").items()) {
    MatmulChoice choice{.seconds = entry.at("seconds"),
                        .place = entry.at("place")};
    if (!ReadHexadecimal(entry.at("algorithm"), &choice.algorithm)) {
      return std::nullopt;
    }
    choices[problem] = choice;
  }
  return choices;
}

}  // namespace

MatmulProblem ProblemOf(const MatmulArgs& a, DType dtype, Epilogue epilogue,
                        const void* beside) {
  return {.m = a.m,
          .n = a.n,
          .k = a.k,
          .lda = a.lda,
          .ldb = a.ldb,
          .ldc = a.ldc,
          .dtype = dtype,
          .c_dtype = a.c_is_gradient ? DType::kF32 : dtype,
          .transpose_a = a.transpose_a,
          .transpose_b = a.transpose_b,
          .bias = a.bias != nullptr,
          .accumulate = a.accumulate,
          .align_a = AlignmentOf(a.a),
          .align_b = AlignmentOf(a.b),
          .align_c = AlignmentOf(a.c),
          .align_bias = AlignmentOf(a.bias),
          .epilogue = epilogue,
          .align_beside = AlignmentOf(beside)};
}

std::string ToString(const MatmulProblem& p) {
  std::string text = absl::StrFormat(
      "%s %c %c %d x %d x %d, ld %d %d %d, to %s%s%s, align %d %d %d %d",
      ToString(p.dtype), p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N',
      p.m, p.n, p.k, p.lda, p.ldb, p.ldc, ToString(p.c_dtype),
      p.bias ? ", bias" : "", p.accumulate ? ", accumulate" : "", p.align_a,
      p.align_b, p.align_c, p.align_bias);
  if (p.epilogue != Epilogue::kNone) {
    absl::StrAppend(&text, ", ", NameOf(p.epilogue), ", align ",
                    p.align_beside);
  }
  return text;
}

std::optional<Fastest> FindFastest(
    int count, const std::function<std::optional<double>(int)>& seconds) {
  std::optional<Fastest> fastest;
  for (int i = 0; i < count; ++i) {
    const std::optional<double> took = seconds(i);
    if (!took) continue;
    if (!fastest || *took < kNoFaster * fastest->seconds) {
      fastest = {.place = i, .seconds = *took};
    }
  }
  return fastest;
}

MatmulChoices::MatmulChoices(const std::string& folder, Origin origin)
    : origin_(std::move(origin)) {
  if (folder.empty()) return;
  std::string name = origin_.device;
  for (char& c : name) {
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c))) c = '-';
  }
  path_ = JoinPath(
      folder, absl::StrCat("matmul-", name, "-", origin_.library, ".json"));
  Read();
}

const MatmulChoice* MatmulChoices::Find(const std::string& problem) const {
  const auto it = choices_.find(problem);
  return it != choices_.end() ? &it->second : nullptr;
}

MatmulChoice MatmulChoices::Keep(const std::string& problem,
                                 const MatmulChoice& choice) {
  Read();
  const auto [it, added] = choices_.emplace(problem, choice);
  if (added) Write();
  return it->second;
}

// The file's choices take precedence over those in memory.
void MatmulChoices::Read() {
  if (path_.empty() || !PathExists(path_)) return;
  const absl::StatusOr<std::string> text = ReadFile(path_);
  std::optional<std::map<std::string, MatmulChoice>> read;
  if (text.ok()) {
    try {
      read = Parse(*text, origin_);
    } catch (const Json::exception&) {
    }
  }
  if (!read) {
    if (!std::exchange(warned_, true)) {
      DELINK_LOG(kWarning) << path_
                           << " is damaged or from another device or library: "
                              "matrix products are timed again";
    }
    return;
  }
  read->merge(choices_);
  choices_ = *std::move(read);
}

void MatmulChoices::Write() {
  if (path_.empty()) return;
  Json choices = Json::object();
  for (const auto& [problem, choice] : choices_) {
    choices[problem] = {{"algorithm", Hexadecimal(choice.algorithm)},
                        {"seconds", choice.seconds},
                        {"place", choice.place}};
  }
  const Json json = {{"format", kFormat},
                     {"format_version", kFormatVersion},
                     {"device", origin_.device},
                     {"library", origin_.library},
                     {"choices", std::move(choices)}};
  absl::Status status = MakeDirectories(ParentPath(path_));
  if (status.ok())
    status = WriteFileAtomically(path_, JsonText(json, 1) + "\n");
  if (!status.ok() && !std::exchange(warned_, true)) {
    DELINK_LOG(kWarning) << "cannot save the choices for matrix products, so "
                            "the next run times them again: "
                         << status.message();
  }
}

}  // namespace delink::cuda
