#include "runtime/privacy/block_norms.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "kernels/clipped_sum/clipped_sum.h"
#include "kernels/common/choice.h"
#include "kernels/ghost_norm/ghost_norm.h"
#include "kernels/position_lengths/position_lengths.h"
#include "runtime/privacy/joined_by_references.h"
#include "runtime/privacy/layer_rules/rules.h"
#include "runtime/privacy/norm_cost.h"
#include "runtime/profile/ledger.h"
#include "runtime/profile/timeline.h"

namespace moonshard::privacy {
namespace {

using kernels::GhostGroup;
using kernels::SampleProblem;
using models::ParamLayer;

// Tasks by what is done with them, each with its place in the list.
struct Sorted {
  std::vector<GhostGroup> groups;
  std::vector<int64_t> ghost;  ///< in the order of the groups' layers
  std::vector<int64_t> flash, kept;
  std::vector<int64_t> bounded;  ///< all but the kept: their norms get margins
};

bool same_tensor(const at::Tensor& x, const at::Tensor& y) {
  return x.data_ptr() == y.data_ptr() && x.sizes() == y.sizes() && x.strides() == y.strides();
}

Sorted sorted(const std::vector<LinearTask>& tasks) {
  Sorted result;
  std::vector<std::vector<int64_t>> members;
  for (size_t k = 0; k < tasks.size(); ++k) {
    const LinearTask& task = tasks[k];
    const auto place = static_cast<int64_t>(k);
    if (task.keep == Keep::Gradients) {
      result.kept.push_back(place);
      continue;
    }
    result.bounded.push_back(place);
    if (task.g_BTo.size(1) == 1) continue;  // one outer product: the margins' launch has its norm
    if (task.method == NormMethod::Width) {
      result.flash.push_back(place);
    } else {  // by tiles of positions, whatever the name
      const auto same =
          std::find_if(result.groups.begin(), result.groups.end(), [&](const GhostGroup& group) {
            return same_tensor(group.a, task.a_BTi) && group.g.size() < 3;
          });
      if (same == result.groups.end()) {
        result.groups.push_back({task.a_BTi, {task.g_BTo}});
        members.push_back({place});
      } else {
        same->g.push_back(task.g_BTo);
        members[static_cast<size_t>(same - result.groups.begin())].push_back(place);
      }
    }
  }
  for (const auto& group : members)
    result.ghost.insert(result.ghost.end(), group.begin(), group.end());
  return result;
}

std::vector<SampleProblem> problems_of(const std::vector<LinearTask>& tasks,
                                       const std::vector<int64_t>& places) {
  std::vector<SampleProblem> problems;
  for (const int64_t place : places) {
    const LinearTask& task = tasks[static_cast<size_t>(place)];
    problems.push_back({task.a_BTi, task.g_BTo});
  }
  return problems;
}

// Ghost and flash norms as the kernels find them, then the margins of all in one launch.
at::Tensor bounded_norms(const std::vector<LinearTask>& tasks, const Sorted& which) {
  std::vector<kernels::FoundSquares> found(tasks.size());
  if (!which.groups.empty()) {
    const kernels::GhostSums sums = kernels::ghost_norm(which.groups);
    for (size_t n = 0; n < which.ghost.size(); ++n) {
      const auto row = static_cast<int64_t>(n);
      kernels::FoundSquares& own = found[static_cast<size_t>(which.ghost[n])];
      own = {kernels::NormSource::Gram, sums.value[row], sums.magnitude[row]};
      if (!sums.length.defined()) continue;
      own.length = sums.length[row];
      own.spread = sums.spread[row];
    }
  }
  if (!which.flash.empty()) {
    const at::Tensor squares = kernels::flash_norm(problems_of(tasks, which.flash));
    for (size_t n = 0; n < which.flash.size(); ++n) {
      found[static_cast<size_t>(which.flash[n])] = {
          kernels::NormSource::Gradient, squares[static_cast<int64_t>(n)], {}};
    }
  }
  std::vector<kernels::FoundSquares> in_order;
  for (const int64_t place : which.bounded) in_order.push_back(found[static_cast<size_t>(place)]);
  return kernels::bounded_squares(problems_of(tasks, which.bounded), in_order);
}

}  // namespace

bool may_join(const ParamLayer& layer, const at::Tensor& a, const at::Tensor& g) {
  const bool by_references = stands_in(g);
  if (!by_references && !g.is_cuda()) return false;
  if (!layer.weight->trainable) return false;
  if (!is_matrix(layer) || !has_built_in_rule(layer) || a.scalar_type() != g.scalar_type())
    return false;
  const bool one_position = g.dim() <= 2 || g.numel() == g.size(0) * g.size(-1);
  if (!by_references && !one_position && g.scalar_type() != at::kBFloat16) return false;
  const at::Tensor a_BTi = as_positions(a), g_BTo = as_positions(g);
  if (one_position)
    return by_references ? a.numel() > 0 : kernels::outer_sum_supports({a_BTi, g_BTo});
  if (by_references)  // formats apart, what the kernels ask
    return a_BTi.size(2) % 8 == 0 && g_BTo.size(2) % 8 == 0 && a.numel() > 0;
  // clipped_sum's kernel asks for no more than flash_norm's, except for Hopper: on another GPU the
  // norms are formed together, and sums one by one.
  return kernels::flash_norm_supports({a_BTi, g_BTo}) &&
         kernels::ghost_norm_supports({a_BTi, {g_BTo}});
}

bool keeps_compact(const at::Tensor& like) {
  return stands_in(like) || kernels::variant_of("flash_norm", like) == kernels::Variant::Hopper;
}

bool keeps_compact_rows(const at::Tensor& a, const at::Tensor& g) {
  return keeps_compact(g) && kernels::has_whole_units(a.size(-1), g.size(-1));
}

void keep_the_smaller(std::vector<LinearTask>& tasks) {
  const auto rows_bytes = [](const LinearTask& task) {
    const int64_t elements = task.g_BTo.size(0) * task.g_BTo.size(2) * task.a_BTi.size(2);
    return static_cast<int64_t>(static_cast<double>(elements) * kCompactBytes);
  };
  const auto bytes = [](const at::Tensor& x) {
    return x.numel() * static_cast<int64_t>(x.element_size());
  };
  for (const LinearTask& first : tasks) {
    if (!first.rows_if_smaller) continue;
    // Either none of those that read this input keeps it, or one does for all.
    std::vector<LinearTask*> readers;
    int64_t all_rows = 0, with_input = bytes(first.a_BTi);
    const at::Tensor input = first.a_BTi;
    for (LinearTask& task : tasks) {
      if (!task.rows_if_smaller || !same_tensor(task.a_BTi, input)) continue;
      readers.push_back(&task);
      all_rows += rows_bytes(task);
      with_input += std::min(rows_bytes(task), bytes(task.g_BTo));
    }
    for (LinearTask* task : readers) {
      const bool rows = all_rows < with_input || rows_bytes(*task) < bytes(task->g_BTo);
      task->keep = rows && input.size(1) > 1 ? Keep::Gradients : Keep::Inputs;
      task->rows_if_smaller = false;
    }
  }
}

TaskNorms norms_of(const std::vector<LinearTask>& tasks) {
  const Sorted which = sorted(tasks);
  TaskNorms result;
  result.kept.resize(tasks.size());
  const auto n = static_cast<int64_t>(tasks.size());
  std::vector<at::Tensor> parts;
  std::vector<int64_t> order;
  const auto add = [&](const at::Tensor& squares, const std::vector<int64_t>& places) {
    parts.push_back(squares);
    order.insert(order.end(), places.begin(), places.end());
  };
  if (!which.bounded.empty()) add(bounded_norms(tasks, which), which.bounded);
  if (!which.kept.empty()) {
    const profile::TraceZone zone(profile::kTracedGradients, common_name(tasks));
    const auto problems = problems_of(tasks, which.kept);
    kernels::KeptGradients kept;
    {
      const profile::OwnerScope scope(profile::Owner::EngineKept);
      kept = kernels::empty_kept(problems);
    }
    result.units = kept.units;
    for (size_t k = 0; k < problems.size(); ++k)
      result.kept[static_cast<size_t>(which.kept[k])] = kept.of[k];
    // The norm is that of the rounded gradient, which is what is summed later: no margin.
    add(kernels::flash_norm(problems, kept.of), which.kept);
  }
  const at::Tensor all = parts.size() == 1 ? parts.front() : at::cat(parts);
  bool in_order = true;
  for (int64_t k = 0; k < n; ++k) in_order = in_order && order[static_cast<size_t>(k)] == k;
  if (in_order) {
    result.squares_nB = all;
    return result;
  }
  std::vector<at::Tensor> rearranged(static_cast<size_t>(n));
  for (int64_t k = 0; k < n; ++k)
    rearranged[static_cast<size_t>(order[static_cast<size_t>(k)])] = all[k];
  result.squares_nB = at::stack(rearranged);
  return result;
}

void add_clipped(const std::vector<LinearTask>& tasks, const at::Tensor& factors) {
  const at::Tensor narrow = factors.to(at::kFloat);
  std::vector<bool> goes_on;  // asked before any of them is made
  for (const LinearTask& task : tasks) goes_on.push_back(task.layer->weight->grad.defined());
  // One launch for sums that are new, one for those that go on (an earlier micro-batch's).
  for (const bool accumulate : {false, true}) {
    std::vector<SampleProblem> problems;
    std::vector<at::Tensor> sums;
    for (size_t k = 0; k < tasks.size(); ++k) {
      if (goes_on[k] != accumulate) continue;
      const LinearTask& task = tasks[k];
      at::Tensor& sum = task.layer->weight->grad;
      const profile::OwnerScope scope(profile::Owner::Gradients);
      if (!accumulate) {
        sum = at::empty(task.layer->weight->value.sizes(), task.g_BTo.options().dtype(at::kFloat));
      }
      problems.push_back({task.a_BTi, task.g_BTo});
      sums.push_back(sum.flatten(1));
    }
    if (!problems.empty()) kernels::clipped_sum(problems, narrow, sums, accumulate);
  }
}

std::string common_name(const std::vector<LinearTask>& tasks) {
  const std::string& first = tasks.front().layer->name;
  if (tasks.size() == 1) return first;
  size_t same = first.size();
  for (const LinearTask& task : tasks) {
    const std::string& name = task.layer->name;
    size_t common = 0;
    while (common < std::min(same, name.size()) && name[common] == first[common]) ++common;
    same = common;
  }
  const size_t dot = first.substr(0, same).rfind('.');
  return dot == std::string::npos ? first + " and others" : first.substr(0, dot);
}

}  // namespace moonshard::privacy
