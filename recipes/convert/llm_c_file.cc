#include "recipes/convert/llm_c_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/at.h"
#include "framework/base/check.h"
#include "framework/base/status_macros.h"

namespace delink::llm_c {
namespace {

using safetensors::Type;

constexpr int32_t kMagic = 20'240'326;
constexpr int32_t kVersionF32 = 3;
constexpr int32_t kVersionBF16 = 5;
constexpr size_t kHeaderNumbers = 256;
constexpr int64_t kHeaderBytes = 4 * kHeaderNumbers;
constexpr int64_t kRowsMultiple = 128;
// More than any model has: tensors are listed one by one.
constexpr int64_t kMostLayers = 1 << 14;

absl::Status BadModel(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

int64_t Padded(int64_t vocab) {
  return (vocab + kRowsMultiple - 1) / kRowsMultiple * kRowsMultiple;
}

// The number of values in a file, even beyond the range of integers.
double Size(const Header& h) {
  const auto C = static_cast<double>(h.dim);
  const auto rows = static_cast<double>(h.rows + h.max_seq);
  const auto L = static_cast<double>(h.layers);
  return (rows + 2) * C + L * (12 * C + 13) * C;
}

absl::StatusOr<Header> ReadHeader(const RandomAccessFile& file) {
  int32_t numbers[kHeaderNumbers] = {};
  if (file.size() >= kHeaderBytes) {
    DELINK_RETURN_IF_ERROR(file.Read(0, kHeaderBytes, numbers));
  }
  if (numbers[0] != kMagic) {
    return BadModel(
        file.path(),
        "is no model file of llm.c: such a file begins with the number "
        "20240326; give a file that train_gpt2.py or train_gpt2cu wrote");
  }
  if (numbers[1] != kVersionF32 && numbers[1] != kVersionBF16) {
    return BadModel(
        file.path(),
        absl::StrCat("has version ", numbers[1],
                     ", but only 3 (fp32) and 5 (bf16) can be read; write it "
                     "again with the current train_gpt2.py"));
  }
  Header h{.type = numbers[1] == kVersionF32 ? Type::kF32 : Type::kBF16,
           .max_seq = numbers[2],
           .vocab = numbers[3],
           .layers = numbers[4],
           .heads = numbers[5],
           .dim = numbers[6],
           .rows = numbers[7]};
  const int64_t least =
      std::min({h.max_seq, h.vocab, h.layers, h.heads, h.dim, h.rows});
  if (least < 1 || h.rows < h.vocab || h.dim % h.heads != 0 ||
      h.layers > kMostLayers || Size(h) > 1e18) {
    return BadModel(
        file.path(),
        absl::StrCat("has a header of ", h.max_seq, " positions, ", h.vocab,
                     " tokens in ", h.rows, " rows, ", h.layers, " layers, ",
                     h.heads, " heads and a width of ", h.dim,
                     ", which is impossible; the file is damaged: fetch it or "
                     "make it again"));
  }
  return h;
}

// A kind of tensor: `count` values in each block.
struct Kind {
  const char* ours;
  const char* theirs;
  int64_t count;
};

}  // namespace

std::vector<Tensor> TensorsOf(const Header& header) {
  const int64_t C = header.dim;
  std::vector<Tensor> tensors;
  int64_t first = 0;
  const auto add = [&](std::string ours, std::string theirs, int64_t count) {
    tensors.push_back({.ours = std::move(ours),
                       .theirs = std::move(theirs),
                       .first = first,
                       .count = count});
    first += count;
  };
  add("embed/token/weight", "wte", header.vocab * C);
  first = header.rows * C;
  add("embed/position/weight", "wpe", header.max_seq * C);
  const Kind in_block[] = {{"norm1/weight", "ln1w", C},
                           {"norm1/bias", "ln1b", C},
                           {"attn/qkv/weight", "qkvw", 3 * C * C},
                           {"attn/qkv/bias", "qkvb", 3 * C},
                           {"attn/out/weight", "attprojw", C * C},
                           {"attn/out/bias", "attprojb", C},
                           {"norm2/weight", "ln2w", C},
                           {"norm2/bias", "ln2b", C},
                           {"mlp/up/weight", "fcw", 4 * C * C},
                           {"mlp/up/bias", "fcb", 4 * C},
                           {"mlp/down/weight", "fcprojw", 4 * C * C},
                           {"mlp/down/bias", "fcprojb", C}};
  for (const Kind& kind : in_block) {
    for (int64_t i = 0; i < header.layers; ++i) {
      add(absl::StrCat("blocks/", i, "/", kind.ours),
          absl::StrCat(kind.theirs, "[", i, "]"), kind.count);
    }
  }
  add("norm/weight", "lnfw", C);
  add("norm/bias", "lnfb", C);
  return tensors;
}

int64_t ValuesIn(const Header& header) {
  const int64_t C = header.dim;
  return (header.rows + header.max_seq + 2) * C +
         header.layers * (12 * C + 13) * C;
}

GptConfig ConfigOf(const Header& header) {
  GptConfig config;
  config.layers = header.layers;
  config.vocab = header.vocab;
  config.max_seq = header.max_seq;
  config.dim = header.dim;
  config.heads = config.kv_heads = header.heads;
  config.ffn = 4 * header.dim;
  config.norm_eps = 1e-5;
  config.tied = true;
  return config;
}

absl::StatusOr<Header> HeaderOf(const std::string& path,
                                const ModelConfig& config, Type type) {
  std::string problems;
  const auto demand = [&](bool good, const std::string& what) {
    if (good) return;
    absl::StrAppend(&problems, problems.empty() ? "" : "\n", path, ": ", what);
  };
  const auto* const ours = dynamic_cast<const GptConfig*>(&config);
  demand(ours != nullptr,
         absl::StrCat("model.kind is ", std::string(config.kind()),
                      "; llm.c stores only GPT-2, which is kind gpt"));
  demand(type == Type::kF32 || type == Type::kBF16,
         absl::StrCat("llm.c has no ", std::string(ToString(type)),
                      "; give --dtype fp32 or bf16"));
  if (ours != nullptr) {
    const GptConfig& c = *ours;
    demand(
        c.kv_heads == c.heads,
        "model.kv_heads: llm.c's GPT-2 has as many key/value heads as heads");
    demand(c.norm == NormKind::kLayerNorm,
           "model.norm: llm.c's GPT-2 has layer norms");
    demand(c.norm_eps == 1e-5, "model.norm_eps: llm.c's GPT-2 has 1e-5");
    demand(c.bias, "model.bias: llm.c's GPT-2 has biases");
    demand(c.activation == GeluForm::kTanh,
           "model.activation: llm.c's GPT-2 has gelu_tanh");
    demand(c.tied, "model.tied: llm.c's GPT-2 ties the head to the embedding");
    demand(c.ffn == 4 * c.dim, "model.ffn: llm.c's GPT-2 has 4 x dim");
  }
  if (!problems.empty()) return absl::InvalidArgumentError(problems);
  return Header{.type = type,
                .max_seq = ours->max_seq,
                .vocab = ours->vocab,
                .layers = ours->layers,
                .heads = ours->heads,
                .dim = ours->dim,
                .rows = Padded(ours->vocab)};
}

bool IsModelFile(const std::string& path) {
  const auto file = RandomAccessFile::Open(path);
  int32_t magic = 0;
  return file.ok() && file->size() >= kHeaderBytes &&
         file->Read(0, sizeof(magic), &magic).ok() && magic == kMagic;
}

Values::Values(RandomAccessFile file, const Header& header)
    : file_(std::move(file)), header_(header) {
  for (Tensor& tensor : TensorsOf(header)) {
    std::string name = tensor.ours;
    tensors_.emplace(std::move(name), std::move(tensor));
  }
}

absl::StatusOr<Values> Values::Open(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(RandomAccessFile file, RandomAccessFile::Open(path));
  DELINK_ASSIGN_OR_RETURN(const Header header, ReadHeader(file));
  const int64_t wanted =
      kHeaderBytes + ValuesIn(header) * safetensors::SizeOf(header.type);
  if (file.size() < wanted) return FileCutShort(path, file.size(), wanted);
  if (file.size() > wanted) {
    return absl::DataLossError(absl::StrCat(path, ": too long: ", file.size(),
                                            " bytes instead of ", wanted,
                                            "; fetch it or make it again"));
  }
  return Values(std::move(file), header);
}

Descriptor Values::Has(const Field& field, const LogicalTensor& tensor) const {
  DELINK_CHECK(field.kind == Field::Kind::kParameters);
  const Rect whole = WholeOf(tensor.shape);
  return {{.rect = whole, .pitch = whole.columns}};
}

Descriptor Values::Owners(const Field& field,
                          const LogicalTensor& tensor) const {
  return Has(field, tensor);
}

absl::Status Values::Read(const Field& field, const LogicalTensor& tensor,
                          const Extent& extent, void* values) {
  DELINK_CHECK(field.kind == Field::Kind::kParameters);
  const auto found = tensors_.find(tensor.name);
  DELINK_CHECK(found != tensors_.end()) << tensor.name;
  DELINK_CHECK_EQ(found->second.count, tensor.shape.elements()) << tensor.name;
  const int64_t size = safetensors::SizeOf(header_.type);
  const Rect& rect = extent.rect;
  const int64_t columns = WholeOf(tensor.shape).columns;
  // Whole rows are one run.
  const bool whole = rect.columns == columns;
  const int64_t runs = whole ? 1 : rect.rows;
  const int64_t run = whole ? rect.elements() : rect.columns;
  std::vector<char> bytes(static_cast<size_t>(run * size));
  for (int64_t r = 0; r < runs; ++r) {
    const int64_t first =
        found->second.first + (rect.row + r) * columns + rect.column;
    DELINK_RETURN_IF_ERROR(
        file_.Read(kHeaderBytes + first * size, run * size, bytes.data()));
    safetensors::Widen(header_.type, bytes.data(),
                       std::span(static_cast<float*>(values) + r * run,
                                 static_cast<size_t>(run)));
  }
  return absl::OkStatus();
}

Sink::Sink(std::string path, OutputFile file, const Header& header)
    : path_(std::move(path)), file_(std::move(file)), header_(header) {}

absl::StatusOr<Sink> Sink::Create(const std::string& path,
                                  const Header& header) {
  DELINK_ASSIGN_OR_RETURN(OutputFile file, OutputFile::Create(path));
  Sink sink(path, std::move(file), header);
  const int64_t words[] = {
      kMagic,         header.type == Type::kF32 ? kVersionF32 : kVersionBF16,
      header.max_seq, header.vocab,
      header.layers,  header.heads,
      header.dim,     header.rows};
  int32_t numbers[kHeaderNumbers] = {};
  for (size_t i = 0; i < std::size(words); ++i) {
    numbers[i] = static_cast<int32_t>(words[i]);
  }
  DELINK_RETURN_IF_ERROR(
      sink.Put({reinterpret_cast<const char*>(numbers), sizeof(numbers)}));
  return sink;
}

absl::Status Sink::Put(std::string_view bytes) {
  digest_.Update(bytes);
  bytes_ += static_cast<int64_t>(bytes.size());
  return file_.Write(bytes);
}

absl::Status Sink::FillUpTo(int64_t first) {
  DELINK_CHECK(next_ <= first)
      << path_ << ": " << next_ << " is behind " << first;
  const auto bytes =
      static_cast<size_t>((first - next_) * safetensors::SizeOf(header_.type));
  next_ = first;
  return Put(std::string(bytes, '\0'));
}

absl::Status Sink::Begin(const Tensor& tensor) {
  begin_ = tensor.first;
  return FillUpTo(tensor.first);
}

absl::StatusOr<FileSum> Sink::Finish() {
  DELINK_CHECK_EQ(next_, ValuesIn(header_)) << path_;
  DELINK_RETURN_IF_ERROR(file_.Close());
  return FileSum{.name = path_, .digest = digest_.Hex(), .bytes = bytes_};
}

Descriptor Sink::Wants(const Field&, const LogicalTensor& tensor) const {
  const Rect whole = WholeOf(tensor.shape);
  return {{.rect = whole, .pitch = whole.columns}};
}

absl::Status Sink::Write(const Field&, const LogicalTensor& tensor,
                         const Extent& extent, const void* values) {
  const Rect& rect = extent.rect;
  const int64_t columns = WholeOf(tensor.shape).columns;
  DELINK_CHECK_EQ(next_, begin_ + rect.row * columns + rect.column)
      << tensor.name << " comes out of order";
  DELINK_CHECK(rect.rows == 1 || rect.columns == columns) << tensor.name;
  const std::span floats(static_cast<const float*>(values),
                         static_cast<size_t>(rect.elements()));
  std::string bytes(
      floats.size() * static_cast<size_t>(safetensors::SizeOf(header_.type)),
      '\0');
  const int64_t large = safetensors::Narrow(floats, header_.type, bytes.data());
  if (large > 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(tensor.name, ": ", large,
                     " values are too large for bf16; take --dtype fp32"));
  }
  next_ += rect.elements();
  return Put(bytes);
}

}  // namespace delink::llm_c
