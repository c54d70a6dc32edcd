#include "runtime/verify/case_parts.h"

#include <ATen/ATen.h>

#include <cmath>

namespace moonshard::verify {

CaseParts::CaseParts(const VerifyOptions& options, const Subject& subject, const Variant& variant,
                     const Format& format, std::shared_ptr<comm::World> world)
    : subject_(subject),
      variant_(variant),
      format_(format),
      world_(std::move(world)),
      sharding_(options.sharding),
      hooks_(options.hooks) {
  clip_.noise_multiplier = 0;
  step_.deterministic = true;
}

models::ModelOptions CaseParts::model_options(const VerifyOptions& options) const {
  models::ModelOptions model;
  model.model = subject_.model;
  model.task = subject_.task;
  model.device = options.device;
  model.dtype = format_.dtype;
  model.param_dtype = format_.param_dtype;
  model.seed = options.seed;
  return model;
}

double middle_of(const at::Tensor& norms) {
  const at::Tensor sorted = std::get<0>(norms.sort());
  const int64_t middle = sorted.size(0) / 2;
  return sorted.size(0) == 1 ? sorted[0].item<double>() * 0.7
                             : (sorted[middle - 1] + sorted[middle]).item<double>() / 2;
}

void CaseParts::choose_group_bounds(const PerSample& gradients) {
  std::vector<privacy::ClipGroup> groups = privacy::parse_clip_groups(clip_.clip_groups);
  const auto members = members_of(groups, gradients);
  for (size_t k = 0; k < members.size(); ++k) {
    if (members[k].empty()) continue;
    const double bound = middle_of(norms_of(gradients, members[k]));
    (k < groups.size() ? groups[k].bound : clip_.max_grad_norm) = bound;
  }
  clip_.clip_groups = privacy::clip_groups_text(groups);
}

double CaseParts::total_bound(const PerSample& gradients) const {
  if (clip_.clipping != "groups") return clip_.max_grad_norm;
  const std::vector<privacy::ClipGroup> groups = privacy::parse_clip_groups(clip_.clip_groups);
  double squares =
      members_of(groups, gradients).back().empty() ? 0 : std::pow(clip_.max_grad_norm, 2);
  for (const privacy::ClipGroup& group : groups) squares += group.bound * group.bound;
  return std::sqrt(squares);
}

std::string CaseParts::error_of(const std::function<void()>& comparison) {
  try {
    comparison();
  } catch (const Interrupted&) {
    throw;
  } catch (const comm::CommError&) {
    throw;
  } catch (const std::exception& problem) {
    return problem.what();
  }
  return "";
}

Cell CaseParts::cell(const std::string& engine, const std::string& layer, const Worst& found,
                     double tolerance, const std::string& error) const {
  return {engine,       subject_.model, subject_.task,
          layer,        variant_.name,  format_.name,
          found.error,  tolerance,      found.error <= tolerance,
          found.name(), error};
}

}  // namespace moonshard::verify
