#include "runtime/plan/machine_profile.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/comm/links.h"
#include "runtime/core/tuning.h"

namespace moonshard::plan {
namespace {

constexpr double kTera = 1e12, kGiga = 1e9;

struct NamedNumber {
  const char* name;
  double MachineProfile::*field;
  double unit;
};
constexpr NamedNumber kNumbers[] = {
    {"memory_gb", &MachineProfile::memory_bytes, kGiga},
    {"context_mb", &MachineProfile::context_bytes, 1e6},
    {"element_gb_per_s", &MachineProfile::element_per_s, kGiga},
    {"update_gb_per_s", &MachineProfile::update_per_s, kGiga},
    {"noise_g_per_s", &MachineProfile::noise_per_s, kGiga},
    {"launch_us", &MachineProfile::launch_us, 1},
    {"gap_us", &MachineProfile::gap_us, 1},
    {"to_device_gb_per_s", &MachineProfile::to_device_per_s, kGiga},
    {"to_host_gb_per_s", &MachineProfile::to_host_per_s, kGiga},
    {"host_update_gb_per_s", &MachineProfile::host_update_per_s, kGiga}};
// That older files, and those of GPUs, do not have.
constexpr NamedNumber kNumbersOfCpus[] = {{"cores", &MachineProfile::cores, 1},
                                          {"threads", &MachineProfile::threads, 1},
                                          {"fresh_gb_per_s", &MachineProfile::fresh_per_s, kGiga}};

constexpr std::pair<const char*, double DtypeRates::*> kKernelRates[] = {
    {"ghost_tflops", &DtypeRates::ghost},
    {"flash_tflops", &DtypeRates::flash},
    {"sum_tflops", &DtypeRates::sum},
    {"keep_tflops", &DtypeRates::keep}};

constexpr std::pair<const char*, double InStep::*> kInStep[] = {
    {"products", &InStep::products},
    {"attention_forward", &InStep::attention_forward},
    {"attention_backward", &InStep::attention_backward},
    {"launch", &InStep::launch},
    {"sums", &InStep::sums},
    {"update", &InStep::update},
    {"rows_read", &InStep::rows_read},
    {"tensor_us", &InStep::tensor_us},
    {"row_us", &InStep::row_us},
    {"chain", &InStep::chain},
    {"masked_forward", &InStep::masked_forward},
    {"masked_backward", &InStep::masked_backward},
    {"windowed", &InStep::windowed},
    {"outer_sum", &InStep::outer_sum},
    {"wide_rows_read", &InStep::wide_rows_read},
    {"rows_beside_sum", &InStep::rows_beside_sum},
    {"backward", &InStep::backward},
    {"plain_backward", &InStep::plain_backward},
    {"bare_backward", &InStep::bare_backward},
    {"cast", &InStep::cast},
    {"adapter", &InStep::adapter},
    {"capped", &InStep::capped},
    {"masked", &InStep::masked},
    {"plain_gradients", &InStep::plain_gradients},
    {"more_norms", &InStep::more_norms},
    {"gather", &InStep::gather},
    {"reduce", &InStep::reduce},
    {"reduced_tensor", &InStep::reduced_tensor},
    {"data", &InStep::data},
    {"graph_data_us", &InStep::graph_data_us},
    {"beside", &InStep::beside},
    {"clip_factors", &InStep::clip_factors},
    {"reduced", &InStep::reduced},
    {"first_steps", &InStep::first_steps}};

constexpr double kAnyShare = 100;

double positive(const Json& object, const char* key, const std::string& where) {
  const double value = number_or(object, key, -1);
  MS_CHECK(value > 0 && std::isfinite(value),
           "{}: expected a machine profile with '{}' above 0, got {}; calibrate again with "
           "'moonshard plan --calibrate'",
           where, key, object.contains(key) ? one_line(object[key]) : "nothing");
  return value;
}

// Rows of 16-bit attention without a mask. Older files have them among the others, of heads of this
// width alone.
constexpr const char* kFullAttention = "full_attention";
constexpr double kImageHeads = 72;

std::vector<std::array<double, 4>> rows_of(const Json& object, const char* key,
                                           const std::string& where) {
  std::vector<std::array<double, 4>> rows;
  MS_CHECK(object.contains(key) && object[key].is_array() && !object[key].empty(),
           "{}: expected a machine profile with rows of '{}', got none", where, key);
  for (const Json& row : object[key]) {
    MS_CHECK(row.is_array() && row.size() == 4 &&
                 std::all_of(row.begin(), row.end(),
                             [](const Json& x) { return x.is_number() && x.get<double>() > 0; }),
             "{}: '{}': expected rows of four numbers above 0, got {}", where, key, one_line(row));
    rows.push_back(
        {row[0].get<double>(), row[1].get<double>(), row[2].get<double>(), row[3].get<double>()});
  }
  return rows;
}

// The mean of the nearest points by the inverse of their squared distance.
template <class Point, class Distance, class Value>
double nearest_mean(const std::vector<Point>& points, const Distance& distance,
                    const Value& value) {
  constexpr double kSame = 1e-4;
  double weights = 0, sum = 0;
  double nearest = 1e300;
  for (const Point& point : points) nearest = std::min(nearest, distance(point));
  for (const Point& point : points) {
    const double d = distance(point);
    if (d > 2 * nearest + 2) continue;  // far ones would pull every answer to the mean of all
    const double weight = 1 / (d * d + kSame);
    weights += weight;
    sum += weight * std::log(value(point));
  }
  return std::exp(sum / weights);
}

double log_distance(double x, double y) {
  return std::abs(std::log2(x / y));
}

double product_rate(const DtypeRates& rates, double m, double n, double k) {
  return nearest_mean(
      rates.products,
      [&](const ProductRate& p) {
        return std::hypot(log_distance(p.m, m), log_distance(p.n, n), log_distance(p.k, k));
      },
      [](const ProductRate& p) { return p.per_s; });
}

}  // namespace

const DtypeRates& MachineProfile::rates(const std::string& dtype) const {
  const auto found = dtypes.find(dtype);
  if (found != dtypes.end()) return found->second;
  const auto wide = dtypes.find("float32");
  MS_CHECK(wide != dtypes.end(), "plan: profile '{}': expected rates of {} or float32, got neither",
           name, dtype);
  return wide->second;
}

namespace {

Checked checked_from_json(const Json& object, const std::string& where) {
  Checked checked;
  for (const auto& [share, low, high, points] : rows_of(object, "time", where))
    checked.time.push_back({{low, high, points}, share});
  std::ranges::sort(checked.time, {}, &Checked::OfTime::host_share);
  const Json none = Json::object(), memory = object.value("memory", none);
  checked.memory = {positive(memory, "low", where), positive(memory, "high", where),
                    positive(memory, "points", where)};
  return checked;
}

}  // namespace

Spread Checked::time_of(double host_share) const {
  for (const OfTime& row : time)
    if (host_share <= row.host_share) return row;
  return {};
}

// From examples/results: plan_drawn_5 to plan_drawn_7 and plan_drawn_9 with their machines'
// calibrations (scripts/bench/plan_check.lua --machine own --spread). Other devices of the family
// have other limits of power.
Checked checked_of_calibrated(const std::string& device) {
  if (device != "NVIDIA H200") return {};
  Checked checked;
  checked.time = {{{0.947, 1.086, 343}, 0.6}, {{0.808, 1.442, 73}, kAnyShare}};
  checked.memory = {0.990, 1.006, 392};
  return checked;
}

MachineProfile profile_from_json(const Json& object, const std::string& where) {
  MS_CHECK(object.is_object() && object.contains("dtypes") && object["dtypes"].is_object(),
           "{}: expected a machine profile, got {}", where,
           object.is_object() ? "an object without 'dtypes'" : "something else");
  MachineProfile profile;
  profile.name = string_or(object, "name", "");
  profile.device = string_or(object, "device", profile.name);
  profile.source = string_or(object, "source", "of unknown origin");
  profile.is_measured = object.value("measured", false);
  profile.is_gpu = string_or(object, "kind", "cpu") == "cuda";
  profile.link = string_or(object, "link", profile.link);
  comm::link_named(profile.link, where + ": 'link'");
  profile.fixed_segments = object.value("fixed_segments", false);
  for (const NamedNumber& number : kNumbers)
    profile.*number.field = positive(object, number.name, where) * number.unit;
  for (const NamedNumber& number : kNumbersOfCpus)
    if (object.contains(number.name))
      profile.*number.field = positive(object, number.name, where) * number.unit;
  for (const auto& [dtype, given] : object["dtypes"].items()) {
    DtypeRates rates;
    const bool has_causal = profile.is_gpu && dtype == "bfloat16";
    for (const auto& [m, n, k, tflops] : rows_of(given, "products", where))
      rates.products.push_back({m, n, k, tflops * kTera});
    for (const auto& [positions, dim, forward, backward] : rows_of(given, "attention", where))
      rates.attention.push_back(
          {positions, dim, forward * kTera, backward * kTera, has_causal && dim != kImageHeads});
    if (given.contains(kFullAttention))
      for (const auto& [positions, dim, forward, backward] : rows_of(given, kFullAttention, where))
        rates.attention.push_back({positions, dim, forward * kTera, backward * kTera, false});
    for (const auto& [name, field] : kKernelRates)
      rates.*field = positive(given, name, where) * kTera;
    profile.dtypes[dtype] = std::move(rates);
  }
  profile.in_step = profile.is_gpu ? InStep() : InStep::none();
  if (const auto given = object.find("in_step"); given != object.end())
    for (const auto& [name, field] : kInStep)
      if (given->contains(name)) profile.in_step.*field = positive(*given, name, where);
  profile.checked = object.contains("checked")
                        ? checked_from_json(object["checked"], where + ": 'checked'")
                    : profile.is_measured ? checked_of_calibrated(profile.device)
                                          : Checked();
  for (const Json& row : object.value("collectives", Json::array())) {
    MS_CHECK(row.is_object(), "{}: 'collectives': expected rows, got {}", where, one_line(row));
    profile.collectives.push_back({string_or(row, "operation", ""),
                                   static_cast<int64_t>(positive(row, "ranks", where)),
                                   positive(row, "bytes", where), positive(row, "seconds", where),
                                   std::max(0.0, number_or(row, "core_seconds", 0))});
  }
  return profile;
}

Json to_json(const MachineProfile& profile) {
  Json object{{"name", profile.name},
              {"device", profile.device},
              {"source", profile.source},
              {"measured", profile.is_measured},
              {"kind", profile.is_gpu ? "cuda" : "cpu"}};
  if (profile.link != MachineProfile().link) object["link"] = profile.link;
  if (profile.fixed_segments) object["fixed_segments"] = true;
  for (const NamedNumber& number : kNumbers)
    object[number.name] = profile.*number.field / number.unit;
  for (const NamedNumber& number : kNumbersOfCpus)
    if (profile.*number.field > 0) object[number.name] = profile.*number.field / number.unit;
  for (const auto& [dtype, rates] : profile.dtypes) {
    Json& given = object["dtypes"][dtype];
    given["products"] = Json::array();
    for (const ProductRate& rate : rates.products)
      given["products"].push_back({rate.m, rate.n, rate.k, rate.per_s / kTera});
    given["attention"] = Json::array();
    const bool has_causal = std::ranges::any_of(rates.attention, &AttentionRate::causal);
    for (const AttentionRate& rate : rates.attention)
      given[has_causal && !rate.causal ? kFullAttention : "attention"].push_back(
          {rate.positions, rate.head_dim, rate.forward_per_s / kTera, rate.backward_per_s / kTera});
    for (const auto& [name, field] : kKernelRates) given[name] = rates.*field / kTera;
  }
  // What nobody has measured stays the program's own, also when that learns more.
  const InStep usual = profile.is_gpu ? InStep() : InStep::none();
  for (const auto& [name, field] : kInStep)
    if (profile.in_step.*field != usual.*field) object["in_step"][name] = profile.in_step.*field;
  for (const CollectiveRate& rate : profile.collectives)
    object["collectives"].push_back(to_json(rate));
  return object;
}

Json to_json(const CollectiveRate& rate) {
  return {{"operation", rate.operation},
          {"ranks", rate.ranks},
          {"bytes", rate.bytes},
          {"seconds", rate.seconds},
          {"core_seconds", rate.core_seconds}};
}

std::filesystem::path calibration_file(const std::string& device, int64_t ranks) {
  const std::filesystem::path beside = tuning_file();
  if (beside.empty()) return {};
  std::string name = "machine_";
  for (const char c : device) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  if (ranks > 1) name += fmt::format("_{}_ranks", ranks);
  return beside.parent_path() / (name + ".json");
}

// On a line between the logarithms of two sizes; beyond the largest by its rate.
CollectiveSeconds collective_seconds(const MachineProfile& machine, const char* operation,
                                     int64_t ranks, double bytes) {
  const CollectiveRate *below = nullptr, *above = nullptr;
  for (const CollectiveRate& rate : machine.collectives) {
    if (rate.ranks != ranks || rate.operation != operation) continue;
    if (rate.bytes <= bytes && (below == nullptr || rate.bytes > below->bytes)) below = &rate;
    if (rate.bytes >= bytes && (above == nullptr || rate.bytes < above->bytes)) above = &rate;
  }
  if (below == nullptr && above == nullptr) return {-1, 0};
  if (below == nullptr) return {above->seconds, above->core_seconds};
  if (above == nullptr) {
    const double times = bytes / below->bytes;
    return {below->seconds * times, below->core_seconds * times};
  }
  if (above->bytes == below->bytes) return {above->seconds, above->core_seconds};
  const double part = std::log(bytes / below->bytes) / std::log(above->bytes / below->bytes);
  const auto between = [&](double less, double more) {
    return less > 0 && more > 0 ? std::exp((1 - part) * std::log(less) + part * std::log(more))
                                : (1 - part) * less + part * more;
  };
  return {between(below->seconds, above->seconds),
          between(below->core_seconds, above->core_seconds)};
}

double without_core(const MachineProfile& machine, int64_t ranks) {
  if (machine.cores == 0) return 0;
  const double free = machine.cores / static_cast<double>(ranks) - machine.threads;
  return std::clamp(1 - free, 0.0, 1.0);
}

double fresh_seconds(const MachineProfile& machine, double bytes) {
  return machine.fresh_per_s > 0 ? bytes / machine.fresh_per_s : 0;
}

double product_seconds(const DtypeRates& rates, double m, double n, double k) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  return 2 * m * n * k / product_rate(rates, m, n, k);
}

double product_share(const DtypeRates& rates, double m, double n, double k) {
  double fastest = 0;
  for (const ProductRate& rate : rates.products) fastest = std::max(fastest, rate.per_s);
  return product_rate(rates, m, n, k) / fastest;
}

AttentionRate attention_rate(const DtypeRates& rates, double positions, double head_dim,
                             bool causal) {
  // Rows of the other kind are far away: a causal kernel's tiles on the diagonal are half empty.
  constexpr double kOtherKind = 4;
  const auto distance = [&](const AttentionRate& rate) {
    return log_distance(rate.positions, positions) + 2 * log_distance(rate.head_dim, head_dim) +
           (rate.causal != causal ? kOtherKind : 0);
  };
  return {positions, head_dim,
          nearest_mean(rates.attention, distance,
                       [](const AttentionRate& rate) { return rate.forward_per_s; }),
          nearest_mean(rates.attention, distance,
                       [](const AttentionRate& rate) { return rate.backward_per_s; })};
}

}  // namespace moonshard::plan
