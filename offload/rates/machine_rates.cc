// This file catches exceptions of the JSON library.
#include "offload/rates/machine_rates.h"

#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/json.h"
#include "framework/base/status_macros.h"
#include "framework/base/strict_json.h"

namespace delink::offload {
namespace {

using Json = nlohmann::ordered_json;
using ReadJson = nlohmann::json;

constexpr char kFormat[] = "delink-machine";
constexpr int kFormatVersion = 1;
constexpr char kMend[] = "run delink bench --suite machine";

Json BusJson(const BusRates& bus) {
  return {{"to_device_bytes_per_s", bus.to_device},
          {"to_host_bytes_per_s", bus.to_host},
          {"both_to_device_bytes_per_s", bus.both_to_device},
          {"both_to_host_bytes_per_s", bus.both_to_host}};
}

const char* WordOfPlace(UpdatePlace place) {
  return place == UpdatePlace::kHost ? "host" : "device";
}

Json MatmulJson(const std::vector<MatmulRate>& matmul) {
  Json list = Json::array();
  for (const MatmulRate& rate : matmul) {
    list.push_back(
        {{"dtype", ToString(rate.dtype)}, {"flops_per_s", rate.flops_per_s}});
  }
  return list;
}

Json UpdatesJson(const std::vector<UpdateRate>& updates) {
  Json list = Json::array();
  for (const UpdateRate& rate : updates) {
    list.push_back({{"place", WordOfPlace(rate.place)},
                    {"weights", ToString(rate.forms.weights)},
                    {"gradients", ToString(rate.forms.gradients)},
                    {"master", WordOf(rate.forms.master)},
                    {"moments", WordOf(rate.forms.moments)},
                    {"parameters_per_s", rate.params_per_s}});
  }
  return list;
}

// Reads the values of a file and notes impossible ones. For missing values the
// library throws.
class Reader {
 public:
  // Empty if nothing is wrong.
  const std::string& damage() const { return damage_; }

  MachineRates Whole(const ReadJson& json);

 private:
  double Rate(const ReadJson& json, const char* key) {
    const double rate = json.at(key);
    if (!std::isfinite(rate) || rate <= 0) {
      damage_ =
          absl::StrCat(key, " is ", rate, ", but must be above 0 and finite");
    }
    return rate;
  }
  // The one of `values` that the word stands for.
  template <typename T, typename Word>
  T ByWord(const ReadJson& json, const char* key,
           std::initializer_list<T> values, const Word& word) {
    const auto text = json.at(key).get<std::string>();
    for (const T value : values) {
      if (text == word(value)) return value;
    }
    damage_ = absl::StrCat(key, " is '", text, "'");
    return *values.begin();
  }
  DType Type(const ReadJson& json, const char* key) {
    return ByWord(json, key, {DType::kF32, DType::kBF16},
                  [](DType dtype) { return ToString(dtype); });
  }
  BusRates Bus(const ReadJson& json);
  ParamForms Forms(const ReadJson& json);

  std::string damage_;
};

BusRates Reader::Bus(const ReadJson& json) {
  return {.to_device = Rate(json, "to_device_bytes_per_s"),
          .to_host = Rate(json, "to_host_bytes_per_s"),
          .both_to_device = Rate(json, "both_to_device_bytes_per_s"),
          .both_to_host = Rate(json, "both_to_host_bytes_per_s")};
}

ParamForms Reader::Forms(const ReadJson& json) {
  return {.weights = Type(json, "weights"),
          .gradients = Type(json, "gradients"),
          .master = ByWord(
              json, "master",
              {MasterForm::kWhole, MasterForm::kSplit, MasterForm::kNone},
              [](MasterForm master) { return WordOf(master); }),
          .moments = ByWord(json, "moments",
                            {StateStorage::kExact, StateStorage::kBF16,
                             StateStorage::kBlock8},
                            [](StateStorage kept) { return WordOf(kept); })};
}

MachineRates Reader::Whole(const ReadJson& json) {
  const ReadJson& device = json.at("device");
  const ReadJson& memory = json.at("host_memory");
  MachineRates rates{
      .version = json.at("version"),
      .time = json.at("time"),
      .device = {.kind = device.at("kind"), .name = device.at("name")},
      .threads = json.at("threads"),
      .load = json.at("load"),
      .quick = json.at("quick"),
      .pinned_memory = json.at("pinned_memory"),
      .pinned = Bus(json.at("pinned")),
      .pageable = Bus(json.at("pageable")),
      .memory = {.read = Rate(memory, "read_bytes_per_s"),
                 .write = Rate(memory, "write_bytes_per_s"),
                 .rewrite = Rate(memory, "rewrite_bytes_per_s"),
                 .triad = Rate(memory, "triad_bytes_per_s")}};
  for (const ReadJson& rate : json.at("matmul")) {
    rates.matmul.push_back({.dtype = Type(rate, "dtype"),
                            .flops_per_s = Rate(rate, "flops_per_s")});
  }
  for (const ReadJson& rate : json.at("updates")) {
    rates.updates.push_back(
        {.place =
             ByWord(rate, "place", {UpdatePlace::kHost, UpdatePlace::kDevice},
                    WordOfPlace),
         .forms = Forms(rate),
         .params_per_s = Rate(rate, "parameters_per_s")});
  }
  return rates;
}

absl::Status Damaged(const std::string& origin, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(origin, ": ", absl::string_view(why.data(), why.size()),
                   "; to measure the machine's rates again, ", kMend));
}

std::string Named(const RatedDevice& device) {
  return absl::StrCat(device.kind, " '", device.name, "'");
}

}  // namespace

double MachineRates::FlopsOf(DType dtype) const {
  for (const MatmulRate& rate : matmul) {
    if (rate.dtype == dtype) return rate.flops_per_s;
  }
  return 0;
}

double MachineRates::ParamsPerSecond(UpdatePlace place,
                                     const ParamForms& forms) const {
  for (const UpdateRate& rate : updates) {
    if (rate.place == place && rate.forms == forms) return rate.params_per_s;
  }
  return 0;
}

absl::StatusOr<std::string> DefaultMachineRatesPath() {
  constexpr char kBelow[] = "delink/machine.json";
  // The XDG standard says to ignore a relative path.
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return JoinPath(cache, kBelow);
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') {
    return JoinPath(JoinPath(home, ".cache"), kBelow);
  }
  return absl::FailedPreconditionError(
      "the environment has neither HOME nor XDG_CACHE_HOME, below which the "
      "machine's rates are kept; set one of them");
}

std::string ToJson(const MachineRates& rates) {
  const Json json = {
      {"format", kFormat},
      {"format_version", kFormatVersion},
      {"version", rates.version},
      {"time", rates.time},
      {"device", {{"kind", rates.device.kind}, {"name", rates.device.name}}},
      {"threads", rates.threads},
      {"load", rates.load},
      {"quick", rates.quick},
      {"pinned_memory", rates.pinned_memory},
      {"pinned", BusJson(rates.pinned)},
      {"pageable", BusJson(rates.pageable)},
      {"host_memory",
       {{"read_bytes_per_s", rates.memory.read},
        {"write_bytes_per_s", rates.memory.write},
        {"rewrite_bytes_per_s", rates.memory.rewrite},
        {"triad_bytes_per_s", rates.memory.triad}}},
      {"matmul", MatmulJson(rates.matmul)},
      {"updates", UpdatesJson(rates.updates)}};
  return JsonText(json, 1) + "\n";
}

absl::StatusOr<MachineRates> ParseMachineRates(std::string_view text,
                                               const std::string& origin) {
  const absl::StatusOr<ReadJson> json = ParseStrictJson(text);
  if (!json.ok()) {
    return Damaged(origin, std::string(json.status().message()));
  }
  try {
    if (!json->is_object() || json->value("format", "") != kFormat) {
      return Damaged(origin, "is JSON, but not a machine's rates");
    }
    const int version = json->at("format_version");
    if (version != kFormatVersion) {
      return Damaged(origin, absl::StrCat("has format ", version,
                                          ", but this program reads format ",
                                          kFormatVersion));
    }
    Reader reader;
    MachineRates rates = reader.Whole(*json);
    if (!reader.damage().empty()) return Damaged(origin, reader.damage());
    return rates;
  } catch (const ReadJson::exception& error) {
    return Damaged(
        origin, absl::StrCat("has a missing or wrong value: ", error.what()));
  }
}

absl::Status WriteMachineRates(const MachineRates& rates,
                               const std::string& path) {
  DELINK_RETURN_IF_ERROR(MakeDirectories(ParentPath(path)));
  return WriteFileAtomically(path, ToJson(rates));
}

absl::StatusOr<MachineRates> ReadMachineRates(const std::string& path,
                                              const RatedDevice& device) {
  const std::string mend =
      absl::StrCat(kMend, device.kind == "cpu" ? "" : " --device ",
                   device.kind == "cpu" ? "" : device.kind);
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) {
    return absl::NotFoundError(absl::StrCat(
        path, ": this machine's rates have not been measured yet; ", mend));
  }
  DELINK_RETURN_IF_ERROR(text.status());
  DELINK_ASSIGN_OR_RETURN(MachineRates rates, ParseMachineRates(*text, path));
  if (rates.device != device) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": has the rates of ", Named(rates.device),
                     ", but this is ", Named(device), "; ", mend));
  }
  return rates;
}

}  // namespace delink::offload
