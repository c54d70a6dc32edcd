#include "runtime/plan/search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>

#include <fmt/format.h>

#include "runtime/base/check.h"
#include "runtime/experiment/experiment.h"
#include "runtime/plan/search_models.h"
#include "runtime/plan/verified_savings.h"

namespace moonshard::plan {
namespace {

using experiment::ExperimentOptions;

constexpr size_t kMostCandidates = 2'000'000;
constexpr size_t kShown = 32;  // candidates that are looked at for each plan that is kept

// One choice of every axis, as a number in the mixed base of their lengths.
class Grid {
 public:
  explicit Grid(const SearchSpace& space) : space_(space) {
    for (const auto& [name, values] : space.axes) {
      MS_CHECK(!values.empty(), "plan: option '{}': expected values to try, got none", name);
      count_ *= values.size();
      MS_CHECK(count_ <= kMostCandidates,
               "plan: expected at most {} configurations, got more; give fewer values",
               kMostCandidates);
    }
  }
  size_t count() const { return count_; }
  void assign(size_t index, ExperimentOptions& options) const {
    for (const auto& [name, values] : space_.axes) {
      const Json& value = values[index % values.size()];
      index /= values.size();
      if (value.is_object()) {  // options that go together
        for (const auto& [own, part] : value.items())
          experiment::experiment_schema().assign(&options, own, part);
      } else {
        experiment::experiment_schema().assign(&options, name, value);
      }
    }
  }
  size_t changes(size_t index) const {
    size_t count = 0;
    for (const auto& [name, values] : space_.axes) {
      count += index % values.size() != 0 ? 1 : 0;
      index /= values.size();
    }
    return count;
  }

 private:
  const SearchSpace& space_;
  size_t count_ = 1;
};

// A batch of all ranks into micro-batches; false where it does not divide.
bool split_batch(const SearchSpace& space, int64_t ranks, ExperimentOptions& options) {
  if (space.global_batch == 0) return true;
  if (space.global_batch % ranks != 0) return false;
  const int64_t own = space.global_batch / ranks;
  if (!space.keeps_batch) {
    if (own % options.grad_accum != 0) return false;
    options.batch_size = own / options.grad_accum;
    return true;
  }
  if (own % options.batch_size != 0) return false;
  const int64_t count = own / options.batch_size;
  if (space.keeps_accum && options.grad_accum != count) return false;
  options.grad_accum = count;
  return true;
}

bool is_possible(const ExperimentOptions& options, const Cluster& cluster) {
  if (options.parallel == "none" && cluster.ranks() > 1) return false;
  if (options.parallel != "fsdp" && (options.cpu_offload || options.replicate > 1)) return false;
  if (options.cpu_offload && !cluster.machine.is_gpu) return false;
  if (options.replicate > 1 &&
      (cluster.ranks() % options.replicate != 0 || cluster.ranks() / options.replicate < 2))
    return false;
  return true;
}

double speed_of(const Candidate& candidate, bool by_tokens) {
  return by_tokens ? candidate.prediction.tokens_per_s : candidate.prediction.samples_per_s;
}

// Of one thread.
struct SearchPart : SearchResult {
  std::vector<Candidate> front_beyond;  ///< of what does not fit
};

class Search {
 public:
  Search(const SearchSpace& space, const Cluster& cluster, size_t keep)
      : space_(space),
        cluster_(cluster),
        keep_(keep),
        grid_(space),
        models_(space, cluster.machine) {}

  SearchResult run() {
    const auto threads = static_cast<size_t>(std::max<int64_t>(1, space_.threads));
    std::vector<SearchPart> results(threads);
    std::vector<std::thread> workers;
    std::string failure;
    std::mutex failing;
    for (size_t i = 0; i < threads; ++i)
      workers.emplace_back([&, i] {
        try {
          work(results[i]);
        } catch (const std::exception& error) {
          const std::lock_guard lock(failing);
          failure = error.what();
        }
      });
    for (std::thread& worker : workers) worker.join();
    MS_CHECK(failure.empty(), "{}", failure);
    SearchResult all;
    const auto move_to = [](std::vector<Candidate>& list, std::vector<Candidate>& more) {
      std::move(more.begin(), more.end(), std::back_inserter(list));
    };
    for (SearchPart& part : results) {
      all.tried += part.tried;
      all.fits += part.fits;
      all.refused += part.refused;
      for (auto list : {&SearchResult::fitting, &SearchResult::too_large, &SearchResult::front})
        move_to(all.*list, part.*list);
    }
    if (all.fits == 0)
      for (SearchPart& part : results) move_to(all.front, part.front_beyond);
    for (auto* list : {&all.fitting, &all.too_large}) {
      keep_fastest(*list);
      leave_out_alike(*list);
    }
    keep_front(all.front, space_.by_tokens);
    show_simplest(all.front, all.fits > 0 ? all.fitting : all.too_large);
    for (auto* list : {&all.fitting, &all.too_large})
      if (list->size() > keep_) list->resize(keep_);
    return all;
  }

  /// Why nothing could be tried.
  std::string refusal() const {
    if (!divides_ && refusal_.empty())
      return fmt::format(
          "a batch that {} ranks{} can share, got {}", cluster_.ranks(),
          space_.keeps_batch ? " with micro-batches of batch_size, grad_accum times," : "",
          space_.global_batch);
    return fmt::format("options that go together, and a wrapper for {} ranks, got none: {}",
                       cluster_.ranks(),
                       refusal_.empty() ? "several ranks need ddp or fsdp" : refusal_);
  }

 private:
  void work(SearchPart& result) {
    constexpr size_t kShare = 64;  // that a thread takes at a time
    SharedCosts shared(cluster_.machine);
    while (true) {
      const size_t first = next_.fetch_add(kShare);
      if (first >= grid_.count()) break;
      for (size_t i = first; i < std::min(grid_.count(), first + kShare); ++i)
        try_one(i, result, shared);
      if (result.fitting.size() > 4 * kShown * keep_) keep_fastest(result.fitting);
      if (result.too_large.size() > 4 * kShown * keep_) keep_fastest(result.too_large);
      if (result.front.size() > 4096) keep_front(result.front, space_.by_tokens);
      if (result.front_beyond.size() > 4096) keep_front(result.front_beyond, space_.by_tokens);
    }
    keep_fastest(result.fitting);
    keep_fastest(result.too_large);
    keep_front(result.front, space_.by_tokens);
    keep_front(result.front_beyond, space_.by_tokens);
  }

  void try_one(size_t index, SearchPart& result, SharedCosts& shared) {
    Candidate candidate{space_.base, {}, {}, grid_.changes(index), index};
    if (!make(index, candidate.options)) {
      ++result.refused;
      return;
    }
    candidate.prediction = predict(models_.of(candidate.options), candidate.options, cluster_,
                                   /*trace=*/nullptr, &shared);
    ++result.tried;
    if (candidate.prediction.fits) {
      ++result.fits;
      result.front.push_back(candidate);
      result.fitting.push_back(std::move(candidate));
    } else {
      result.front_beyond.push_back(candidate);
      result.too_large.push_back(std::move(candidate));
    }
  }

  // A configuration by its number; false where its options do not go together. Why is kept from the
  // first, for an error.
  bool make(size_t index, ExperimentOptions& options) {
    grid_.assign(index, options);  // an unknown name or value ends the search
    try {
      if (!space_.resolved_axes.empty()) {
        options = resolved(options);
        grid_.assign(index, options);
      }
      if (options.param_dtype == "auto") options.param_dtype = options.dtype;
      if (!split_batch(space_, cluster_.ranks(), options)) return false;
      divides_ = true;
      if (!is_possible(options, cluster_)) return false;
      sharding::refuse_unused_options(options);
      return true;
    } catch (const UsageError& error) {
      const std::lock_guard lock(refusing_);
      if (refusal_.empty()) refusal_ = error.what();
      return false;
    }
  }

  const ExperimentOptions& resolved(const ExperimentOptions& options) {
    const Json values = values_of(space_.resolved_axes, options);
    const std::string key = one_line(values);
    const std::lock_guard lock(resolving_);
    auto known = resolved_.find(key);
    if (known == resolved_.end()) known = resolved_.emplace(key, space_.resolve(values)).first;
    return known->second;
  }

  // Of those that are to be told apart later.
  void keep_fastest(std::vector<Candidate>& list) const {
    sort_by_speed(list, space_.by_tokens);
    if (list.size() > kShown * keep_) list.resize(kShown * keep_);
  }

  bool are_alike(const Candidate& one, const Candidate& two) const {
    constexpr double kAlike = 0.005;
    const auto near = [](double x, double y) { return std::abs(x - y) <= kAlike * y; };
    return near(speed_of(one, space_.by_tokens), speed_of(two, space_.by_tokens)) &&
           near(one.prediction.memory.peak, two.prediction.memory.peak);
  }

  // Knobs without effect make no plans of their own: of those within a half percent of the fastest
  // the simplest is shown, and the others are named beside it.
  void leave_out_alike(std::vector<Candidate>& list) const {
    constexpr size_t kMostNamed = 6;
    std::vector<std::vector<Candidate>> groups;  // the fastest first
    for (Candidate& candidate : list) {
      const auto same = std::ranges::find_if(groups, [&](const std::vector<Candidate>& group) {
        return are_alike(candidate, group[0]);
      });
      if (same == groups.end()) {
        groups.emplace_back();
        groups.back().push_back(std::move(candidate));
      } else {
        same->push_back(std::move(candidate));
      }
    }
    list.clear();
    for (std::vector<Candidate>& group : groups) {
      const auto simplest = std::ranges::min_element(group, {}, &Candidate::changes);
      std::rotate(group.begin(), simplest, simplest + 1);
      for (size_t i = 1; i < std::min(group.size(), kMostNamed + 1); ++i)
        group[0].alike.push_back(group[i].options);
      list.push_back(std::move(group[0]));
    }
    sort_by_speed(list, space_.by_tokens);
  }

  // The front's points as the list of plans has them.
  void show_simplest(std::vector<Candidate>& front, const std::vector<Candidate>& plans) const {
    for (Candidate& candidate : front) {
      const auto plan = std::ranges::find_if(plans, [&](const Candidate& other) {
        return other.changes < candidate.changes && are_alike(candidate, other);
      });
      if (plan == plans.end()) continue;
      candidate = *plan;
      candidate.alike.clear();
    }
    keep_front(front, space_.by_tokens);
  }

  const SearchSpace& space_;
  const Cluster& cluster_;
  size_t keep_;
  Grid grid_;
  Models models_;
  std::atomic<size_t> next_{0};
  std::atomic<bool> divides_{false};  ///< the batch, for some configuration
  std::mutex refusing_, resolving_;
  std::map<std::string, ExperimentOptions> resolved_;
  std::string refusal_;  ///< of options that exclude each other, the first
};

}  // namespace

void sort_by_speed(std::vector<Candidate>& list, bool by_tokens) {
  std::ranges::sort(list, {}, [&](const Candidate& x) {
    return std::tuple(-speed_of(x, by_tokens), x.changes, x.number);
  });
}

void keep_front(std::vector<Candidate>& list, bool by_tokens) {
  sort_by_speed(list, by_tokens);
  std::vector<Candidate> front;
  double least = 1e300;
  for (Candidate& candidate : list) {
    if (candidate.prediction.memory.peak >= least * 0.999) continue;
    least = candidate.prediction.memory.peak;
    front.push_back(std::move(candidate));
  }
  list = std::move(front);
}

SearchResult search(const SearchSpace& space, const Cluster& cluster, size_t keep) {
  Search whole(space, cluster, keep);
  SearchResult result = whole.run();
  MS_CHECK(result.tried > 0, "plan: expected {}", whole.refusal());
  return result;
}

std::string why_not(const ExperimentOptions& options, const Prediction& prediction,
                    const Cluster& cluster) {
  const MemoryPlan& memory = prediction.memory;
  std::string host;
  if (!prediction.host_fits)
    host = fmt::format("host memory of a node {} x {:.1f} of {:.1f} GiB", cluster.gpus,
                       memory.host / kGiB, cluster.host_bytes / kGiB);
  if (!host.empty() && prediction.needed_bytes <= cluster.memory_limit()) return host;
  size_t largest = 0;
  for (size_t i = 0; i < kHolders; ++i)
    if (memory.at_peak[i] > memory.at_peak[largest]) largest = i;
  const double limit = cluster.memory_limit();
  std::string text = fmt::format("{:.1f} of {:.1f} GiB", memory.peak / kGiB, limit / kGiB);
  if (memory.peak <= limit)
    text = fmt::format("{:.1f} GiB, with room for what the allocator cannot use {:.1f} of {:.1f}",
                       memory.peak / kGiB, prediction.needed_bytes / kGiB, limit / kGiB);
  text += fmt::format(", {} {:.1f}", holder_name(static_cast<Holder>(largest)),
                      memory.at_peak[largest] / kGiB);
  const auto list = verified_savings(options, prediction, cluster);
  if (!list.empty()) text += fmt::format("; {} saves {:.1f}", list[0].change, list[0].bytes / kGiB);
  return host.empty() ? text : text + "; " + host;
}

}  // namespace moonshard::plan
