#include "bindings/host/audit_command.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>

#include "bindings/host/ranks_command.h"
#include "runtime/audit/audit.h"
#include "runtime/base/check.h"
#include "runtime/base/options.h"
#include "runtime/verify/faults.h"

namespace moonshard::host {
namespace {

constexpr int kExitPromiseBroken = 4;

// One flat struct, as flags are read.
struct AuditFlags : audit::AuditSettings, sharding::ShardingOptions, RanksFlags {
  bool json = false;
  std::string fault;
};

const OptionSchema& audit_flags() {
  static const OptionSchema schema = [] {
    OptionSchema s = audit::audit_schema<AuditFlags>("audit");
    s.boolean<AuditFlags>("json", &AuditFlags::json, "print all audits as JSON");
    s.text<AuditFlags>("fault", &AuditFlags::fault,
                       "switch a deliberate mistake on, to see it found; a wrong name lists them");
    add_ranks_flags<AuditFlags>(s);
    sharding::add_sharding_options<AuditFlags>(s);
    return s;
  }();
  return schema;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string verdict(int64_t exceeded, size_t count, const std::string& experiment) {
  if (exceeded == 0) return "below the claim";
  const std::string what = "ABOVE THE CLAIM (" + experiment + ")";
  return count == 1 ? what : fmt::format("{} in {} of {} seeds", what, exceeded, count);
}

// A row per engine; of several seeds the medians.
void print_table(const std::vector<audit::EngineAudit>& audits) {
  std::vector<std::string> order;
  std::map<std::string, std::vector<const audit::EngineAudit*>> by_engine;
  for (const audit::EngineAudit& one : audits) {
    if (!by_engine.contains(one.engine)) order.push_back(one.engine);
    by_engine[one.engine].push_back(&one);
  }
  fmt::print("{:<18} {:>8} {:>9} {:>12} {:>16}  {}\n", "engine", "claimed", "one-run",
             "Gaussian DP", "Clopper-Pearson", "lower bounds are");
  for (const std::string& engine : order) {
    const auto& list = by_engine[engine];
    const auto middle = [&](double audit::Bounds::*bound) {
      std::vector<double> values;
      for (const audit::EngineAudit* one : list) values.push_back(one->bounds.*bound);
      return median(values);
    };
    int64_t exceeded = 0;
    std::string experiment;
    for (const audit::EngineAudit* one : list) {
      exceeded += one->holds() ? 0 : 1;
      if (experiment.empty()) experiment = one->exceeding;
    }
    fmt::print("{:<18} {:>8.3f} {:>9.3f} {:>12.3f} {:>16.3f}  {}\n", engine, list[0]->claimed,
               middle(&audit::Bounds::one_run), middle(&audit::Bounds::gaussian_dp),
               middle(&audit::Bounds::clopper_pearson), verdict(exceeded, list.size(), experiment));
  }
}

}  // namespace

std::string audit_help(const Verb& verb) {
  const AuditFlags defaults;
  return usage_text(
             verb,
             "[--engine NAME|all] [--seeds N] [--canaries N] [--sigma S] [--delta D] [--nproc N "
             "--parallel fsdp|ddp] [--json]",
             "Puts canaries into real training steps by coin flips, guesses the coins from the "
             "weights, and prints\nlower bounds on epsilon beside the claim. Exit code 4 when a "
             "bound is above it. Options [type: default]:") +
         describe_flags(audit_flags(), &defaults);
}

int audit_command(const Verb& verb, const Words& words) {
  AuditFlags flags;
  read_flags({{audit_flags(), &flags}}, words);
  if (const auto ended = start_ranks_if_asked(flags, verb, words)) return *ended;
  const audit::AuditOptions options{
      flags, flags, verify::fault_by_name(verify::kAuditFaults, "audit", flags.fault)};
  const bool speaks = is_first_rank();
  const bool progress = !flags.json && speaks && ::isatty(STDERR_FILENO) != 0;
  const auto start = std::chrono::steady_clock::now();
  int64_t done = 0;
  const auto audits = audit::audit(options, [&](const audit::EngineAudit& one) {
    ++done;
    if (progress) fmt::print(stderr, "\r{:<79}", fmt::format("{} audits: {}", done, one.engine));
  });
  if (progress) fmt::print(stderr, "\r{:<79}\r", "");
  const Json report = audit::to_json(audits, options);
  const int code = report["exceeded"].get<int64_t>() == 0 ? 0 : kExitPromiseBroken;
  if (!speaks) return code;
  if (flags.json) {
    fmt::print("{}", to_text(report));
    return code;
  }
  print_table(audits);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print(
      "sigma {:g}, delta {:g}, {} canaries, {} {}; {} of {} audits above the claim, by chance in "
      "at most {:g} % of correct ones ({:.0f} s)\n",
      options.sigma, options.delta, options.canaries, options.seeds,
      options.seeds == 1 ? "seed" : "seeds", report["exceeded"].get<int64_t>(), audits.size(),
      100 * options.significance, seconds);
  return code;
}

}  // namespace moonshard::host
