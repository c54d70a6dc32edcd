#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>

#include <unistd.h>

#include "bindings/host/ranks_command.h"
#include "bindings/host/verbs.h"
#include "runtime/analysis/rows.h"
#include "runtime/audit/audit.h"
#include "runtime/base/check.h"
#include "runtime/base/options.h"
#include "runtime/verify/diagnosis.h"
#include "runtime/verify/faults.h"
#include "runtime/verify/verify.h"

namespace moonshard::host {
namespace {

constexpr int kExitPromiseBroken = 4;

void print_norms(const verify::NormsShown& shown) {
  fmt::print("{}\n", shown.title);
  for (size_t rank = 0; rank < shown.by_rank.size(); ++rank) {
    fmt::print("  rank {} alone", rank);
    for (const double norm : shown.by_rank[rank]) fmt::print(" {:.9g}", norm);
    fmt::print("\n");
  }
  fmt::print("  {} ", shown.by_rank.empty() ? "norm before " : "gathered    ");
  for (const double norm : shown.before) fmt::print(" {:.9g}", norm);
  fmt::print("\n  reference   ");
  for (const double norm : shown.expected) fmt::print(" {:.9g}", norm);
  if (!shown.after.empty()) {
    fmt::print("\n  norm after  ");
    for (const double norm : shown.after) fmt::print(" {:.9g}", norm);
  }
  fmt::print("\n");
}

// Engine by dtype, and apart what has limits of its own: how many cells, and the error and limit of
// the one that came nearest to it.
void print_summary(const std::vector<verify::Cell>& cells) {
  struct Line {
    int64_t cells = 0, failed = 0;
    double worst = 0, allowed = 0;
  };
  std::vector<std::string> order;
  std::map<std::string, std::map<std::string, Line>> lines;
  for (const verify::Cell& cell : cells) {
    if (!lines.contains(cell.engine)) order.push_back(cell.engine);
    const bool is_neighbour = cell.options.starts_with("neighbour");
    const bool is_apart = is_neighbour || cell.options == "own_pass";
    Line& line = lines[cell.engine][!is_apart      ? cell.dtype
                                    : is_neighbour ? "neighbour"
                                                   : "own_pass"];
    ++line.cells;
    line.failed += cell.ok ? 0 : 1;
    if (line.allowed > 0 && cell.max_rel_err * line.allowed <= line.worst * cell.tolerance)
      continue;
    line.worst = cell.max_rel_err;
    line.allowed = cell.tolerance;
  }
  fmt::print("{:<20} {:<9} {:>6} {:>7} {:>14} {:>10}\n", "engine", "format", "cells", "failed",
             "largest error", "allowed");
  for (const std::string& engine : order) {
    for (const auto& [dtype, line] : lines[engine]) {
      fmt::print("{:<20} {:<9} {:>6} {:>7} {:>14.2e} {:>10.0e}\n", engine, dtype, line.cells,
                 line.failed, line.worst, line.allowed);
    }
  }
}

void print_failures(const std::vector<verify::Cell>& cells) {
  constexpr int64_t kShown = 20;
  int64_t failed = 0;
  for (const verify::Cell& cell : cells) {
    if (cell.ok || ++failed > kShown) continue;
    fmt::print("FAILED {} {} {}, layer {}, {}, {}: {} off by {:.2e}, allowed {:.0e}{}\n",
               cell.engine, cell.model, cell.task, cell.layer, cell.options, cell.dtype, cell.worst,
               cell.max_rel_err, cell.tolerance,
               cell.error.empty() ? "" : "; error: " + cell.error);
  }
  if (failed > kShown) fmt::print("… and {} more; --json lists all\n", failed - kShown);
}

// On a terminal the cell that is done; in a log a line per model and task, so that a run that is
// cut off has said what held.
class VerifyProgress {
 public:
  void add(const verify::Cell& cell) {
    ++done_;
    if (is_terminal_) {
      fmt::print(stderr, "\r{:<79}",
                 fmt::format("{} cells: {} {}, {}, {}", done_, cell.model, cell.task, cell.options,
                             cell.dtype));
      return;
    }
    const std::string subject = cell.model + " " + cell.task;
    if (subject != subject_) end_subject();
    subject_ = subject;
    ++cells_;
    held_ += cell.ok ? 1 : 0;
  }
  void end() {
    if (is_terminal_) fmt::print(stderr, "\r{:<79}\r", "");
    end_subject();
  }
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  void end_subject() {
    if (cells_ > 0)
      fmt::print(stderr, "verify: {}: {} of {} cells hold, after {:.0f} s\n", subject_, held_,
                 cells_, seconds());
    cells_ = held_ = 0;
  }

  bool is_terminal_ = ::isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string subject_;
  int64_t done_ = 0, cells_ = 0, held_ = 0;
};

struct VerifyFlags : verify::VerifyOptions, RanksFlags {
  bool json = false, verbose = false, use_fsdp = false, enable_profiling = false;
  std::string fault;
};

const OptionSchema& verify_flags() {
  using F = VerifyFlags;
  static const OptionSchema schema("verify", [](OptionSchema& s) {
    s.text<F>("model", &F::model, "one preset instead of every tiny one").aliases = {"model_name"};
    s.text<F>("engine", &F::engine, "one engine instead of all").aliases = {"mode"};
    s.text<F>("options", &F::options, "one way to train, e.g. accumulation");
    s.text<F>("dtype", &F::dtype, "float64, float32 or bfloat16");
    s.text<F>("device", &F::device, "auto, cpu or cuda");
    s.integer<F>("seed", &F::seed, 0, 9007199254740991.0, "of weights and data");
    s.boolean<F>("json", &F::json, "print all cells as JSON");
    s.boolean<F>("verbose", &F::verbose, "print norms before and after clipping");
    s.boolean<F>("use_fsdp", &F::use_fsdp, "the same as --parallel fsdp");
    s.boolean<F>("enable_profiling", &F::enable_profiling,
                 "print phases, norm times by layer and squared norms of every step "
                 "(MOONSHARD_PROFILE=layers)");
    s.text<F>("fault", &F::fault,
              "switch a deliberate mistake on, to see it found: no_bias_term, no_cross_term, "
              "no_padding_rule, micro_step_norm, wrong_denominator, short_norm");
    add_ranks_flags<F>(s);
  });
  return schema;
}

const OptionSchema& wrapper_flags() {
  static const OptionSchema schema("verify",
                                   sharding::add_sharding_options<sharding::ShardingOptions>);
  return schema;
}

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
      return analysis::quantile(values, 0.5);
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

std::string verify_help(const Verb& verb) {
  const VerifyFlags defaults;
  return usage_text(
             verb,
             "[--model NAME] [--engine NAME] [--options NAME] [--dtype NAME] [--json] [--verbose]",
             "Compares every engine with batch-of-one gradients by plain autograd: norms, clip "
             "factors, clipped sums\nand the weights after a step. Exit code 4 when a cell fails. "
             "With a wrapper and several ranks (--nproc N)\neach rank has samples of its own, and "
             "three steps are compared with those of one process; three lines then say whether "
             "norms "
             "differ before\nthey are put together, agree afterwards, and are right. Options "
             "[type: "
             "default]:") +
         describe_flags(verify_flags(), &defaults) +
         describe_flags(wrapper_flags(), &defaults.sharding);
}

int verify_command(const Verb& verb, const Words& words) {
  VerifyFlags flags;
  read_flags({{verify_flags(), &flags}, {wrapper_flags(), &flags.sharding}}, words);
  if (flags.use_fsdp) flags.sharding.parallel = "fsdp";
  // Before the first step, which decides what is logged.
  if (flags.enable_profiling) ::setenv("MOONSHARD_PROFILE", "layers", 1);
  if (const auto ended = start_ranks_if_asked(flags, verb, words)) return *ended;
  verify::VerifyOptions options = flags;
  options.hooks = verify::fault_by_name(verify::kVerifyFaults, "verify", flags.fault);
  const bool speaks = is_first_rank();
  VerifyProgress progress;
  verify::Observer observer;
  if (!flags.json && speaks)
    observer.cell = [&progress](const verify::Cell& cell) { progress.add(cell); };
  verify::NormDiagnosis diagnosis;
  const bool prints = flags.verbose && !flags.json && speaks;
  if (flags.verbose || flags.sharding.parallel != "none") {
    // All ranks take part in making the lists, one prints them.
    observer.norms = [&diagnosis, prints](const verify::NormsShown& shown) {
      diagnosis.add(shown);
      if (prints) print_norms(shown);
    };
  }
  const std::vector<verify::Cell> cells = verify::verify(options, observer);
  if (observer.cell) progress.end();
  Json report = verify::to_json(cells, options);
  const auto diagnoses =
      diagnosis.has_ranks() ? diagnosis.conclude(cells) : std::vector<verify::Diagnosis>();
  if (diagnosis.has_ranks()) report["diagnoses"] = verify::to_json(diagnoses);
  const int64_t failed = report["failed"].get<int64_t>();
  if (!speaks) return failed == 0 ? 0 : kExitPromiseBroken;
  if (flags.json) {
    fmt::print("{}", to_text(report));
  } else {
    print_summary(cells);
    print_failures(cells);
    for (const verify::Diagnosis& one : diagnoses) fmt::print("{}: {}\n", one.question, one.answer);
    fmt::print("{} of {} cells hold ({:.0f} s)\n", cells.size() - static_cast<size_t>(failed),
               cells.size(), progress.seconds());
  }
  return failed == 0 ? 0 : kExitPromiseBroken;
}

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
