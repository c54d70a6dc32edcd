#include "runtime/sharding/parallel.h"

#include "runtime/core/device.h"
#include "runtime/sharding/replicated.h"
#include "runtime/sharding/sharded_model.h"
#include "runtime/sharding/unwrapped.h"

namespace moonshard::sharding {

std::vector<KeptPart> whole_parts(const models::Model& model) {
  std::vector<KeptPart> parts;
  for (const auto& parameter : model.parameters())
    parts.push_back({parameter.get(), 0, parameter->value.view({-1})});
  return parts;
}

std::unique_ptr<Parallel> make_parallel(models::Model& model, const ShardingOptions& options,
                                        comm::World& world) {
  if (options.parallel == "none") {
    MS_CHECK(world.size() == 1,
             "parallel: expected ddp or fsdp in a world of {} ranks, got none; each rank would "
             "train a model of its own",
             world.size());
    return std::make_unique<Unwrapped>(model);
  }
  const auto group = world.group("train", resolve_device(model.options().device));
  if (options.parallel == "ddp") return std::make_unique<Replicated>(model, options, group);
  return std::make_unique<ShardedModel>(model, options, group);
}

}  // namespace moonshard::sharding
