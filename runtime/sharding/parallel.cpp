#include "runtime/sharding/parallel.h"

#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/sharding/sharded_model.h"

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
    return make_unwrapped(model);
  }
  const c10::Device device = resolve_device(model.options().device);
  if (options.replicate > 1) {
    const int ranks = ranks_of_a_copy(options, world.size());
    const int copy = world.rank() / ranks, part = world.rank() % ranks;
    const auto own = world.part_group(fmt::format("train copy {}", copy), device, part, ranks);
    own->set_name("");
    const auto copies = world.part_group(fmt::format("copies of part {}", part), device, copy,
                                         static_cast<int>(options.replicate));
    copies->set_name("copies");
    return std::make_unique<ShardedModel>(model, options, own, copies);
  }
  const auto group = world.group("train", device);
  if (options.parallel == "ddp") return make_replicated(model, options, group);
  return std::make_unique<ShardedModel>(model, options, group, nullptr);
}

std::shared_ptr<comm::World> real_world(const char* where, const ShardingOptions& options) {
  refuse_unused_options(options);
  const auto world = comm::make_world(options.world, options.link);
  MS_CHECK(world->size() == 1 || options.parallel != "none",
           "{}: expected a wrapper for {} ranks, got parallel = none; give --parallel ddp or fsdp",
           where, world->size());
  MS_CHECK(!world->is_fake(), "{}: expected real ranks, got world = {}; start them with --nproc",
           where, options.world);
  return world;
}

void add_wrapper(Json& report, const ShardingOptions& options) {
  if (options.parallel == "none") return;
  report["parallel"] = options.parallel;
  if (options.parallel == "fsdp") report["sharding"] = options.sharding;
  report["world"] = comm::this_world()->size();
}

}  // namespace moonshard::sharding
