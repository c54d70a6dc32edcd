#include "runtime/analysis/rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "runtime/profile/owner_names.h"

namespace moonshard::analysis {
namespace {

// "512" is 512; so is the text that tables show of a number with more than 14 digits.
bool says_number(const std::string& text, double number) {
  double parsed = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), parsed);
  if (code != std::errc() || end != text.data() + text.size()) return false;
  return parsed == number || text_of(number) == text;
}

template <class Descriptors>
std::vector<std::string> names_of(const Descriptors& descriptors) {
  std::vector<std::string> names;
  for (const auto& descriptor : descriptors) names.emplace_back(descriptor.name);
  return names;
}

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

std::string text_of(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* number = std::get_if<double>(&value)) return fmt::format("{:.14g}", *number);
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  return "nil";
}

bool is_asked(const Value& value, const Value& asked) {
  if (std::holds_alternative<std::monostate>(value)) return false;
  if (value.index() == asked.index()) return value == asked;
  const auto* word = std::get_if<std::string>(&asked);
  if (word == nullptr) return false;
  if (const auto* number = std::get_if<double>(&value)) return says_number(*word, *number);
  if (const auto* truth = std::get_if<bool>(&value))
    return *word == (*truth ? "true" : "false") || *word == (*truth ? "yes" : "no");
  return false;
}

const Value& Table::at(size_t row, std::string_view option) const {
  static const Value kNone;
  const auto found = std::find(options.begin(), options.end(), option);
  return found == options.end() ? kNone
                                : rows[row].values[static_cast<size_t>(found - options.begin())];
}

std::vector<std::string> in_order(const std::vector<std::string>& names,
                                  const std::vector<std::string>& known) {
  const std::set<std::string> present(names.begin(), names.end());
  std::set<std::string> taken;
  std::vector<std::string> order;
  for (const std::vector<std::string>* list : {&known, &names})
    for (const std::string& name : *list)
      if (present.contains(name) && taken.insert(name).second) order.push_back(name);
  return order;
}

std::vector<std::string> owners_in_order(const std::vector<std::string>& names) {
  std::vector<std::string> order = in_order(names, names_of(profile::kOwnerNames));
  std::stable_partition(order.begin(), order.end(),
                        [](const std::string& name) { return name != "rest"; });
  return order;
}

std::vector<std::string> phases_in_order(const std::vector<std::string>& names) {
  return in_order(names, names_of(profile::kPhases));
}

double quantile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const double position = q * static_cast<double>(samples.size() - 1);
  const size_t below = static_cast<size_t>(std::floor(position));
  const size_t above = std::min(below + 1, samples.size() - 1);
  const double share = position - static_cast<double>(below);
  return samples[below] + share * (samples[above] - samples[below]);
}

records::Statistics summarize(const std::vector<double>& samples) {
  records::Statistics summary{0, 0, 0, 0, 0, 0, 0};
  summary.count = static_cast<double>(samples.size());
  if (samples.empty()) return summary;
  summary.mean =
      std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(samples.size());
  summary.median = quantile(samples, 0.5);
  summary.min = *std::min_element(samples.begin(), samples.end());
  summary.max = *std::max_element(samples.begin(), samples.end());
  summary.p95 = quantile(samples, 0.95);
  summary.iqr = quantile(samples, 0.75) - quantile(samples, 0.25);
  return summary;
}

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
