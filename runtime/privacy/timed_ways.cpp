#include "runtime/privacy/timed_ways.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "kernels/common/choice.h"
#include "kernels/fused_update/fused_update.h"
#include "runtime/core/tuning.h"
#include "runtime/privacy/block_norms.h"
#include "runtime/profile/kernel_timer.h"
#include "runtime/profile/memory.h"

namespace moonshard::privacy {
namespace {

// Raised when a kernel becomes faster or slower: what was remembered of the others is then timed
// again.
constexpr int kKernels = 7;

constexpr std::pair<const char*, double WayTimes::*> kTimedFields[] = {
    {"ghost", &WayTimes::ghost},      {"flash", &WayTimes::flash},
    {"sum", &WayTimes::sum},          {"keep", &WayTimes::keep},
    {"update", &WayTimes::update},    {"update_rows", &WayTimes::update_rows},
    {"sum_rows", &WayTimes::sum_rows}};

// What is missing stays 0.
WayTimes ways_of(const std::map<std::string, double>& ms) {
  WayTimes times;
  for (const auto& [name, field] : kTimedFields) {
    const auto found = ms.find(name);
    if (found != ms.end()) times.*field = found->second;
  }
  return times;
}

// Multiplications of one kernel, beyond which nothing is timed: a tenth of a second on an H200.
constexpr double kMostWork = 5e13;

double bytes_of(const UnitShape& shape) {
  double bytes = 0;
  const auto samples = static_cast<double>(shape.samples);
  for (const int64_t out : shape.out) {
    const double matrix = static_cast<double>(shape.in) * static_cast<double>(out);
    bytes += samples * static_cast<double>(shape.positions * out) * 2 + matrix * (2 * samples + 12);
  }
  return bytes + samples * static_cast<double>(shape.positions * shape.in) * 2;
}

double work_of(const UnitShape& shape) {
  double work = 0;
  for (const int64_t out : shape.out)
    work += static_cast<double>(shape.samples * shape.positions) * static_cast<double>(shape.in) *
            static_cast<double>(out);
  return work;
}

// Layers of these shapes, with random a and g; times are those of one copy.
class Trial {
 public:
  Trial(const UnitShape& shape, const at::Tensor& like)
      : copies_(timed_copies(shape)),
        device_(like.device()),
        factors_(at::full({shape.samples}, 0.5, like.options().dtype(at::kFloat))) {
    const auto options = like.options().dtype(at::kBFloat16).requires_grad(false);
    for (int64_t copy = 0; copy < copies_; ++copy) add_unit(shape, options);
  }

  std::map<std::string, double> times(bool with_ghost) {
    std::map<std::string, double> ms = times_of_all(with_ghost);
    for (auto& [name, time] : ms) time /= static_cast<double>(copies_);
    return ms;
  }

 private:
  static constexpr int kRepeats = 2;

  void add_unit(const UnitShape& shape, const at::TensorOptions& options) {
    const at::Tensor a = at::randn({shape.samples, shape.positions, shape.in}, options);
    for (const int64_t out : shape.out) {
      weights_.push_back(std::make_unique<models::Parameter>());
      weights_.back()->value = at::empty({out, shape.in}, options.device(c10::kMeta));
      layers_.push_back(std::make_unique<models::ParamLayer>());
      layers_.back()->weight = weights_.back().get();
      tasks_.push_back(
          {layers_.back().get(), a, at::randn({shape.samples, shape.positions, out}, options)});
      values_.push_back(at::zeros({out, shape.in}, options));
      lows_.push_back(at::zeros({out, shape.in}, options.dtype(at::kShort)));
    }
  }

  std::map<std::string, double> times_of_all(bool with_ghost) {
    std::map<std::string, double> ms;
    const auto norms = [&](NormMethod method, Keep keep) {
      for (LinearTask& task : tasks_) task.method = method, task.keep = keep;
      return profile::best_ms(device_, kRepeats, [&] { found_ = norms_of(tasks_); });
    };
    ms["flash"] = norms(NormMethod::Width, Keep::Inputs);
    ms["ghost"] = with_ghost ? norms(NormMethod::Ghost, Keep::Inputs) : 10 * ms["flash"];
    ms["sum"] = profile::best_ms(device_, kRepeats, [&] {
      for (const auto& weight : weights_) weight->grad = at::Tensor();
      add_clipped(tasks_, factors_);
    });
    ms["update"] = update_ms(/*rows=*/false);
    for (const auto& weight : weights_) weight->grad = at::Tensor();
    ms["keep"] = norms(NormMethod::Width, Keep::Gradients);
    ms["update_rows"] = update_ms(/*rows=*/true);
    ms["sum_rows"] = profile::best_ms(device_, kRepeats, [&] {
      for (const kernels::KeptGradient& kept : found_.kept)
        kernels::add_weighted_rows({}, kept.numbers, kept.units);
    });
    return ms;
  }

  double update_ms(bool rows) {
    const kernels::ChaChaKey secret{{1, 2, 3, 4, 5, 6, 7, 8}};
    kernels::UpdateNoise noise;
    noise.std = 1;
    noise.secret = &secret;
    return profile::best_ms(device_, kRepeats, [&] {
      std::vector<kernels::UpdatePart> parts(tasks_.size());
      for (size_t i = 0; i < parts.size(); ++i) {
        parts[i].value = values_[i];
        parts[i].low = lows_[i];
        parts[i].parameter = static_cast<uint32_t>(i);
        if (rows) {
          parts[i].rows = found_.kept[i].numbers;
          parts[i].row_factors = found_.kept[i].units;
        } else {
          parts[i].grad = weights_[i]->grad;
        }
      }
      kernels::fused_update(parts, {}, noise);
    });
  }

  int64_t copies_;
  c10::Device device_;
  at::Tensor factors_;
  std::vector<std::unique_ptr<models::Parameter>> weights_;
  std::vector<std::unique_ptr<models::ParamLayer>> layers_;
  std::vector<LinearTask> tasks_;
  std::vector<at::Tensor> values_, lows_;
  TaskNorms found_;
};

}  // namespace

std::string UnitShape::text() const {
  return fmt::format("clipped sum {}: B {} T {} in {} out {}", kKernels, samples, positions, in,
                     fmt::join(out, ","));
}

std::string text_of(const std::vector<UnitShape>& units, const std::vector<std::string>& plans) {
  if (units.empty()) return "";
  std::map<std::string, int> counts;
  for (size_t i = 0; i < units.size(); ++i)
    ++counts[fmt::format("{} to {} {}", units[i].in, fmt::join(units[i].out, ","), plans[i])];
  std::string text = fmt::format("{}: B {} T {}", kKernels, units[0].samples, units[0].positions);
  for (const auto& [layers, count] : counts) text += fmt::format("; {} x {}", count, layers);
  return text;
}

double WayTimes::inputs() const {
  return std::min(ghost, flash) + sum + update;
}

double WayTimes::rows(bool summed) const {
  return keep + (summed ? sum_rows + update : update_rows);
}

WayTimes WayTimes::scaled(double samples) const {
  return {ghost * samples,   flash * samples, sum * samples,
          keep * samples,    update,          std::max(update, update_rows * samples),
          sum_rows * samples};
}

int64_t timed_copies(const UnitShape& shape) {
  constexpr double kEnoughWork = 1e11;
  const auto fit = static_cast<int64_t>(kMostTasks / std::max<size_t>(1, shape.out.size()));
  const auto enough = static_cast<int64_t>(std::ceil(kEnoughWork / std::max(1.0, work_of(shape))));
  return std::clamp<int64_t>(enough, 1, std::max<int64_t>(1, std::min<int64_t>(4, fit)));
}

std::optional<WayTimes> timed_ways(const UnitShape& shape, const at::Tensor& like) {
  const auto all = static_cast<double>(kernels::memory_around(like));
  const auto used = static_cast<double>(profile::read_memory(like.device()).allocated_bytes);
  if (work_of(shape) > kMostWork ||
      (all > 0 && static_cast<double>(timed_copies(shape)) * bytes_of(shape) > (all - used) / 4))
    return {};
  // Where Gram matrices are far too large nobody asks for their exact time.
  const bool with_ghost = static_cast<double>(shape.positions) < 4 * static_cast<double>(shape.in);
  const TunedChoice known = tuned(profile::machine_of(like.device()), shape.text(), [&] {
    const at::NoGradGuard no_grad;
    TunedChoice timed;
    timed.ms = Trial(shape, like).times(with_ghost);
    const WayTimes ways = ways_of(timed.ms);
    timed.choice = ways.rows(/*summed=*/false) < ways.inputs() ? "keep gradients" : "keep inputs";
    return timed;
  });
  const WayTimes times = ways_of(known.ms);
  for (const auto& [name, field] : kTimedFields)
    if (!(times.*field > 0)) return {};  // another version's
  return times;
}

}  // namespace moonshard::privacy
