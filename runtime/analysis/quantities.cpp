#include "runtime/analysis/quantities.h"

#include <algorithm>

namespace moonshard::analysis {
namespace {

const records::Statistics* find_phase(const records::Result* detail, std::string_view name) {
  if (detail == nullptr) return nullptr;
  for (const auto& phase : detail->time.phases_ms)
    if (phase.name == name) return &phase.value;
  return nullptr;
}

// The fastest sample: growth is a property of the work; what other programs and slower ranks add
// is not.
double fastest_ms(const records::Result* detail, std::string_view name) {
  const records::Statistics* ms = find_phase(detail, name);
  if (ms == nullptr) return NAN;
  return std::isnan(ms->min) ? ms->median : ms->min;
}

double owner_mib(const records::Result* detail, std::string_view owner) {
  if (detail == nullptr) return NAN;
  for (const records::OwnedBytes& part : detail->memory.breakdown)
    if (part.owner == owner) return part.bytes / kMiB;
  return NAN;
}

double first_known(double first, double second) {
  return std::isnan(first) ? second : first;
}

}  // namespace

const std::vector<Quantity>& quantities() {
  using M = records::Metrics;
  using R = records::Result;
  static const std::vector<Quantity> list = {
      {"forward", "ms", true, [](const M&, const R* r) { return fastest_ms(r, "forward"); }},
      {"backward", "ms", true, [](const M&, const R* r) { return fastest_ms(r, "backward"); }},
      {"second backward", "ms", true,
       [](const M&, const R* r) { return fastest_ms(r, "second_backward"); }},
      {"norms", "ms", true, [](const M&, const R* r) { return norms_ms(r); }},
      {"clipped sum", "ms", true,
       [](const M&, const R* r) { return fastest_ms(r, "clipped_sum"); }},
      {"norm all-reduce", "ms", true,
       [](const M&, const R* r) {
         return first_known(fastest_ms(r, "norm_reduce"), r == nullptr ? NAN : r->norms_ms.reduce);
       }},
      {"communication", "ms", false, [](const M& m, const R*) { return m.comm_work_ms; }},
      {"communicated", "MiB", false, [](const M& m, const R*) { return m.comm_bytes / kMiB; }},
      {"step", "ms", false,
       [](const M& m, const R*) { return first_known(m.min_time_ms, m.median_time_ms); }},
      {"peak memory", "MiB", false, [](const M& m, const R*) { return m.peak_memory_mb; }},
      {"activations", "MiB", true,
       [](const M&, const R* r) { return owner_mib(r, "activations"); }},
  };
  return list;
}

const Quantity* find_quantity(std::string_view name) {
  const auto& all = quantities();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Quantity& each) { return each.name == name; });
  return found == all.end() ? nullptr : &*found;
}

double norms_ms(const records::Result* detail) {
  if (detail == nullptr) return NAN;
  double sum = NAN;
  for (const records::LayerTime& layer : detail->layers)
    if (!std::isnan(layer.norm_ms)) sum = first_known(sum, 0) + layer.norm_ms;
  return first_known(sum, detail->norms_ms.local);
}

double phase_median_ms(const records::Result* detail, std::string_view phase) {
  const records::Statistics* ms = find_phase(detail, phase);
  return ms == nullptr ? NAN : ms->median;
}

}  // namespace moonshard::analysis
