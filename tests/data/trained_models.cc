#include "tests/data/trained_models.h"

#include <sentencepiece_trainer.h>

#include <cstdio>
#include <cstdlib>
#include <unordered_map>

namespace delink::testing {
namespace {

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

std::string TrainModel(const std::map<std::string, std::string>& options,
                       const std::vector<std::string>& lines) {
  std::unordered_map<std::string, std::string> arguments(options.begin(),
                                                         options.end());
  arguments.insert({{"minloglevel", "3"}, {"num_threads", "1"}});
  Lines sentences(lines);
  std::string model;
  const auto status =
      sentencepiece::SentencePieceTrainer::Train(arguments, &sentences, &model);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::abort();
  }
  return model;
}

}  // namespace delink::testing
