// Time from an amount and a rate.
#pragma once

namespace delink {

// 0 if the rate is not known.
constexpr double Over(double amount, double rate) {
  return rate > 0 ? amount / rate : 0;
}

}  // namespace delink
