#include "recipes/schema/machine_file.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/file.h"
#include "framework/base/status_macros.h"
#include "recipes/schema/describe.h"
#include "recipes/schema/limits.h"
#include "recipes/schema/reader.h"
#include "recipes/schema/toml.h"
#include "recipes/schema/writer.h"

namespace delink {
namespace {

using offload::BusRates;
using offload::KernelRate;
using offload::MachineRates;
using offload::MatmulRate;
using offload::NetworkRates;
using offload::SlowNode;
using offload::UpdatePlace;
using offload::UpdateRate;
using schema::Word;

constexpr char kHeader[] =
    "# This machine, measured by `delink bench --suite machine`.\n"
    "# docs/machines.md explains the keys.\n\n";
// Bytes, FLOPs or parameters a second that no machine exceeds.
constexpr double kMostRate = 1e18;
constexpr std::string_view kNone = "none";

std::string_view KindWord(RunConfig::Device kind) {
  return kind == RunConfig::Device::kAuto ? "" : Word(kind);
}

std::string_view PlaceWord(UpdatePlace place) {
  switch (place) {
    case UpdatePlace::kHost:
      return "host";
    case UpdatePlace::kDevice:
      return "device";
  }
  return "";
}

void Bytes(Section& s, std::string_view name, int64_t* bytes, const Key& key) {
  std::optional<int64_t> value;
  if (*bytes > 0) value = *bytes;
  schema::BytesKey(s, name, &value, key);
  *bytes = value.value_or(0);
}

// A speed, which is not written if it is 0.
void Rate(Section& s, std::string_view name, double* rate, bool required,
          std::string_view doc) {
  s.Float(name, rate,
          {.doc = doc,
           .required = required,
           .when_omitted = kNone,
           .above = 0.0,
           .max = kMostRate});
}

void DescribeBus(Section& s, BusRates& bus, bool required) {
  Rate(s, "to_device_bytes_per_s", &bus.to_device, required,
       "to the device, alone");
  Rate(s, "to_host_bytes_per_s", &bus.to_host, required, "to the host, alone");
  Rate(s, "both_to_device_bytes_per_s", &bus.both_to_device, required,
       "to the device while the other direction is busy");
  Rate(s, "both_to_host_bytes_per_s", &bus.both_to_host, required,
       "to the host while the other direction is busy");
}

void DescribeDevice(Section& s, MachineRates& machine) {
  auto kind = machine.device.kind == "cuda" ? RunConfig::Device::kCuda
                                            : RunConfig::Device::kCpu;
  s.Enum("kind", &kind, KindWord, {.doc = "kind of device", .required = true});
  machine.device.kind = std::string(Word(kind));
  s.String("name", &machine.device.name,
           {.doc = "name of the GPU, else of the processor", .required = true});
  offload::DeviceTier& tier = machine.tier;
  Bytes(s, "memory", &tier.memory,
        {.doc = "memory of a device; the CPU's is host memory",
         .required = true});
  Rate(s, "memory_bytes_per_s", &tier.bytes_per_s, true,
       "bytes of its memory that it reads and writes");
  s.Float(
      "kernel_latency_s", &machine.kernel_latency,
      {.doc = "least seconds of a call of a kernel, in which the host launches "
              "it, unless it is listed in `[[kernels]]`",
       .when_omitted = kNone,
       .min = 0.0,
       .max = 1.0});
  s.Float(
      "capability", &tier.capability,
      {.doc = "CUDA compute capability; kernels need 8.0, so a machine with "
              "less is for plans only",
       .when_omitted = "kernels run",
       .min = 1.0,
       .max = 100.0});
  s.Float("price_per_hour", &tier.price,
          {.doc = "price of a device for an hour, in any currency",
           .when_omitted = kNone,
           .min = 0.0,
           .max = 1e6});
  s.Float("watts", &tier.watts,
          {.doc = "power of a device under load",
           .when_omitted = kNone,
           .above = 0.0,
           .max = 1e6});
}

void DescribeHost(Section& s, MachineRates& machine) {
  Bytes(s, "memory", &machine.host_bytes,
        {.doc = "host memory of a node", .required = true});
  s.Int("threads", &machine.threads,
        {.doc = "threads for memory, products and updates of the host",
         .required = true,
         .min = 1,
         .max = schema::kMaxThreads});
  offload::HostMemoryRates& rates = machine.memory;
  Rate(s, "rewrite_bytes_per_s", &rates.rewrite, true,
       "memory rewritten in place, as an update does: bytes read and written");
  Rate(s, "read_bytes_per_s", &rates.read, false, "memory read");
  Rate(s, "write_bytes_per_s", &rates.write, false,
       "memory written that was not read");
  Rate(s, "triad_bytes_per_s", &rates.triad, false,
       "`a = b + s c`: three arrays' bytes");
}

void DescribeNetwork(Section& s, NetworkRates& rates, bool required,
                     bool links) {
  s.Float("latency_s", &rates.latency,
          {.doc = "seconds until the first byte arrives",
           .required = required,
           .when_omitted = kNone,
           .above = 0.0,
           .max = 1.0});
  Rate(s, "link_bytes_per_s", &rates.bytes_per_s, required,
       links ? "bytes of one link, each way"
             : "bytes that a device sends to another, each way");
  if (!links) return;
  s.Int("links", &rates.links,
        {.doc = "links of a node, which its devices share",
         .required = required,
         .when_omitted = kNone,
         .min = 1,
         .max = 1024});
}

void DescribeProduct(Section& s, MatmulRate& rate) {
  s.Enum("dtype", &rate.dtype, Word, {.doc = "type", .required = true});
  s.Int(
      "smallest", &rate.smallest,
      {.doc = "class of shapes: the smallest of the three sizes of a product "
              "`[m, k] x [k, n]`, if the others are large. The class with the "
              "greatest `smallest` is that of large products",
       .required = true,
       .min = 1,
       .max = 1 << 20});
  Rate(s, "flops_per_s", &rate.flops_per_s, true, "FLOPs of one device");
}

void DescribeUpdate(Section& s, UpdateRate& rate) {
  s.Enum("place", &rate.place, PlaceWord,
         {.doc = "where it runs", .required = true});
  s.Enum("weights", &rate.forms.weights, Word,
         {.doc = "type of weights, as `run.precision`", .required = true});
  s.Enum("gradients", &rate.forms.gradients, Word,
         {.doc = "as `run.gradients`", .required = true});
  s.Enum("master", &rate.forms.master, Word,
         {.doc = "as `run.master`", .required = true});
  s.Enum("moments", &rate.forms.moments, Word,
         {.doc = "as `optimizer.moments`", .required = true});
  Rate(s, "parameters_per_s", &rate.params_per_s, true, "parameters updated");
}

void DescribeKernel(Section& s, KernelRate& rate) {
  s.String("name", &rate.kernel,
           {.doc = "kernel, as in `delink bench --suite ops --json`",
            .required = true});
  s.Enum("dtype", &rate.dtype, Word, {.doc = "type", .required = true});
  s.Int("threads", &rate.threads,
        {.doc = "threads that it ran on, on a CPU",
         .min = 1,
         .max = schema::kMaxThreads});
  const std::pair<const char*, int64_t*> sizes[] = {
      {"m", &rate.m}, {"n", &rate.n}, {"k", &rate.k}};
  for (const auto& [name, size] : sizes) {
    s.Int(name, size,
          {.doc = "size of a product `[m, k] x [k, n]`; of attention: queries, "
                  "keys and the width of a head",
           .when_omitted = kNone,
           .min = 0,
           .max = int64_t{1} << 40});
  }
  s.Bool("transpose_a", &rate.transpose_a, {.doc = "of a product"});
  s.Bool("transpose_b", &rate.transpose_b, {.doc = "of a product"});
  const std::pair<const char*, double*> amounts[] = {
      {"flops", &rate.flops},
      {"read_bytes", &rate.read},
      {"written_bytes", &rate.written}};
  for (const auto& [name, amount] : amounts) {
    s.Float(name, amount,
            {.doc = "of the call",
             .when_omitted = kNone,
             .min = 0.0,
             .max = kMostRate});
  }
  s.Float("seconds", &rate.seconds,
          {.doc = "of the call", .required = true, .above = 0.0, .max = 1e6});
}

void DescribeSlow(Section& s, SlowNode& slow) {
  s.Int("node", &slow.node,
        {.doc = "number of the node, from 0 on", .required = true, .min = 0});
  s.Float("speed", &slow.speed,
          {.doc = "its devices', memory's and copies' rates are those above, "
                  "times this",
           .required = true,
           .above = 0.0,
           .max = 1.0});
}

void DescribeMeasurement(Section& s, MachineRates& machine) {
  s.String("version", &machine.version, {.doc = "program that measured"});
  s.String("time", &machine.time, {.doc = "UTC"});
  s.Float("load", &machine.load,
          {.doc = "runnable threads in the minute before",
           .when_omitted = kNone,
           .min = 0.0});
  s.Bool("quick", &machine.quick, {.doc = "a rough measurement"});
  s.Bool("pinned_memory", &machine.pinned_memory,
         {.doc = "whether `[pinned]` really is pinned memory: not on the CPU, "
                 "nor if the driver refused"});
}

void DescribeTopology(Section& s, MachineRates& machine) {
  s.String("name", &machine.name, {.doc = "name of the machine"});
  s.Int("nodes", &machine.nodes,
        {.doc = "nodes", .required = true, .min = 1, .max = 1 << 20});
  s.Int("devices", &machine.devices,
        {.doc = "devices of a node; its CPU is one",
         .required = true,
         .min = 1,
         .max = 1024});
}

void CheckTopology(Section& s, const MachineRates& machine) {
  const auto missing = [&](const char* key, const NetworkRates& rates,
                           int64_t count, const char* of) {
    if (count == 1 || rates.bytes_per_s > 0) return;
    s.Error(key, absl::StrCat("required, but not given: the machine has ",
                              count, " ", of));
  };
  missing("network.inside", machine.inside, machine.devices,
          "devices in a node");
  missing("network.between", machine.between, machine.nodes, "nodes");
  if (machine.between.links > machine.devices) {
    s.Error("network.between.links",
            absl::StrCat(machine.between.links, " links, but a node has ",
                         machine.devices, " device(s) (machine.devices)"));
  }
  for (size_t i = 0; i < machine.slow.size(); ++i) {
    const int64_t node = machine.slow[i].node;
    if (node >= machine.nodes) {
      s.Error(absl::StrCat("slow[", i, "].node"),
              absl::StrCat(node, ", but the machine has nodes 0 to ",
                           machine.nodes - 1, " (machine.nodes)"));
    }
    for (size_t k = 0; k < i; ++k) {
      if (machine.slow[k].node != node) continue;
      s.Error(absl::StrCat("slow[", i, "].node"),
              absl::StrCat(node, ", as slow[", k, "].node"));
    }
  }
  if (machine.matmul.empty()) {
    s.Error("products", "required, but not given: [[products]] tables");
  }
}

std::string Named(const offload::RatedDevice& device) {
  return absl::StrCat(device.kind, " '", device.name, "'");
}

}  // namespace

void schema::DescribeMachine(Section& document, MachineRates& machine) {
  const auto table = [&](const char* name, std::string_view doc,
                         const auto& describe) {
    document.SubTable(name, {.doc = doc}, describe);
  };
  table("machine", "The nodes and their devices.",
        [&](Section& s) { DescribeTopology(s, machine); });
  table("device", "A device.", [&](Section& s) { DescribeDevice(s, machine); });
  table("host", "The host of a node.",
        [&](Section& s) { DescribeHost(s, machine); });
  const bool disk = document.Has("disk");
  table("disk", "Files of a node. A machine may have no such table.",
        [&](Section& s) {
          Bytes(s, "size", &machine.disk.bytes,
                {.doc = "bytes that it holds", .required = disk});
          Rate(s, "read_bytes_per_s", &machine.disk.read, disk, "reads");
          Rate(s, "write_bytes_per_s", &machine.disk.write, disk, "writes");
          Rate(s, "both_read_bytes_per_s", &machine.disk.both_read, false,
               "reads while writes are busy");
          Rate(s, "both_write_bytes_per_s", &machine.disk.both_write, false,
               "writes while reads are busy");
        });
  table("network",
        "`inside` is between the devices of a node, `between` between nodes. "
        "Each is required if there are two.",
        [&](Section& s) {
          const bool inside = s.Has("inside"), between = s.Has("between");
          s.SubTable("inside", {.doc = "devices of a node"}, [&](Section& t) {
            DescribeNetwork(t, machine.inside, inside, false);
          });
          s.SubTable("between", {.doc = "nodes"}, [&](Section& t) {
            DescribeNetwork(t, machine.between, between, true);
          });
        });
  table("pinned", "Copies between host and device, of pinned memory.",
        [&](Section& s) { DescribeBus(s, machine.pinned, true); });
  const bool pageable = document.Has("pageable");
  table("pageable", "The same of pageable memory. A machine may omit it.",
        [&](Section& s) { DescribeBus(s, machine.pageable, pageable); });
  table("measured", "The measurement, if there was one.",
        [&](Section& s) { DescribeMeasurement(s, machine); });
  document.SubTables<MatmulRate>(
      "products", {.doc = "Matrix products, by type and class of shapes."},
      &machine.matmul, DescribeProduct);
  document.SubTables<UpdateRate>(
      "updates",
      {.doc = "AdamW, by place and form. Forms that are not listed count with "
              "the bandwidth of memory."},
      &machine.updates, DescribeUpdate);
  document.SubTables<KernelRate>(
      "kernels",
      {.doc =
           "Calls of kernels, from which plans interpolate. Kernels that are "
           "not listed count with `[[products]]` and the bandwidth of "
           "memory."},
      &machine.kernels, DescribeKernel);
  document.SubTables<SlowNode>(
      "slow", {.doc = "Nodes that are slower than the others."}, &machine.slow,
      DescribeSlow);
  if (document.complete()) CheckTopology(document, machine);
}

absl::StatusOr<MachineRates> ParseMachine(std::string_view text,
                                          std::string_view origin) {
  DELINK_ASSIGN_OR_RETURN(const schema::Table document,
                          schema::ParseToml(text, origin));
  if (schema::Find(document, "machine") == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat(std::string(origin),
                     ": has no [machine] table, so it describes no machine"));
  }
  Positions positions{std::string(origin)};
  schema::ReadContext context;
  context.positions = &positions;
  schema::Reader reader(document, "", &context);
  MachineRates machine;
  schema::DescribeMachine(reader, machine);
  reader.Finish();
  DELINK_RETURN_IF_ERROR(context.problems.ToStatus());
  return machine;
}

std::string ToToml(const MachineRates& machine) {
  std::vector<schema::Entry> entries;
  schema::Writer writer(&entries);
  MachineRates copy = machine;
  schema::DescribeMachine(writer, copy);
  return kHeader + schema::ToToml(entries);
}

absl::StatusOr<MachineRates> ReadMachine(const std::string& path) {
  DELINK_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseMachine(text, path);
}

absl::StatusOr<MachineRates> ReadMachine(const std::string& path,
                                         const offload::RatedDevice& device) {
  const std::string mend =
      absl::StrCat("; run delink bench --suite machine",
                   device.kind == "cpu" ? "" : " --device ",
                   device.kind == "cpu" ? "" : device.kind);
  absl::StatusOr<MachineRates> machine = ReadMachine(path);
  if (absl::IsNotFound(machine.status())) {
    return absl::NotFoundError(absl::StrCat(
        path, ": this machine's rates have not been measured yet", mend));
  }
  if (!machine.ok()) {
    const std::string all(machine.status().message());
    return absl::Status(machine.status().code(),
                        all.substr(0, all.find('\n')) + mend);
  }
  if (machine->device != device) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": has the rates of ", Named(machine->device),
                     ", but this is ", Named(device), mend));
  }
  return machine;
}

absl::Status WriteMachine(const MachineRates& machine,
                          const std::string& path) {
  DELINK_RETURN_IF_ERROR(MakeDirectories(ParentPath(path)));
  return WriteFileAtomically(path, ToToml(machine));
}

}  // namespace delink
