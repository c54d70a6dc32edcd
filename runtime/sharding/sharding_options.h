// How training is distributed over ranks: one flat struct, with the names of the seed documents and
// PyTorch. Needs no torch.
#pragma once

#include <string>

#include "runtime/base/options.h"
#include "runtime/comm/links.h"

namespace moonshard::sharding {

struct ShardingOptions {
  std::string parallel = "none";
  std::string sharding = "zero3";
  std::string wrap = "module";
  double min_num_params = 1e8;
  std::string backward_prefetch = "pre";
  bool forward_prefetch = true;
  bool limit_all_gathers = true;
  bool cpu_offload = false;
  bool keep_frozen = false;
  bool reshard_root = false;
  std::string unit_policies;
  int64_t replicate = 1;
  std::string reduce_dtype = "auto";
  bool no_sync = false;
  double bucket_mb = 25;
  std::string norm_reduce = "local";
  std::string world = "auto";
  std::string link = "nvlink";
};

/// The options by themselves, for what is not a whole experiment.
const OptionSchema& sharding_schema();

/// Whether an option does anything under this wrapper: one of another wrapper alone does not.
bool has_effect(const std::string& parallel, const std::string& option);

/// Throws UsageError for an option that the chosen wrapper ignores (`sharding` under ddp) and that
/// differs from its default, and for unit_policies that it cannot follow.
void refuse_unused_options(const ShardingOptions& options);

/// How many ranks hold a model together. Throws UsageError where `replicate` does not divide them
/// into groups of at least two.
int ranks_of_a_copy(const ShardingOptions& options, int world);

template <class T>
void add_sharding_options(OptionSchema& schema) {
  Option& parallel = schema.choice<T>(
      "parallel", &T::parallel, {"none", "ddp", "fsdp"},
      "how ranks share the work: not at all, whole copies, or parts of parameters and state");
  parallel.aliases = {"data_parallel"};
  schema.choice<T>("sharding", &T::sharding, {"zero3", "zero2", "zero2_replicated"},
                   "fsdp: parameters whole only where they are used; from forward to backward; "
                   "always");
  Option& wrap =
      schema.choice<T>("wrap", &T::wrap, {"module", "size", "none"},
                       "fsdp: a unit per block, per min_num_params parameters, or one for all");
  wrap.aliases = {"auto_wrap_policy", "wrap_policy"};
  wrap.value_aliases = {{"module_wrap", "module"}, {"size_based", "size"}};
  schema.real<T>("min_num_params", &T::min_num_params, 1, 1e15,
                 "fsdp, wrap = size: parameters that make a unit");
  Option& prefetch = schema.choice<T>(
      "backward_prefetch", &T::backward_prefetch, {"pre", "post", "none"},
      "fsdp: gather the next unit before this one's backward, after it, or when it is used");
  prefetch.value_aliases = {{"BACKWARD_PRE", "pre"},
                            {"backward_pre", "pre"},
                            {"BACKWARD_POST", "post"},
                            {"backward_post", "post"},
                            {"NONE", "none"}};
  schema.boolean<T>("forward_prefetch", &T::forward_prefetch,
                    "fsdp: gather the next unit while this one's forward runs");
  schema.boolean<T>("limit_all_gathers", &T::limit_all_gathers,
                    "fsdp: at most one unit is gathered ahead; without it two");
  schema.boolean<T>("cpu_offload", &T::cpu_offload,
                    "fsdp: parameters, gradients and optimizer state live in host memory");
  schema.boolean<T>("keep_frozen", &T::keep_frozen,
                    "fsdp: frozen parameters are gathered once and stay whole");
  schema.boolean<T>("reshard_root", &T::reshard_root,
                    "fsdp: the root unit (embedding, final norm, head) is whole only where its "
                    "layers run, as blocks are under zero3; without it from forward to backward");
  schema.text<T>("unit_policies", &T::unit_policies,
                 "globs of units and what holds for them, 'model.layers.*: reshard = no; root: "
                 "dtype = float32, offload = yes': dtype (of the computation), reduce_dtype, "
                 "reshard, offload; the first match counts. ddp takes reduce_dtype alone");
  schema.integer<T>("replicate", &T::replicate, 1, 1e6,
                    "fsdp: groups of ranks that each hold a whole model in parts; gradients are "
                    "summed inside a group, then across groups (HSDP)");
  schema
      .choice<T>("reduce_dtype", &T::reduce_dtype, {"auto", "float32", "float64", "bfloat16"},
                 "dtype in which gradients travel; auto is that of the sums")
      .value_aliases = {{"fp32", "float32"}, {"fp64", "float64"}, {"bf16", "bfloat16"}};
  schema.boolean<T>("no_sync", &T::no_sync,
                    "reduce gradients after the last micro-batch of a step only");
  schema.real<T>("bucket_mb", &T::bucket_mb, 0, 1e6, "ddp: MiB of gradients per all-reduce");
  schema.choice<T>("norm_reduce", &T::norm_reduce, {"local", "sum"},
                   "norms of a rank's own samples, or summed over ranks: for timing, not private");
  schema.text<T>("world", &T::world,
                 "auto: the ranks that were launched; fake:N: one rank of N on this device");
  schema.choice<T>("link", &T::link, comm::link_names(),
                   "world = fake:N: the link whose speed communication is modelled from");
}

}  // namespace moonshard::sharding
