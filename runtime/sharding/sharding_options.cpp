#include "runtime/sharding/sharding_options.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "runtime/base/check.h"
#include "runtime/sharding/unit_policy.h"

namespace moonshard::sharding {
namespace {

// Besides those that also have an effect without a wrapper.
std::vector<std::string> options_of_wrapper(const std::string& parallel) {
  if (parallel == "ddp") return {"reduce_dtype", "no_sync", "bucket_mb", "unit_policies"};
  if (parallel == "fsdp")
    return {"sharding",         "wrap",         "min_num_params", "backward_prefetch",
            "forward_prefetch", "reduce_dtype", "no_sync",        "limit_all_gathers",
            "cpu_offload",      "keep_frozen",  "replicate",      "reshard_root",
            "unit_policies"};
  return {};
}

}  // namespace

const OptionSchema& sharding_schema() {
  static const OptionSchema schema("parallel", add_sharding_options<ShardingOptions>);
  return schema;
}

int ranks_of_a_copy(const ShardingOptions& options, int world) {
  const auto copies = static_cast<int>(options.replicate);
  MS_CHECK(world % copies == 0 && (copies == 1 || world / copies >= 2),
           "parallel: option 'replicate': expected groups of at least 2 ranks each, got {} groups "
           "of {} ranks; ddp keeps whole copies",
           copies, world);
  return world / copies;
}

bool has_effect(const std::string& parallel, const std::string& option) {
  const auto is_of = [&](const std::string& wrapper) {
    const std::vector<std::string> names = options_of_wrapper(wrapper);
    return std::ranges::find(names, option) != names.end();
  };
  return is_of(parallel) || (!is_of("ddp") && !is_of("fsdp"));
}

void refuse_unused_options(const ShardingOptions& options) {
  std::vector<std::string> used = options_of_wrapper(options.parallel);
  const std::string user =
      fmt::format("parallel = {} (takes {})", options.parallel,
                  used.empty() ? "nothing of the kind" : fmt::format("{}", fmt::join(used, ", ")));
  used.insert(used.end(), {"parallel", "norm_reduce", "world", "link"});
  const ShardingOptions defaults;
  sharding_schema().refuse_unused(&options, &defaults, used, user);
  check_unit_policies(options);
}

}  // namespace moonshard::sharding
