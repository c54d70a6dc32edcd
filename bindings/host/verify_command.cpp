#include "bindings/host/verify_command.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>

#include "bindings/host/ranks_command.h"
#include "runtime/base/check.h"
#include "runtime/base/options.h"
#include "runtime/verify/faults.h"
#include "runtime/verify/verify.h"

namespace moonshard::host {
namespace {

constexpr int kExitVerificationFailed = 4;

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

// Engine by dtype: how many cells, and the largest error among them.
void print_summary(const std::vector<verify::Cell>& cells) {
  struct Line {
    int64_t cells = 0, failed = 0;
    double worst = 0;
  };
  std::vector<std::string> order;
  std::map<std::string, std::map<std::string, Line>> lines;
  for (const verify::Cell& cell : cells) {
    if (!lines.contains(cell.engine)) order.push_back(cell.engine);
    Line& line = lines[cell.engine][cell.dtype];
    ++line.cells;
    line.failed += cell.ok ? 0 : 1;
    line.worst = std::max(line.worst, cell.max_rel_err);
  }
  fmt::print("{:<20} {:<9} {:>6} {:>7} {:>14} {:>10}\n", "engine", "format", "cells", "failed",
             "largest error", "allowed");
  for (const std::string& engine : order) {
    for (const auto& [dtype, line] : lines[engine]) {
      double allowed = 0;
      for (const verify::Cell& cell : cells)
        if (cell.dtype == dtype) allowed = cell.tolerance;
      fmt::print("{:<20} {:<9} {:>6} {:>7} {:>14.2e} {:>10.0e}\n", engine, dtype, line.cells,
                 line.failed, line.worst, allowed);
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

struct VerifyFlags : verify::VerifyOptions, RanksFlags {
  bool json = false, verbose = false;
  std::string fault;
};

const OptionSchema& verify_flags() {
  using F = VerifyFlags;
  static const OptionSchema schema = [] {
    OptionSchema s("verify");
    s.text<F>("model", &F::model, "one preset instead of every tiny one").aliases = {"model_name"};
    s.text<F>("engine", &F::engine, "one engine instead of all").aliases = {"mode"};
    s.text<F>("options", &F::options, "one way to train, e.g. accumulation");
    s.text<F>("dtype", &F::dtype, "float64, float32 or bfloat16");
    s.text<F>("device", &F::device, "auto, cpu or cuda");
    s.integer<F>("seed", &F::seed, 0, 9007199254740991.0, "of weights and data");
    s.boolean<F>("json", &F::json, "print all cells as JSON");
    s.boolean<F>("verbose", &F::verbose, "print norms before and after clipping");
    s.text<F>("fault", &F::fault,
              "switch a deliberate mistake on, to see it found: no_bias_term, no_cross_term, "
              "no_padding_rule, micro_step_norm, wrong_denominator");
    add_ranks_flags<F>(s);
    return s;
  }();
  return schema;
}

const OptionSchema& wrapper_flags() {
  static const OptionSchema schema = [] {
    OptionSchema s("verify");
    sharding::add_sharding_options<sharding::ShardingOptions>(s);
    return s;
  }();
  return schema;
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
             "three steps are compared with those of one process.\nOptions [type: default]:") +
         describe_flags(verify_flags(), &defaults) +
         describe_flags(wrapper_flags(), &defaults.sharding);
}

int verify_command(const Verb& verb, const Words& words) {
  VerifyFlags flags;
  read_flags({{verify_flags(), &flags}, {wrapper_flags(), &flags.sharding}}, words);
  if (const auto ended = start_ranks_if_asked(flags, verb, words)) return *ended;
  verify::VerifyOptions options = flags;
  options.hooks = verify::fault_by_name(verify::kVerifyFaults, "verify", flags.fault);
  const bool progress = !flags.json && ::isatty(STDERR_FILENO) != 0;
  const auto start = std::chrono::steady_clock::now();
  int64_t done = 0;
  verify::Observer observer;
  observer.cell = [&](const verify::Cell& cell) {
    ++done;
    if (progress) {
      fmt::print(stderr, "\r{:<79}",
                 fmt::format("{} cells: {} {}, {}, {}", done, cell.model, cell.task, cell.options,
                             cell.dtype));
    }
  };
  const bool speaks = is_first_rank();
  if (flags.verbose && !flags.json) {
    // All ranks take part in making the lists, one prints them.
    observer.norms = [speaks](const verify::NormsShown& shown) {
      if (speaks) print_norms(shown);
    };
  }
  const std::vector<verify::Cell> cells = verify::verify(options, observer);
  if (progress) fmt::print(stderr, "\r{:<79}\r", "");
  const Json report = verify::to_json(cells, options);
  const int64_t failed = report["failed"].get<int64_t>();
  if (!speaks) return failed == 0 ? 0 : kExitVerificationFailed;
  if (flags.json) {
    fmt::print("{}", to_text(report));
  } else {
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    print_summary(cells);
    print_failures(cells);
    fmt::print("{} of {} cells hold ({:.0f} s)\n", cells.size() - static_cast<size_t>(failed),
               cells.size(), seconds);
  }
  return failed == 0 ? 0 : kExitVerificationFailed;
}

}  // namespace moonshard::host
