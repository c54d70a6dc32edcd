// Several ranks for Lua: ms.dist (who and where, collectives for scripts), and what ms.trainer
// takes as `parallel`.
#include <ATen/ATen.h>

#include "bindings/bindings.h"
#include "bindings/convert.h"
#include "bindings/docs.h"
#include "bindings/handles.h"
#include "bindings/tensor_handle.h"
#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/comm/world.h"
#include "runtime/experiment/experiment.h"
#include "runtime/plan/rank_memory.h"
#include "runtime/sharding/unit_policy.h"

namespace moonshard::bindings {
namespace {

std::shared_ptr<comm::Communicator> script_group(c10::Device device) {
  return comm::this_world()->group("script", device);
}

// What a collective carries: a tensor, a number, or a list of numbers. The answer has its kind.
struct Carried {
  at::Tensor tensor;
  enum { Tensor, Number, List } kind = Number;
};

Carried carried(const Arguments& args, int n) {
  if (args.is<TensorHandle>(n)) {
    const at::Tensor& given = args.object<TensorHandle>(n, "Tensor").get(args.function_name());
    return {given.detach().clone(at::MemoryFormat::Contiguous), Carried::Tensor};
  }
  const Json value = args.missing(n) ? Json() : args.json(n);
  if (value.is_number()) return {at::tensor({value.get<double>()}, at::kDouble), Carried::Number};
  if (value.is_array() &&
      std::all_of(value.begin(), value.end(), [](const Json& item) { return item.is_number(); }))
    return {at::tensor(value.get<std::vector<double>>(), at::kDouble), Carried::List};
  args.fail(n, "a number, a list of numbers or a Tensor");
}

sol::object answer(lua_State* L, const at::Tensor& tensor, const Carried& like) {
  if (like.kind == Carried::Tensor) return push_tensor(L, tensor);
  const double* numbers = tensor.const_data_ptr<double>();
  if (like.kind == Carried::Number) return sol::make_object(L, numbers[0]);
  return to_lua(L, Json(std::vector<double>(numbers, numbers + tensor.numel())));
}

// Every rank must call the same in the same order. A rank that left a call out would get the data
// of another call, or none: so ranks first exchange what they are about to do, and the first
// difference is an error on all of them.
void agree(const Arguments& args, const char* operation, int64_t size) {
  static constexpr const char* kOperations[] = {"barrier", "all_reduce", "all_gather", "broadcast"};
  static int64_t calls = 0;
  const auto group = script_group(c10::kCPU);
  if (group->size() == 1) return;
  int64_t code = 0;
  while (std::string_view(kOperations[code]) != operation) ++code;
  const at::Tensor own = at::tensor({++calls, code, size}, at::kLong);
  const at::Tensor row = at::empty({own.numel() * group->size()}, at::kLong);
  group->all_gather(row, own, operation).wait();
  const int64_t* first = row.const_data_ptr<int64_t>();
  for (int rank = 1; rank < group->size(); ++rank) {
    const int64_t* other = first + 3 * rank;
    if (std::equal(first, first + 3, other)) continue;
    throw comm::CommError(fmt::format(
        "{}: expected the same call on every rank, got call {} of rank 0, {} of {} numbers, and "
        "call {} of rank {}, {} of {}; every rank must call the same in the same order",
        args.function_name(), first[0], kOperations[first[1]], first[2], other[0], rank,
        kOperations[other[1]], other[2]));
  }
}

sol::object all_reduce(const Arguments& args) {
  const Carried value = carried(args, 1);
  const std::string name = args.missing(2) ? "sum" : args.text(2, "reduction");
  agree(args, "all_reduce", value.tensor.numel());
  MS_CHECK(name == "sum" || name == "max" || name == "min" || name == "mean",
           "{}: expected the reduction sum, mean, max or min, got '{}'", args.function_name(),
           name);
  const auto group = script_group(value.tensor.device());
  at::Tensor tensor = value.tensor;
  group
      ->all_reduce(tensor, "script",
                   name == "max"   ? comm::Reduction::Max
                   : name == "min" ? comm::Reduction::Min
                                   : comm::Reduction::Sum)
      .wait();
  if (name == "mean") tensor = tensor / group->size();
  return answer(args.state(), tensor, value);
}

sol::object all_gather(const Arguments& args) {
  const Carried value = carried(args, 1);
  const auto group = script_group(value.tensor.device());
  const int64_t n = value.tensor.numel();
  agree(args, "all_gather", n);
  const at::Tensor row = at::empty({n * group->size()}, value.tensor.options());
  if (n > 0) group->all_gather(row, value.tensor.flatten(), "script").wait();
  sol::table list(args.state(), sol::create);
  for (int rank = 0; rank < group->size(); ++rank) {
    const at::Tensor part = row.narrow(0, n * rank, n).view(value.tensor.sizes());
    list[rank + 1] = answer(args.state(), part.clone(), value);
  }
  return list;
}

sol::object broadcast(const Arguments& args) {
  const Carried value = carried(args, 1);
  const int root = args.missing(2) ? 0 : static_cast<int>(args.integer(2, "root rank"));
  at::Tensor tensor = value.tensor;
  agree(args, "broadcast", tensor.numel());
  script_group(tensor.device())->broadcast(tensor, root, "script").wait();
  return answer(args.state(), tensor, value);
}

// policies = { { units = "root", offload = true }, … } as the option that it stands for.
Json with_policy_option(const Arguments& args, int n) {
  Json options = args.options(n);
  const auto found = options.find("policies");
  if (found == options.end()) return options;
  const std::string where = fmt::format("{}: option 'policies'", args.function_name());
  MS_CHECK(!options.contains("unit_policies"),
           "{}: expected it or unit_policies, the same as a text, got both", where);
  options["unit_policies"] =
      sharding::unit_policies_text(sharding::unit_policies_from_json(where, *found));
  options.erase("policies");
  return options;
}

// Checked now and returned as a plain table; ms.trainer reads it back through the same schema.
sol::object checked_parallel(const Arguments& args, const char* parallel) {
  sharding::ShardingOptions options;
  const Json table = with_policy_option(args, 1);
  MS_CHECK(!table.contains("parallel"),
           "{}: unknown option 'parallel'; the function's name says which", args.function_name());
  sharding::sharding_schema().assign_all(&options, table);
  options.parallel = parallel;
  sharding::refuse_unused_options(options);
  return to_lua(args.state(), sharding::sharding_schema().to_json(&options));
}

// The options of an experiment, and `ranks`.
sol::object rank_memory(const Arguments& args) {
  Json table = args.options(1);
  int64_t ranks = 1;
  if (table.contains("ranks")) {
    MS_CHECK(table["ranks"].is_number_integer() && table["ranks"].get<int64_t>() >= 1 &&
                 table["ranks"].get<int64_t>() <= 1000000,
             "{}: option 'ranks': expected a whole number from 1, got {}", args.function_name(),
             one_line(table["ranks"]));
    ranks = table["ranks"].get<int64_t>();
    table.erase("ranks");
  }
  static const OptionSchema schema = [] {
    OptionSchema all = experiment::experiment_schema();
    all.also_known({"ranks"});
    return all;
  }();
  experiment::ExperimentOptions asked;
  schema.assign_all(&asked, table);
  const experiment::ExperimentOptions options = experiment::resolve_experiment(asked);
  const int states = options.optimizer != "sgd" ? 2 : options.momentum > 0 ? 1 : 0;
  const plan::RankMemory memory = plan::rank_memory(
      options, options, static_cast<int>(ranks), states, options.batch_size, options.seq_length,
      /*state_bytes=*/options.state_dtype == "bfloat16" ? 2 : 0);
  return to_lua(args.state(), Json{{"data_bytes", memory.data},
                                   {"parameter_bytes", memory.parameters},
                                   {"gradient_bytes", memory.gradients},
                                   {"optimizer_bytes", memory.optimizer},
                                   {"gathered_bytes", memory.gathered},
                                   {"pytorch_after_model_bytes", memory.pytorch_after_model},
                                   {"pytorch_after_warmup_bytes", memory.pytorch_after_warmup}});
}

}  // namespace

sharding::ShardingOptions read_sharding_options(const Json& table) {
  sharding::ShardingOptions options;
  sharding::sharding_schema().assign_all(&options, table);
  return options;
}

void bind_dist(sol::table ms) {
  sol::table dist(ms.lua_state(), sol::create);
  define(
      dist, "ms.dist", "rank", "() -> number", "This process's rank, from 0.",
      [](const Arguments&) { return Json(comm::is_rank() ? comm::rank_environment()->rank : 0); });
  define(
      dist, "ms.dist", "world", "() -> number", "The number of ranks; 1 without a launcher.",
      [](const Arguments&) { return Json(comm::is_rank() ? comm::rank_environment()->world : 1); });
  define(dist, "ms.dist", "local_rank", "() -> number", "This process's rank on its machine.",
         [](const Arguments&) {
           return Json(comm::is_rank() ? comm::rank_environment()->local_rank : 0);
         });
  define(dist, "ms.dist", "barrier", "()", "Waits until every rank is here.",
         [](const Arguments& args) {
           agree(args, "barrier", 0);
           script_group(c10::kCPU)->barrier("script");
         });
  define(dist, "ms.dist", "all_reduce", "(value[, reduction]) -> value",
         "The sum over ranks (or mean, max, min) of a number, a list of numbers or a Tensor.",
         all_reduce);
  define(dist, "ms.dist", "all_gather", "(value) -> list",
         "Every rank's value, by rank: numbers, lists of numbers or Tensors of one size.",
         all_gather);
  define(dist, "ms.dist", "broadcast", "(value[, root]) -> value",
         "The value of rank `root` (0) on every rank; all give one of the same kind and size.",
         broadcast);
  ms["dist"] = dist;
  document(dist, "ms.dist", "ms.dist",
           "Ranks of this job: rank, world, barrier, all_reduce, all_gather, broadcast. Start "
           "several with 'moonshard run --nproc N SCRIPT', torchrun, srun or mpirun.");
  define(ms, "ms", "rank_memory",
         "{ ranks, model, parallel, sharding, optimizer, batch_size, … } -> table of bytes",
         "What one rank of so many holds between steps, without running anything; beside it what "
         "the same job holds in PyTorch.",
         rank_memory);
  const std::vector<std::string> fsdp_alone{
      "sharding",          "wrap",        "min_num_params", "backward_prefetch", "forward_prefetch",
      "limit_all_gathers", "cpu_offload", "keep_frozen",    "replicate",         "parallel",
      "reshard_root"};
  document_options<sharding::ShardingOptions>("ms.ddp", sharding::sharding_schema(), fsdp_alone);
  document_options<sharding::ShardingOptions>("ms.fsdp", sharding::sharding_schema(),
                                              {"bucket_mb", "parallel"});
  define(ms, "ms", "ddp", "{ bucket_mb, reduce_dtype, no_sync, … } -> table",
         "For ms.trainer's `parallel`: whole copies, gradients summed over ranks.",
         [](const Arguments& args) { return checked_parallel(args, "ddp"); });
  define(ms, "ms", "fsdp",
         "{ sharding, wrap, backward_prefetch, forward_prefetch, cpu_offload, … } -> table",
         "For ms.trainer's `parallel`: parameters, gradients and optimizer state in parts.",
         [](const Arguments& args) { return checked_parallel(args, "fsdp"); });
}

}  // namespace moonshard::bindings
