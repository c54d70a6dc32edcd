#include "runtime/plan/goodput.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/check.h"

namespace moonshard::plan {
namespace {

// Beyond so many failures without an end a run is not going to end.
constexpr double kMostFailures = 1'000'000;
// Of all histories: so many take a few hundredths of a second.
constexpr double kMostDraws = 2'000'000;
constexpr int64_t kFewestHistories = 20;

class FailureHistory {
 public:
  FailureHistory(const FailureModel& model, int64_t save_every, uint64_t number)
      : model_(model),
        every_(save_every),
        random_(model.seed * 0x9e3779b97f4a7c15ULL + number),
        to_failure_(static_cast<double>(model.ranks) / model.mtbf_s) {}

  Goodput run() {
    const double cycle = this->cycle();
    int64_t done = 0;  // steps that a save has
    while (true) {
      const int64_t left = model_.steps - done;
      const int64_t cycles = (left - 1) / every_;  // none is saved behind the last step
      const double rest = static_cast<double>(left - cycles * every_) * model_.step_s;
      const double needed = static_cast<double>(cycles) * cycle + rest;
      const double failure = to_failure_(random_);
      if (failure >= needed) {
        goodput_.wall_s += needed;
        goodput_.saving_s += static_cast<double>(cycles) * model_.save_s;
        return goodput_;
      }
      // One that is being written does not count.
      const double written = std::max(0.0, failure - model_.write_s);
      const auto saved = std::min(cycles, static_cast<int64_t>(std::floor(written / cycle)));
      done += saved * every_;
      goodput_.wall_s += failure;
      goodput_.saving_s += static_cast<double>(saved) * model_.save_s;
      const double beyond = failure - static_cast<double>(saved) * cycle;
      goodput_.lost_s += beyond;
      goodput_.lost_steps += steps_within(beyond);
      restart();
    }
  }

 private:
  // Steps in a time that begins behind a save.
  double steps_within(double seconds) const {
    const double whole = std::floor(seconds / cycle());
    const double rest = std::floor((seconds - whole * cycle()) / model_.step_s);
    return whole * static_cast<double>(every_) + std::min(static_cast<double>(every_), rest);
  }
  double cycle() const { return static_cast<double>(every_) * model_.step_s + model_.save_s; }

  void restart() {
    while (true) {
      ++goodput_.failures;
      const double next = to_failure_(random_);
      const double took = std::min(next, model_.restart_s);
      goodput_.wall_s += took;
      goodput_.restarting_s += took;
      if (next >= model_.restart_s) return;
    }
  }

  const FailureModel& model_;
  int64_t every_;
  std::mt19937_64 random_;
  std::exponential_distribution<double> to_failure_;
  Goodput goodput_;
};

void check_failure_model(const FailureModel& model) {
  const auto check = [](const char* name, double value, bool is_fine, const char* wanted) {
    MS_CHECK(is_fine && std::isfinite(value), "plan: option '{}': expected {}, got {:g}", name,
             wanted, value);
  };
  check("steps", static_cast<double>(model.steps), model.steps >= 1, "a run of 1 step or more");
  check("step_s", model.step_s, model.step_s > 0, "a number above 0");
  check("mtbf_h", model.mtbf_s / 3600, model.mtbf_s > 0, "a number above 0");
  check("save_s", model.save_s, model.save_s >= 0, "0 or more");
  check("write_s", model.write_s, model.write_s >= 0, "0 or more");
  check("restart_s", model.restart_s, model.restart_s >= 0, "0 or more");
  check("save_every", static_cast<double>(model.save_every), model.save_every >= 0,
        "0 (the best) or more steps");
}

// Means of a run in closed form. Histories would need thousands of runs to see failures that one
// run in a hundred has.
//
// Note: a run as a chain. Failures have no memory, so a run is known by what is saved and how long
// it goes on since. Let x(t) = exp(rate t) - 1: from nothing to t seconds without a failure takes
// x(t) / rate seconds of running, on average, however often it begins anew. A save counts when it
// is written: in an attempt that goes on, `written` behind its end. From one of these moments to
// the next takes exp(rate written) x(cycle) / rate, and from the last of them to the end
// exp(rate written) x(tail - written) / rate. Restarts make all of it exp(rate restart) longer.
class MeanRun {
 public:
  MeanRun(const FailureModel& model, int64_t save_every)
      : model_(model),
        every_(save_every),
        rate_(static_cast<double>(model.ranks) / model.mtbf_s),
        cycle_(static_cast<double>(save_every) * model.step_s + model.save_s) {
    saves_ = static_cast<double>((model.steps - 1) / save_every);  // none behind the last step
    tail_ = (static_cast<double>(model.steps) - saves_ * static_cast<double>(save_every)) *
            model.step_s;
    // The last ones are of no use where the run ends before they are written.
    const double useless =
        std::min(saves_, std::ceil(std::max(0.0, model.write_s - tail_) / cycle_));
    counting_ = saves_ - useless;
    tail_ += useless * cycle_;
  }

  double wall_s() const { return running_s() * std::exp(rate_ * model_.restart_s); }

  Goodput goodput() const {
    Goodput mean;
    mean.save_every = every_;
    mean.useful_s = static_cast<double>(model_.steps) * model_.step_s;
    mean.wall_s = wall_s();
    mean.saving_s = saves_ * model_.save_s;  // that stay
    mean.lost_s = std::max(0.0, running_s() - mean.useful_s - mean.saving_s);
    mean.restarting_s = running_s() * std::expm1(rate_ * model_.restart_s);
    mean.failures = rate_ * mean.wall_s;
    mean.lost_steps = lost_steps();
    return mean;
  }

 private:
  double x(double seconds) const { return std::expm1(rate_ * seconds); }

  double running_s() const {
    const double written = model_.write_s;
    if (counting_ < 1) return x(tail_) / rate_;
    return (x(written) + std::exp(rate_ * written) * (counting_ * x(cycle_) + x(tail_ - written))) /
           rate_;
  }

  // Of the same chain, with steps in the place of seconds: those of failures before a moment that
  // an attempt has reached, and of failures behind it.
  double lost_steps() const {
    const double written = model_.write_s, first = written + cycle_;
    const auto reached = [&](double seconds) { return std::exp(-rate_ * seconds); };
    const double none = lost_before(tail_) / reached(tail_);
    if (counting_ < 1) return std::max(0.0, none);
    const double begin = lost_before(first) / reached(first);
    const double next = (lost_before(first) - lost_before(written)) / reached(written) -
                        std::expm1(-rate_ * cycle_) * begin;
    const double last = (lost_before(tail_) - lost_before(written)) / reached(written) -
                        std::expm1(-rate_ * (tail_ - written)) * none;
    return std::max(0.0, begin + (counting_ - 1) * next + last);
  }

  // Mean of the whole steps that an attempt loses by a failure before `seconds`: every step that
  // was done by then is lost by a failure behind it.
  double lost_before(double seconds) const {
    const double cycles = std::floor(seconds / cycle_);
    const double rest = std::floor((seconds - cycles * cycle_) / model_.step_s);
    const double steps = std::min(static_cast<double>(every_), rest);
    const double whole = cycles == 0 ? 0
                                     : chances_of(static_cast<double>(every_)) *
                                           std::expm1(-rate_ * cycles * cycle_) /
                                           std::expm1(-rate_ * cycle_);
    return whole + std::exp(-rate_ * cycles * cycle_) * chances_of(steps) -
           (cycles * static_cast<double>(every_) + steps) * std::exp(-rate_ * seconds);
  }

  // That each of so many steps in a row is done without a failure before its end, added up.
  double chances_of(double steps) const {
    const double step = rate_ * model_.step_s;
    return std::exp(-step) * std::expm1(-step * steps) / std::expm1(-step);
  }

  const FailureModel& model_;
  int64_t every_;
  double rate_;                      // failures of the job in a second
  double cycle_;                     // seconds of steps and their save
  double saves_ = 0, counting_ = 0;  // in the run; that a restart may go on from
  double tail_ = 0;                  // seconds behind the last of these
};

// The logarithm of the time of a very long run, but for a constant: smooth in the interval, and
// not infinite where nothing ends.
double log_of_endless_run(const FailureModel& model, int64_t save_every) {
  const double rate = static_cast<double>(model.ranks) / model.mtbf_s;
  const double steps = static_cast<double>(save_every);
  const double exponent = rate * (steps * model.step_s + model.save_s);
  return (exponent > 30 ? exponent : std::log(std::expm1(exponent))) - std::log(steps);
}

// Which of the options makes the run endless: the longest of what has to go without a failure.
void refuse_endless(const FailureModel& model, const Goodput& mean) {
  if (mean.failures < kMostFailures) return;
  struct Stretch {
    std::string what;
    double seconds;
  };
  const double between = model.mtbf_s / static_cast<double>(model.ranks);
  const auto every = static_cast<double>(mean.save_every);
  Stretch longest{fmt::format("option 'restart_s': a restart of {:.6g} s", model.restart_s),
                  model.restart_s};
  const auto compare = [&](double seconds, const std::string& what) {
    if (seconds > longest.seconds) longest = {what, seconds};
  };
  compare(model.save_s, fmt::format("option 'save_s': a save of {:.6g} s", model.save_s));
  compare(model.write_s,
          fmt::format("option 'write_s': a save that is written in {:.6g} s", model.write_s));
  // The best interval is as long as the others make it.
  if (model.save_every > 0)
    compare(every * model.step_s,
            fmt::format("option 'save_every': {} steps of {:.3g} s without a save", mean.save_every,
                        model.step_s));
  if (longest.seconds < between)
    longest.what = fmt::format("option 'steps': a run of {:.6g} h", mean.useful_s / 3600);
  throw UsageError(
      fmt::format("plan: expected a run that ends, got more than {:.0f} failures; {} is too long "
                  "for a failure every {:.6g} s",
                  kMostFailures, longest.what, between));
}

}  // namespace

double expected_wall_s(const FailureModel& model, int64_t save_every) {
  return MeanRun(model, save_every).wall_s();
}

int64_t best_save_every(const FailureModel& model) {
  // A save may begin when the last has been written.
  const int64_t least = std::clamp<int64_t>(
      static_cast<int64_t>(std::ceil(std::min(model.write_s / model.step_s, 1e18))), 1,
      model.steps);
  // One valley: the third in which it lies is known by two points.
  int64_t low = least, high = model.steps;
  while (high - low > 2) {
    const int64_t third = (high - low) / 3;
    const int64_t left = low + third, right = high - third;
    if (log_of_endless_run(model, left) <= log_of_endless_run(model, right)) {
      high = right;
    } else {
      low = left;
    }
  }
  int64_t best = low;
  for (int64_t i = low + 1; i <= high; ++i)
    if (log_of_endless_run(model, i) < log_of_endless_run(model, best)) best = i;
  // A run of this length has a whole number of saves: so many, one more or less, or none at all.
  const int64_t saves = (model.steps - 1) / best;
  for (const int64_t count : {saves - 1, saves, saves + 1, int64_t{0}}) {
    if (count < 0 || count >= model.steps) continue;
    const int64_t even = (model.steps - 1) / (count + 1) + 1;
    if (even >= least && expected_wall_s(model, even) < expected_wall_s(model, best)) best = even;
  }
  return best;
}

Goodput drawn_run(const FailureModel& model, int64_t save_every, uint64_t number) {
  return FailureHistory(model, save_every, number).run();
}

Goodput simulate_failures(const FailureModel& model) {
  check_failure_model(model);
  const int64_t every =
      std::min(model.steps, model.save_every > 0 ? model.save_every : best_save_every(model));
  Goodput mean = MeanRun(model, every).goodput();
  refuse_endless(model, mean);
  const auto affordable = static_cast<int64_t>(kMostDraws / (1 + mean.failures));
  const int64_t histories = std::min(model.histories, std::max(affordable, kFewestHistories));
  std::vector<double> walls;
  for (int64_t i = 0; i < histories; ++i)
    walls.push_back(drawn_run(model, every, static_cast<uint64_t>(i)).wall_s);
  std::sort(walls.begin(), walls.end());
  mean.wall_low_s = walls[walls.size() / 10];
  mean.wall_high_s = walls[walls.size() - 1 - walls.size() / 10];
  return mean;
}

FailureModel failure_model_from_json(const Json& table) {
  FailureModel model;
  const auto whole = [&](const char* name, int64_t otherwise) {
    return static_cast<int64_t>(number_or(table, name, static_cast<double>(otherwise)));
  };
  model.step_s = number_or(table, "step_s", 0);
  model.mtbf_s = number_or(table, "mtbf_s", 0);
  model.save_s = number_or(table, "save_s", 0);
  model.write_s = number_or(table, "write_s", 0);
  model.restart_s = number_or(table, "restart_s", 0);
  model.steps = whole("steps", 0);
  model.ranks = std::max<int64_t>(1, whole("ranks", 1));
  model.save_every = whole("save_every", 0);
  model.seed = static_cast<uint64_t>(whole("seed", 0));
  model.histories = std::clamp<int64_t>(whole("histories", model.histories), 1, 100'000);
  return model;
}

Json to_json(const Goodput& goodput) {
  return {{"save_every", goodput.save_every},
          {"wall_s", goodput.wall_s},
          {"wall_low_s", goodput.wall_low_s},
          {"wall_high_s", goodput.wall_high_s},
          {"useful_s", goodput.useful_s},
          {"saving_s", goodput.saving_s},
          {"lost_s", goodput.lost_s},
          {"restarting_s", goodput.restarting_s},
          {"failures", goodput.failures},
          {"lost_steps", goodput.lost_steps},
          {"goodput_percent", 100 * goodput.share()}};
}

}  // namespace moonshard::plan
