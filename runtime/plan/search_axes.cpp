#include "runtime/plan/search_axes.h"

#include <algorithm>

namespace moonshard::plan {
namespace {

using experiment::ExperimentOptions;

// Micro-batches that the samples of a rank allow: all divisors, or some from one to the other end.
std::vector<Json> accumulations(int64_t samples) {
  constexpr size_t kMost = 12;
  std::vector<int64_t> counts;
  for (int64_t i = 1; i * i <= samples; ++i) {
    if (samples % i != 0) continue;
    counts.push_back(i);
    if (i * i != samples) counts.push_back(samples / i);
  }
  std::ranges::sort(counts);
  std::vector<Json> some;
  const size_t shown = std::min(kMost, counts.size());
  for (size_t k = 0; k < shown; ++k)
    some.emplace_back(counts[shown == 1 ? 0 : k * (counts.size() - 1) / (shown - 1)]);
  return some;
}

std::vector<Json> texts(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

// The wrappers of so many ranks that what was asked leaves open; HSDP with a copy per node.
std::vector<Json> wrappers_of(const Cluster& cluster, const Json& asked) {
  const auto allows = [&](const char* name, const Json& value) {
    const auto found = asked.find(name);
    return found == asked.end() || *found == value;
  };
  std::vector<Json> wrappers;
  for (const char* name : {"parallel", "sharding", "replicate"})
    if (const auto found = asked.find(name); found != asked.end() && found->is_boolean())
      return wrappers;  // its values are an axis of their own
  if (!asked.contains("sharding") && !asked.contains("replicate")) {
    const char* plain = cluster.ranks() == 1 ? "none" : "ddp";
    if (allows("parallel", plain)) wrappers.push_back({{"parallel", plain}});
  }
  if (!allows("parallel", "fsdp")) return wrappers;
  std::vector<Json> groups{1};
  if (cluster.nodes > 1 && cluster.gpus > 1) groups.emplace_back(cluster.nodes);
  if (asked.contains("replicate")) groups = {asked["replicate"]};
  std::vector<Json> shardings{"zero2", "zero3"};
  if (asked.contains("sharding")) shardings = {asked["sharding"]};
  for (const Json& replicate : groups)
    for (const Json& sharding : shardings)
      wrappers.push_back({{"parallel", "fsdp"}, {"sharding", sharding}, {"replicate", replicate}});
  return wrappers;
}

}  // namespace

std::vector<std::pair<std::string, std::vector<Json>>> default_axes(const ExperimentOptions& base,
                                                                    const Cluster& cluster,
                                                                    const Json& asked,
                                                                    int64_t global_batch) {
  std::vector<std::pair<std::string, std::vector<Json>>> axes;
  const auto open = [&](const char* name) { return !asked.contains(name); };
  const int64_t ranks = cluster.ranks();
  if (open("mode") && base.mode != "none")
    axes.emplace_back("mode", texts({"bookkeeping", "flash_bookkeeping", "auto", "flash"}));
  if (std::vector<Json> wrappers = wrappers_of(cluster, asked); !wrappers.empty())
    axes.emplace_back("wrapper", std::move(wrappers));
  const bool may_shard = open("parallel") || asked["parallel"] == "fsdp";
  if (may_shard && ranks > 1 && open("wrap") && open("backward_prefetch")) {
    std::vector<Json> ways;
    ways.push_back(Json::object());
    ways.push_back({{"wrap", "size"}});
    ways.push_back({{"limit_all_gathers", false}});
    ways.push_back({{"backward_prefetch", "none"}, {"forward_prefetch", false}});
    axes.emplace_back("units", std::move(ways));
  }
  if (may_shard && open("cpu_offload") && cluster.machine.is_gpu)
    axes.emplace_back("cpu_offload", std::vector<Json>{false, true});
  if (open("checkpointing") && base.num_layers > 1 && base.num_heads > 0)
    axes.emplace_back("checkpointing", texts({"none", "block", "keep_attention"}));
  if (open("grad_accum") && open("batch_size") && global_batch % ranks == 0 && global_batch > 0)
    axes.emplace_back("grad_accum", accumulations(global_batch / ranks));
  if (open("dtype") && open("param_dtype") && cluster.machine.is_gpu)
    axes.emplace_back("precision",
                      std::vector<Json>{{{"dtype", "float32"}, {"param_dtype", "bfloat16"}}});
  return axes;
}

}  // namespace moonshard::plan
