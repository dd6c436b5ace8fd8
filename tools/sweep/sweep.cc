#include "tools/sweep/sweep.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "framework/base/file.h"
#include "framework/base/log.h"
#include "framework/base/sha256.h"
#include "framework/base/status_macros.h"
#include "parallel/launch/cores.h"
#include "parallel/watch/signals.h"
#include "recipes/record/progress.h"
#include "recipes/schema/recipe_io.h"
#include "recipes/schema/value.h"
#include "tools/sweep/job.h"
#include "tools/sweep/table.h"

namespace delink {
namespace {

using sweep::GridRun;
using sweep::Job;
using sweep::Row;

std::string RunsOf(const std::string& out) { return JoinPath(out, "runs"); }

std::string FolderOf(const std::string& out, const GridRun& run) {
  return JoinPath(RunsOf(out), run.name);
}

std::string SettingsText(const GridRun& run) {
  std::string text;
  for (const auto& [axis, label] : run.settings) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", axis, " = ", label);
  }
  return text;
}

// An absolute path, which is the same from any folder.
std::string Whole(const std::string& path) {
  std::error_code error;
  const auto whole = std::filesystem::weakly_canonical(path, error);
  return error ? path : whole.string();
}

// The recipe and settings of a run, to tell whether a folder is this run's.
absl::StatusOr<std::string> Origin(const GridRun& run,
                                   const std::string& recipe) {
  DELINK_ASSIGN_OR_RETURN(const std::string digest, Sha256File(run.recipe));
  const auto quoted = [](const std::string& text) {
    return schema::ToToml(schema::Value(text));
  };
  std::string text = absl::StrCat("recipe = ", quoted(recipe),
                                  "\nsha256 = ", quoted(digest), "\nset = [");
  for (const std::string& set : run.sets) {
    absl::StrAppend(&text, "\n  ", quoted(set), ",");
  }
  return text + "\n]\n";
}

absl::Status CheckOrigins(const std::string& out,
                          const std::vector<GridRun>& runs) {
  for (const GridRun& run : runs) {
    const std::string path = FolderOf(out, run) + ".toml";
    if (!PathExists(path)) continue;
    DELINK_ASSIGN_OR_RETURN(const std::string now,
                            Origin(run, Whole(run.recipe)));
    // Early builds wrote it like this.
    DELINK_ASSIGN_OR_RETURN(const std::string as_given,
                            Origin(run, run.recipe));
    DELINK_ASSIGN_OR_RETURN(const std::string then, ReadFile(path));
    if (then == now || then == as_given) continue;
    return absl::AlreadyExistsError(absl::StrCat(
        path,
        ": the run was started with another recipe or other settings; "
        "choose another --out, or remove the run and this file"));
  }
  return absl::OkStatus();
}

// Compares the plan with the folder's table. Another sweep's table is not
// overwritten, and runs that this sweep no longer has are reported.
absl::Status CheckTable(const std::string& out, const SweepPlan& plan) {
  const absl::StatusOr<std::string> json =
      ReadFile(JoinPath(out, "sweep.json"));
  if (!json.ok()) return absl::OkStatus();
  const sweep::Table before = sweep::NamesFromJson(*json);
  std::set<std::string> names;
  for (const GridRun& run : plan.runs) names.insert(run.name);
  std::vector<std::string> left;
  for (const Row& row : before.rows) {
    if (names.count(row.name) == 0 &&
        PathExists(JoinPath(RunsOf(out), row.name))) {
      left.push_back(row.name);
    }
  }
  if (left.empty()) return absl::OkStatus();
  if (before.settings != sweep::EmptyTable(plan.spec, plan.runs).settings) {
    return absl::AlreadyExistsError(
        absl::StrCat(out, ": has the runs of a sweep with other axes (",
                     absl::StrJoin(before.settings, ", "), "), ", left.front(),
                     " among them; choose another --out"));
  }
  DELINK_LOG(kWarning) << out << ": " << left.size()
                       << " earlier run(s) are no longer in " << plan.spec.path
                       << " and are left out of the table: "
                       << absl::StrJoin(left, ", ");
  return absl::OkStatus();
}

// The sweep's folder, locked while this object lives.
class SweepFolder {
 public:
  static absl::StatusOr<SweepFolder> Open(const std::string& out) {
    DELINK_RETURN_IF_ERROR(MakeDirectories(RunsOf(out)));
    DELINK_RETURN_IF_ERROR(MakeDirectories(JoinPath(out, "output")));
    const std::string path = JoinPath(out, ".lock");
    const int descriptor =
        open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0) return FileError(errno, path, "create");
    SweepFolder folder(descriptor);
    if (flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
      return absl::FailedPreconditionError(
          absl::StrCat(out,
                       ": another sweep is at work there; wait for it, or "
                       "choose another --out"));
    }
    return folder;
  }
  SweepFolder(SweepFolder&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  SweepFolder& operator=(SweepFolder&&) = delete;
  ~SweepFolder() {
    if (descriptor_ >= 0) close(descriptor_);
  }

 private:
  explicit SweepFolder(int descriptor) : descriptor_(descriptor) {}
  int descriptor_;
};

// A running sweep.
class Sweep {
 public:
  Sweep(const SweepOptions& options, const SweepPlan& plan, CoreShare cores)
      : options_(options),
        plan_(plan),
        cores_(std::move(cores)),
        table_(sweep::EmptyTable(plan.spec, plan.runs)),
        slots_(static_cast<size_t>(options.jobs)) {}

  absl::StatusOr<SweepOutcome> Run() {
    FindFinished();
    DELINK_RETURN_IF_ERROR(WriteTable());
    const SignalCatcher signals;
    size_t next = 0;
    bool busy = true;
    while (busy) {
      if (StopSignal() != 0 && outcome_.signal == 0) Stop();
      busy = false;
      for (size_t slot = 0; slot < slots_.size(); ++slot) {
        DELINK_RETURN_IF_ERROR(Collect(slot));
        if (outcome_.signal == 0) DELINK_RETURN_IF_ERROR(Fill(slot, &next));
        busy |= slots_[slot].job.has_value();
      }
      if (busy) std::this_thread::sleep_for(kPause);
    }
    return outcome_;
  }

 private:
  static constexpr auto kPause = std::chrono::milliseconds(20);

  struct Slot {
    std::optional<Job> job;
    size_t run = 0;
    std::chrono::steady_clock::time_point begin;
  };

  std::string OutputOf(const GridRun& run) const {
    return JoinPath(options_.out, absl::StrCat("output/", run.name, ".txt"));
  }

  void FindFinished() {
    for (size_t i = 0; i < plan_.runs.size(); ++i) {
      Row& row = table_.rows[i];
      sweep::ReadRow(plan_.spec, FolderOf(options_.out, plan_.runs[i]), &row);
      outcome_.finished += Done(row);
    }
    DELINK_LOG(kInfo) << plan_.runs.size() << " runs, " << outcome_.finished
                      << " of them finished; " << options_.jobs << " at once";
  }

  static bool Done(const Row& row) {
    return row.status == "finished" || row.status == "early";
  }

  // Starts the next run in a free slot.
  absl::Status Fill(size_t slot, size_t* next) {
    if (slots_[slot].job.has_value()) return absl::OkStatus();
    while (*next < plan_.runs.size() && Done(table_.rows[*next])) ++*next;
    if (*next == plan_.runs.size()) return absl::OkStatus();
    return Start(slot, (*next)++);
  }

  absl::Status Start(size_t slot, size_t index) {
    const GridRun& run = plan_.runs[index];
    Row& row = table_.rows[index];
    DELINK_LOG(kInfo) << Number(index) << row.name
                      << (row.status == "cut" ? ": goes on" : ": begins");
    DELINK_ASSIGN_OR_RETURN(const std::string origin,
                            Origin(run, Whole(run.recipe)));
    DELINK_RETURN_IF_ERROR(
        WriteFile(FolderOf(options_.out, run) + ".toml", origin));
    const auto jobs = static_cast<int>(slots_.size());
    const CoreShare share = ShareOfCores(cores_.cpus, static_cast<int>(slot),
                                         jobs, cores_.threads, 0);
    std::vector<std::string> words = CommandOf(options_, plan_, run);
    if (static_cast<size_t>(share.threads) < share.cpus.size()) {
      const int64_t each = share.threads / plan_.spec.ranks;
      words.insert(words.end(),
                   {"--threads", absl::StrCat(std::max<int64_t>(each, 1))});
    }
    DELINK_ASSIGN_OR_RETURN(Job job,
                            Job::Start({.words = std::move(words),
                                        .output = OutputOf(run),
                                        .cpus = share.cpus,
                                        .launcher = plan_.spec.ranks > 1}));
    slots_[slot] = {
        .job = job, .run = index, .begin = std::chrono::steady_clock::now()};
    row.status = "running";
    row.error.clear();
    return WriteTable();
  }

  // Records the result of a slot's run if it has ended.
  absl::Status Collect(size_t slot) {
    Slot& at = slots_[slot];
    if (!at.job.has_value()) return absl::OkStatus();
    const std::optional<int> code = at.job->Ended();
    if (!code.has_value()) return absl::OkStatus();
    at.job.reset();
    const GridRun& run = plan_.runs[at.run];
    Row& row = table_.rows[at.run];
    sweep::ReadRow(plan_.spec, FolderOf(options_.out, run), &row);
    const double seconds = std::chrono::duration<double>(
                               std::chrono::steady_clock::now() - at.begin)
                               .count();
    if (*code == 0) {
      // A run also ends if a source of data is exhausted.
      if (!Done(row)) row.status = "early";
      ++outcome_.finished;
      DELINK_LOG(kInfo) << Number(at.run) << row.name << ": " << row.status
                        << ", " << FormatSeconds(seconds);
    } else if (outcome_.signal == 0) {
      ++outcome_.failed;
      row.status = "failed";
      row.error = ErrorOf(run, *code);
      DELINK_LOG(kWarning) << Number(at.run) << row.name
                           << ": failed: " << row.error << "; see "
                           << OutputOf(run);
    }
    return WriteTable();
  }

  std::string ErrorOf(const GridRun& run, int code) const {
    const absl::StatusOr<std::string> output = ReadFile(OutputOf(run));
    const std::string said = output.ok() ? sweep::FirstError(*output) : "";
    if (code > 128) {
      const std::string by = absl::StrCat("ended by signal ", code - 128, " (",
                                          strsignal(code - 128), ")");
      return said.find("error: ") == std::string::npos ? by : said;
    }
    return said.empty() ? absl::StrCat("exit code ", code) : said;
  }

  void Stop() {
    outcome_.signal = StopSignal();
    DELINK_LOG(kInfo) << SignalName(outcome_.signal)
                      << ": the active runs save and end; the same command "
                         "continues the sweep";
    for (const Slot& slot : slots_) {
      if (slot.job.has_value()) slot.job->Stop(SIGTERM);
    }
  }

  std::string Number(size_t run) const {
    return absl::StrFormat("[%d/%d] ", run + 1, plan_.runs.size());
  }

  absl::Status WriteTable() const {
    DELINK_RETURN_IF_ERROR(WriteFileAtomically(
        JoinPath(options_.out, "sweep.csv"), sweep::ToCsv(table_)));
    return WriteFileAtomically(JoinPath(options_.out, "sweep.json"),
                               sweep::ToJson(table_));
  }

  const SweepOptions& options_;
  const SweepPlan& plan_;
  CoreShare cores_;
  sweep::Table table_;
  std::vector<Slot> slots_;
  SweepOutcome outcome_;
};

}  // namespace

absl::StatusOr<SweepPlan> PlanSweep(const SweepOptions& options,
                                    const ModelList& models) {
  SweepPlan plan;
  DELINK_ASSIGN_OR_RETURN(plan.spec, sweep::ReadSpec(options.spec));
  plan.spec.sets.insert(plan.spec.sets.end(), options.sets.begin(),
                        options.sets.end());
  DELINK_ASSIGN_OR_RETURN(plan.runs, sweep::ExpandGrid(plan.spec));
  for (const GridRun& run : plan.runs) {
    const absl::Status status =
        ReadRecipe(run.recipe, run.sets, KindsOf(models)).status();
    if (status.ok()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(options.spec, ": the run with ", SettingsText(run),
                     " has a wrong recipe:\n", status.message()));
  }
  return plan;
}

std::vector<std::string> CommandOf(const SweepOptions& options,
                                   const SweepPlan& plan, const GridRun& run) {
  std::vector<std::string> words;
  if (plan.spec.ranks > 1) {
    words = {"mpirun", "-np", absl::StrCat(plan.spec.ranks)};
  }
  words.insert(words.end(), options.program.begin(), options.program.end());
  words.push_back(run.recipe);
  for (const std::string& set : run.sets) {
    words.insert(words.end(), {"--set", set});
  }
  // With nothing to resume, --resume starts the run.
  words.insert(words.end(), {"--out", FolderOf(options.out, run), "--resume"});
  return words;
}

absl::StatusOr<SweepOutcome> RunSweep(const SweepOptions& options,
                                      const SweepPlan& plan, World& world) {
  DELINK_ASSIGN_OR_RETURN(const SweepFolder folder,
                          SweepFolder::Open(options.out));
  DELINK_RETURN_IF_ERROR(CheckOrigins(options.out, plan.runs));
  DELINK_RETURN_IF_ERROR(CheckTable(options.out, plan));
  DELINK_ASSIGN_OR_RETURN(CoreShare cores, TakeCores(world.local()));
  return Sweep(options, plan, std::move(cores)).Run();
}

}  // namespace delink
