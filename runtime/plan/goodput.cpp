#include "runtime/plan/goodput.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "runtime/base/check.h"

namespace moonshard::plan {
namespace {

// Beyond so many failures without an end a run is not going to end.
constexpr int64_t kMostFailures = 1'000'000;

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
      MS_CHECK(++goodput_.failures < kMostFailures,
               "plan: expected a run that ends, got {} failures; a restart of "
               "{:.0f} s is too long "
               "for a failure every {:.0f} s",
               kMostFailures, model_.restart_s, model_.mtbf_s / static_cast<double>(model_.ranks));
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

}  // namespace

double expected_wall_s(const FailureModel& model, int64_t save_every) {
  const double between = model.mtbf_s / static_cast<double>(model.ranks);
  const double work = static_cast<double>(save_every) * model.step_s;
  const double cycles = static_cast<double>(model.steps) / static_cast<double>(save_every);
  // Every failure costs a save that was being written, too.
  return between * std::exp(model.restart_s / between) *
         std::expm1((work + model.save_s) / between) * cycles * (1 + model.write_s / between);
}

int64_t best_save_every(const FailureModel& model) {
  // One valley: the third in which it lies is known by two points.
  // A save may begin when the last has been written.
  int64_t low = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(model.write_s / model.step_s)),
                                    1, model.steps),
          high = model.steps;
  while (high - low > 2) {
    const int64_t third = (high - low) / 3;
    const int64_t left = low + third, right = high - third;
    if (expected_wall_s(model, left) <= expected_wall_s(model, right)) {
      high = right;
    } else {
      low = left;
    }
  }
  int64_t best = low;
  for (int64_t i = low + 1; i <= high; ++i)
    if (expected_wall_s(model, i) < expected_wall_s(model, best)) best = i;
  return best;
}

Goodput simulate_failures(const FailureModel& model) {
  check_failure_model(model);
  const int64_t every =
      std::min(model.steps, model.save_every > 0 ? model.save_every : best_save_every(model));
  const double share = 1 / static_cast<double>(model.histories);
  Goodput mean;
  std::vector<double> walls;
  for (int64_t i = 0; i < model.histories; ++i) {
    const Goodput one = FailureHistory(model, every, static_cast<uint64_t>(i)).run();
    walls.push_back(one.wall_s);
    for (const auto field : {&Goodput::wall_s, &Goodput::saving_s, &Goodput::lost_s,
                             &Goodput::restarting_s, &Goodput::failures, &Goodput::lost_steps})
      mean.*field += one.*field * share;
  }
  std::sort(walls.begin(), walls.end());
  mean.wall_low_s = walls[walls.size() / 10];
  mean.wall_high_s = walls[walls.size() - 1 - walls.size() / 10];
  mean.useful_s = static_cast<double>(model.steps) * model.step_s;
  mean.save_every = every;
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
