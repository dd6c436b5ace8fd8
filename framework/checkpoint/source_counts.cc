#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/layout.h"

namespace delink::checkpoint {
namespace {

constexpr char kSources[] = "/sources";

std::string PathOf(size_t i) { return absl::StrCat(kSources, "/", i); }

}  // namespace

absl::Status WriteSources(const std::vector<SourceCount>& sources,
                          hdf5::File& file) {
  for (size_t i = 0; i < sources.size(); ++i) {
    const SourceCount& s = sources[i];
    const std::string path = PathOf(i);
    DELINK_RETURN_IF_ERROR(file.CreateGroup(path));
    DELINK_RETURN_IF_ERROR(file.SetText(path, "name", s.name));
    DELINK_RETURN_IF_ERROR(file.SetText(path, "corpus", s.corpus));
    DELINK_RETURN_IF_ERROR(file.SetInt(path, "samples", s.samples));
    DELINK_RETURN_IF_ERROR(file.SetInt(path, "tokens", s.tokens));
    DELINK_RETURN_IF_ERROR(file.SetInt(path, "begin", s.begin));
    DELINK_RETURN_IF_ERROR(file.SetDouble(path, "epochs", s.epochs));
    DELINK_RETURN_IF_ERROR(file.SetDouble(path, "share", s.share));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SourceCount>> ReadSources(const hdf5::File& file) {
  std::vector<SourceCount> sources;
  while (file.Exists(PathOf(sources.size()))) {
    const std::string path = PathOf(sources.size());
    SourceCount s;
    DELINK_ASSIGN_OR_RETURN(s.name, file.GetText(path, "name"));
    DELINK_ASSIGN_OR_RETURN(s.corpus, file.GetText(path, "corpus"));
    DELINK_ASSIGN_OR_RETURN(s.samples, file.GetInt(path, "samples"));
    DELINK_ASSIGN_OR_RETURN(s.tokens, file.GetInt(path, "tokens"));
    DELINK_ASSIGN_OR_RETURN(s.begin, file.GetInt(path, "begin"));
    DELINK_ASSIGN_OR_RETURN(s.epochs, file.GetDouble(path, "epochs"));
    DELINK_ASSIGN_OR_RETURN(s.share, file.GetDouble(path, "share"));
    sources.push_back(std::move(s));
  }
  return sources;
}

}  // namespace delink::checkpoint
