// Seconds of kernel calls (framework/device/work.h) on one rank of a machine.
//
// If the machine file has measured calls of the kernel in the same type, a call
// takes the kernel's least time and its FLOPs and bytes at the best rates
// measured, times a factor: how much longer the measured calls took than that,
// each weighted by how near it is in the logarithms of its sizes (products,
// attention) or bytes (all others). Otherwise a product has the rate of its
// class of shapes, and every call takes at least the time of its bytes in the
// device's memory and of its launch. On a CPU a rank has a part of these rates,
// of those measured of as many threads as its node's ranks have together; on a
// device of its own it has all.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "framework/device/work.h"
#include "offload/rates/machine_rates.h"

namespace delink::offload {

struct WorkSeconds {
  double products = 0;  // of calls with FLOPs
  double others = 0;

  double all() const { return products + others; }
  WorkSeconds& operator+=(const WorkSeconds& more) {
    products += more.products;
    others += more.others;
    return *this;
  }
};

// Belongs to one thread.
class KernelPrices {
 public:
  // Of a rank that shares the CPU of a node with `ranks - 1` others and has
  // `threads` threads; both are ignored on other devices. The machine must
  // outlive it.
  KernelPrices(const MachineRates& machine, int64_t ranks, int64_t threads);

  // Of one call.
  double Seconds(const Work& work) const;
  // Of all calls of a list, `times` each.
  WorkSeconds Seconds(const std::vector<KernelCall>& calls,
                      int times = 1) const;
  // Whether calls of the kernel were measured in that type.
  bool HasMeasured(std::string_view kernel, DType dtype) const;

 private:
  // The calls of a kernel that were measured in one type, on the number of
  // threads that is nearest.
  struct Measured {
    std::vector<const KernelRate*> calls;
    std::vector<double> longer;               // each call's factor's logarithm
    double least = 0;                         // seconds of a call of no work
    double flops_per_s = 0, bytes_per_s = 0;  // the best of the calls

    // Of a call that is as fast as these allow.
    double Seconds(double flops, double bytes) const;
  };
  double Interpolated(const Measured& measured, const Work& work) const;
  double ByClass(const Work& work) const;

  const MachineRates& machine_;
  double part_ = 1;         // of the machine's products
  double memory_part_ = 1;  // of its memory's rate
  int64_t threads_ = 0;     // 0: not a CPU
  std::map<std::pair<std::string_view, DType>, Measured> measured_;
};

}  // namespace delink::offload
