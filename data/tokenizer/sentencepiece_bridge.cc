#include "data/tokenizer/sentencepiece_bridge.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <exception>
#include <utility>

namespace delink::sentencepiece_bridge {
namespace {

// Fixed, because the trained model depends on the number of threads.
constexpr char kTrainerThreads[] = "2";

class LoadedModel final : public Model {
 public:
  std::string Init(std::string_view bytes) {
    return processor_.LoadFromSerializedProto(bytes).ToString();
  }

  std::vector<Piece> Pieces() const override {
    std::vector<Piece> pieces(static_cast<size_t>(processor_.GetPieceSize()));
    for (int i = 0; i < processor_.GetPieceSize(); ++i) {
      Piece& piece = pieces[static_cast<size_t>(i)];
      piece.text = processor_.IdToPiece(i);
      piece.score = processor_.GetScore(i);
      if (processor_.IsByte(i)) piece.kind = PieceKind::kByte;
      if (processor_.IsControl(i)) piece.kind = PieceKind::kControl;
      if (processor_.IsUnknown(i)) piece.kind = PieceKind::kUnknown;
    }
    return pieces;
  }

  int32_t end_of_sentence() const override { return processor_.eos_id(); }

  std::string Encode(std::string_view text,
                     std::vector<int>* ids) const override {
    const auto status = processor_.Encode(text, ids);
    return status.ok() ? "" : status.ToString();
  }

 private:
  sentencepiece::SentencePieceProcessor processor_;
};

class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(const std::vector<std::string>& lines) : lines_(lines) {}
  bool done() const override { return at_ == lines_.size(); }
  void Next() override { ++at_; }
  const std::string& value() const override { return lines_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::vector<std::string>& lines_;
  size_t at_ = 0;
};

}  // namespace

std::string Load(std::string_view bytes, std::unique_ptr<Model>* model) {
  auto loaded = std::make_unique<LoadedModel>();
  const std::string error = loaded->Init(bytes);
  if (error != "OK") return error;
  *model = std::move(loaded);
  return "";
}

std::string Train(const Arguments& arguments,
                  const std::vector<std::string>& lines, std::string* model) {
  try {
    Lines sentences(lines);
    const auto status = sentencepiece::SentencePieceTrainer::Train(
        {arguments.begin(), arguments.end()}, &sentences, model);
    return status.ok() ? "" : status.ToString();
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::string Train(const Training& options, const std::vector<std::string>& text,
                  std::string* model) {
  const Arguments arguments = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(options.vocab)},
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"byte_fallback", "true"},
      {"user_defined_symbols", "\n"},
      {"unk_id", "0"},
      {"eos_id", "1"},
      {"bos_id", "-1"},
      {"pad_id", "-1"},
      {"num_threads", kTrainerThreads},
      {"shuffle_input_sentence", "false"},
      {"max_sentence_length", "8192"},
      {"allow_whitespace_only_pieces", "true"},
      {"character_coverage", std::to_string(options.character_coverage)},
      {"seed_sentencepiece_size", std::to_string(options.seed_pieces)},
      {"shrinking_factor", "0.5"},
      {"minloglevel", "3"},
  };
  return Train(arguments, text, model);
}

}  // namespace delink::sentencepiece_bridge
