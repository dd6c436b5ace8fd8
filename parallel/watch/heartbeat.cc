#include "parallel/watch/heartbeat.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sstream>
#include <vector>

#include "absl/strings/str_format.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "parallel/launch/launcher.h"
#include "parallel/watch/folder_lock.h"
#include "parallel/watch/ofd_lock.h"

namespace delink {
namespace {

constexpr int kLine = 128;  // bytes, with the line feed
constexpr int kLines = 3;   // beats, compute, network
// "compute 17 step 3 B(3,a) of blocks/2": what it has begun, as its 17th thing;
// "compute 17 waits-in-step 3 Recv(4,a) of blocks/3".
constexpr char kBegan[] = "step", kWaits[] = "waits-in-step";

std::string FileName(const std::string& folder, int rank) {
  return JoinPath(folder, absl::StrFormat("rank-%05d", rank));
}

// One call, so that a reader sees either the old or the new line. A failed
// write is ignored: only readers notice it.
void WriteLine(int file, int index, std::array<char, kLine>& line, int length) {
  const int used = std::clamp(length, 0, kLine - 1);
  std::memset(line.data() + used, ' ', kLine - 1 - used);
  line.back() = '\n';
  [[maybe_unused]] const ssize_t written =
      pwrite(file, line.data(), kLine, int64_t{index} * kLine);
}

// The lines of a heartbeat; fewer when it is being written for the first time.
std::vector<std::string> ReadLines(int file) {
  std::array<char, kLine * kLines> text{};
  const ssize_t got = pread(file, text.data(), text.size(), 0);
  std::vector<std::string> lines;
  for (ssize_t at = 0; at + kLine <= got; at += kLine) {
    std::string line(text.data() + at, kLine - 1);
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  }
  return lines;
}

Sighting::Doing ParseDoing(const std::string& line) {
  std::istringstream in(line);
  std::string lane, does;
  Sighting::Doing doing;
  if (!(in >> lane >> doing.count >> does >> doing.step)) return {};
  std::getline(in >> std::ws, doing.what);
  doing.waits = does == kWaits;
  return doing;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Heartbeat>> Heartbeat::Create(
    const std::string& folder, int rank) {
  std::string path = FileName(folder, rank);
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return FileError(errno, path, "create");
  if (ftruncate(file, 0) != 0) {
    const int error = errno;
    close(file);
    return FileError(error, path, "write");
  }
  const bool locked = TryLockWhole(file) == 0;
  std::unique_ptr<Heartbeat> heartbeat(
      new Heartbeat(std::move(path), file, locked));
  heartbeat->Beat();
  return heartbeat;
}

Heartbeat::~Heartbeat() {
  Leave();
  close(file_);
}

void Heartbeat::Beat() {
  if (left_) return;
  std::array<char, kLine> line;
  const int length = std::snprintf(
      line.data(), line.size(), "beats %lld locks %d process %lld on %s",
      static_cast<long long>(++beats_), locked_ ? 1 : 0,
      static_cast<long long>(getpid()), HostName().c_str());
  WriteLine(file_, 0, line, length);
}

void Heartbeat::Begin(Lane lane, int64_t step, std::string_view what) {
  begun_.fetch_add(1);
  if (lane == Lane::kCompute) {
    compute_thread_ = std::this_thread::get_id();
    ++counts_[0];
    doing_ = what;
    waits_ = false;
    Write(Lane::kCompute, kBegan, step, what);
    return;
  }
  ++counts_[1];
  // While compute waits, its thread looks after the other lanes.
  if (compute_thread_.load() == std::this_thread::get_id() && !waits_) {
    doing_ = what;
    Write(Lane::kNetwork, kBegan, step, "");
    Write(Lane::kCompute, kBegan, step, what);
  } else {
    Write(Lane::kNetwork, kBegan, step, what);
  }
}

void Heartbeat::Wait(int64_t step, std::string_view what) {
  waits_ = !what.empty();
  Write(Lane::kCompute, waits_ ? kWaits : kBegan, step, waits_ ? what : doing_);
}

void Heartbeat::Write(Lane lane, const char* does, int64_t step,
                      std::string_view what) const {
  const size_t index = lane == Lane::kNetwork ? 1 : 0;
  std::array<char, kLine> line;
  const int length = std::snprintf(
      line.data(), line.size(), "%s %lld %s %lld %.*s", ToString(lane),
      static_cast<long long>(counts_[index]), does,
      static_cast<long long>(step), static_cast<int>(what.size()), what.data());
  WriteLine(file_, 1 + static_cast<int>(index), line, length);
}

void Heartbeat::Leave() {
  if (left_.exchange(true)) return;
  unlink(path_.c_str());
  rmdir(ParentPath(path_).c_str());  // the last one can
}

Sighting ReadHeartbeat(const std::string& folder, int rank) {
  Sighting seen;
  const int file = open(FileName(folder, rank).c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    seen.left = true;
    return seen;
  }
  const std::vector<std::string> lines = ReadLines(file);
  int locks = 0;
  if (!lines.empty()) {
    long long beats = 0;
    std::sscanf(lines[0].c_str(), "beats %lld locks %d", &beats, &locks);
    seen.beats = beats;
  }
  if (lines.size() > 1) seen.compute = ParseDoing(lines[1]);
  if (lines.size() > 2) seen.network = ParseDoing(lines[2]);
  // If the rank left meanwhile, it removed the file before it released the
  // lock.
  if (locks != 0 && !HeldBySomebody(file)) {
    seen.left = !PathExists(FileName(folder, rank));
    seen.dead = !seen.left;
  }
  close(file);
  return seen;
}

absl::Status CheckNobodyLives(const std::string& folder) {
  if (!IsDirectory(folder)) return absl::OkStatus();
  DELINK_ASSIGN_OR_RETURN(const std::vector<std::string> names,
                          ListDirectory(folder));
  for (const std::string& name : names) {
    const std::string path = JoinPath(folder, name);
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    const bool lives = HeldBySomebody(file);
    const std::vector<std::string> lines = ReadLines(file);
    close(file);
    if (!lives) continue;
    const size_t who = lines.empty() ? 0 : lines[0].find("process");
    return FolderInUse(
        ParentPath(folder),
        lines.empty() ? name : lines[0].substr(std::min(who, lines[0].size())));
  }
  return absl::OkStatus();
}

}  // namespace delink
