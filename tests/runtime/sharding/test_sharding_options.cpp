// Options of wrappers are sets: what a wrapper takes no notice of is refused, unless it has its
// default.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/experiment/experiment.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::sharding {
namespace {

using ::testing::HasSubstr;

std::string refusal(const std::string& parallel, const std::string& option, const Json& value) {
  ShardingOptions options;
  options.parallel = parallel;
  sharding_schema().assign(&options, option, value);
  try {
    refuse_unused_options(options);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ShardingOptions, OfAnotherWrapperAreRefusedWithTheReason) {
  EXPECT_EQ(refusal("ddp", "sharding", "zero2"),
            "parallel: option 'sharding' means nothing to parallel = ddp (takes reduce_dtype, "
            "no_sync, bucket_mb, unit_policies); leave it out");
  for (const auto& [option, value] : std::map<std::string, Json>{{"wrap", "none"},
                                                                 {"backward_prefetch", "post"},
                                                                 {"forward_prefetch", false},
                                                                 {"limit_all_gathers", false},
                                                                 {"min_num_params", 5},
                                                                 {"cpu_offload", true}}) {
    EXPECT_THAT(refusal("ddp", option, value), HasSubstr("means nothing to parallel = ddp"));
    EXPECT_THAT(refusal("none", option, value), HasSubstr("means nothing to parallel = none"));
    EXPECT_EQ(refusal("fsdp", option, value), "no error");
  }
  EXPECT_THAT(refusal("fsdp", "bucket_mb", 1), HasSubstr("means nothing to parallel = fsdp"));
  EXPECT_THAT(refusal("none", "no_sync", true), HasSubstr("(takes nothing of the kind)"));
}

TEST(ShardingOptions, HaveAnEffectUnderTheirOwnWrappers) {
  for (const char* option : {"sharding", "wrap", "cpu_offload", "keep_frozen"}) {
    EXPECT_TRUE(has_effect("fsdp", option)) << option;
    EXPECT_FALSE(has_effect("ddp", option) || has_effect("none", option)) << option;
  }
  EXPECT_TRUE(has_effect("ddp", "bucket_mb"));
  EXPECT_FALSE(has_effect("fsdp", "bucket_mb"));
  EXPECT_TRUE(has_effect("ddp", "no_sync") && has_effect("fsdp", "no_sync"));
  EXPECT_FALSE(has_effect("none", "no_sync"));
  EXPECT_TRUE(has_effect("none", "batch_size")) << "of no wrapper";
}

TEST(ShardingOptions, DefaultsAndWhatEveryWrapperTakesPass) {
  EXPECT_EQ(refusal("ddp", "sharding", "zero3"), "no error");
  EXPECT_EQ(refusal("ddp", "bucket_mb", 1), "no error");
  EXPECT_EQ(refusal("none", "norm_reduce", "sum"), "no error");
  EXPECT_EQ(refusal("none", "world", "fake:2"), "no error");
}

TEST(ShardingOptions, AreLookedAtBeforeAnExperimentRunsAndEffectiveTablesPass) {
  const Json wrong = {{"model", "linear-tiny"}, {"parallel", "ddp"}, {"sharding", "zero2"}};
  EXPECT_THROW(experiment::resolve_experiment_table(wrong), UsageError);
  for (const char* parallel : {"none", "ddp", "fsdp"}) {
    const Json asked = {{"model", "dit-tiny"}, {"parallel", parallel}, {"seq_length", 9}};
    const Json effective = experiment::resolve_experiment_table(asked);
    EXPECT_EQ(experiment::resolve_experiment_table(effective), effective);
  }
}

}  // namespace
}  // namespace moonshard::sharding
