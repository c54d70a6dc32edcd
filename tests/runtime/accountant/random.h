// Random schedules: numbers spread evenly over orders of magnitude, the same on every machine.
#pragma once

#include <cmath>
#include <cstdint>

namespace moonshard::accountant {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  /// From 0 up to 1 (SplitMix64).
  double uniform() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
  }
  double spread(double from, double to) { return from * std::exp(std::log(to / from) * uniform()); }
  double whole(double from, double to) { return std::floor(spread(from, to + 1)); }

 private:
  uint64_t state_;
};

}  // namespace moonshard::accountant
