// Policies of groups of units: what they say, what a wrapper cannot follow, and that training with
// them is the same training. What real ranks compute is `moonshard verify --nproc 4 --replicate 2
// --options unit_policies`.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/models/registry.h"
#include "runtime/sharding/wrap_policy.h"
#include "runtime/train/trainer.h"
#include "tests/support/small_llama.h"

namespace moonshard::sharding {
namespace {

using testing::HasSubstr;

ShardingOptions with_policies(const std::string& policies, const std::string& sharding = "zero3",
                              const std::string& world = "auto") {
  ShardingOptions options;
  options.parallel = "fsdp";
  options.sharding = sharding;
  options.world = world;
  options.link = "instant";
  options.unit_policies = policies;
  return options;
}

struct PolicyCase {
  std::string engine = "none", optimizer = "adamw";
  int64_t grad_accum = 1;
  double clip_global_norm = 0;
};

SmallTraining make_policy_run(const models::ModelOptions& options, const ShardingOptions& sharding,
                              const PolicyCase& way = {}) {
  privacy::ClipOptions clip;
  clip.mode = way.engine;
  clip.noise_multiplier = 0.5;
  optim::OptimizerOptions optimizer;
  optimizer.optimizer = way.optimizer;
  train::StepOptions step;
  step.grad_accum = way.grad_accum;
  step.clip_global_norm = way.clip_global_norm;
  return small_training(options, sharding, clip, optimizer, step);
}

void expect_same_training(const models::ModelOptions& model, const ShardingOptions& one,
                          const ShardingOptions& other, const PolicyCase& way) {
  const std::string where = fmt::format("{} {} '{}' root {} {} accum {} bound {}", other.sharding,
                                        other.world, other.unit_policies, other.reshard_root,
                                        way.engine, way.grad_accum, way.clip_global_norm);
  const SmallTraining a = make_policy_run(model, one, way), b = make_policy_run(model, other, way);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(a.trainer->step().loss, b.trainer->step().loss) << where;
  EXPECT_EQ(b.trainer->parallel().memory().gradients_now, 0) << where;
  EXPECT_EQ(b.trainer->parallel().memory().in_flight, 0) << where;
  a.trainer->gather();
  b.trainer->gather();
  for (const auto& parameter : a.model->parameters())
    EXPECT_TRUE(at::equal(parameter->value, b.model->parameter(parameter->name).value))
        << where << ": " << parameter->name;
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UsageError& error) {
    return error.what();
  }
  return "no error";
}

TEST(UnitPolicies, AreReadFromATextAndFromATableAndWrittenAsTheyAreRead) {
  const std::string text =
      "model.layers.0, model.layers.1: dtype = float32, reshard = no; root: reduce_dtype = "
      "bfloat16, offload = yes";
  const auto policies = parse_unit_policies(
      " model.layers.0,model.layers.1:dtype=fp32,reshard=false;"
      " root : reduce_dtype = bf16 , offload = true ;");
  EXPECT_EQ(unit_policies_text(policies), text);
  EXPECT_EQ(unit_policies_text(parse_unit_policies(text)), text);
  const Json table = {
      {{"units", {"model.layers.0", "model.layers.1"}}, {"dtype", "float32"}, {"reshard", false}},
      {{"units", "root"}, {"reduce_dtype", "bf16"}, {"offload", true}}};
  EXPECT_EQ(unit_policies_text(unit_policies_from_json("here", table)), text);
  EXPECT_TRUE(parse_unit_policies("").empty());
}

TEST(UnitPolicies, TheFirstMatchCountsAndWhatItLeavesOutIsAsForTheRest) {
  ShardingOptions options = with_policies("", "zero3");
  options.reduce_dtype = "float32";
  const auto policies = parse_unit_policies("*.1: reshard = no; model.*: offload = yes");
  const auto of = [&](const char* unit) { return settings_of(unit, false, options, policies); };
  EXPECT_FALSE(of("model.layers.1").reshard);
  EXPECT_FALSE(of("model.layers.1").offload);
  EXPECT_TRUE(of("model.layers.2").reshard);
  EXPECT_TRUE(of("model.layers.2").offload);
  EXPECT_EQ(of("model.layers.2").reduce_dtype, "float32");
  EXPECT_EQ(of("model.layers.2").dtype, "auto");
  EXPECT_FALSE(settings_of("root", true, options, policies).reshard);
  options.reshard_root = true;
  EXPECT_TRUE(settings_of("root", true, options, policies).reshard);
}

TEST(UnitPolicies, OfAnotherFormAreRefused) {
  const auto refusal = [](const std::string& text) {
    return error_of([&] { parse_unit_policies(text); });
  };
  EXPECT_THAT(refusal("root"),
              HasSubstr("expected policies such as 'model.layers.*: reshard = no"));
  EXPECT_THAT(refusal("root"), HasSubstr("got 'root' without a colon"));
  EXPECT_THAT(refusal(": offload = yes"), HasSubstr("without names of units"));
  EXPECT_THAT(refusal("root:"), HasSubstr("got 'root:' that sets nothing"));
  EXPECT_THAT(refusal("root: offload"), HasSubstr("got 'offload' in 'root: offload'"));
  EXPECT_THAT(refusal("root: offload = 1"), HasSubstr("expected offload = yes or no, got '1'"));
  EXPECT_THAT(refusal("root: dtype = int8"),
              HasSubstr("expected dtype = auto, float32, float64 or bfloat16, got 'int8'"));
  EXPECT_THAT(refusal("root: ofload = yes"),
              HasSubstr("expected one of dtype, reduce_dtype, reshard, offload, got 'ofload'; did "
                        "you mean 'offload'?"));
  const auto of_table = [](const Json& table) {
    return error_of([&] { unit_policies_from_json("ms.fsdp: option 'policies'", table); });
  };
  EXPECT_THAT(of_table("root"),
              HasSubstr("ms.fsdp: option 'policies': expected { { units = globs"));
  EXPECT_THAT(of_table(Json::array({{{"reshard", true}}})), HasSubstr("got {\"reshard\":true}"));
  EXPECT_THAT(of_table(Json::array({{{"units", 3}, {"reshard", true}}})),
              HasSubstr("expected globs, a text or a list of them, got units = 3"));
  EXPECT_THAT(of_table(Json::array({{{"units", "root"}, {"offload", 3}}})),
              HasSubstr("got offload = 3"));
}

TEST(UnitPolicies, ThatAWrapperCannotFollowAreRefused) {
  ShardingOptions ddp = with_policies("bucket *: reduce_dtype = bfloat16");
  ddp.parallel = "ddp";
  EXPECT_EQ(error_of([&] { refuse_unused_options(ddp); }), "no error");
  for (const char* setting : {"dtype = bfloat16", "reshard = no", "offload = yes"}) {
    ddp.unit_policies = fmt::format("bucket *: {}", setting);
    EXPECT_THAT(error_of([&] { refuse_unused_options(ddp); }),
                HasSubstr("expected reduce_dtype alone under ddp"))
        << setting;
  }
  const auto whole = with_policies("root: reshard = yes", "zero2_replicated");
  EXPECT_THAT(error_of([&] { refuse_unused_options(whole); }),
              HasSubstr("expected sharding = zero2 or zero3 beside reshard, got zero2_replicated"));
  ShardingOptions root = with_policies("", "zero2_replicated");
  root.reshard_root = true;
  EXPECT_THAT(error_of([&] { refuse_unused_options(root); }),
              HasSubstr("option 'reshard_root': expected sharding = zero2 or zero3"));
  root.parallel = "ddp";
  root.sharding = "zero3";
  EXPECT_THAT(error_of([&] { refuse_unused_options(root); }),
              HasSubstr("option 'reshard_root' means nothing to parallel = ddp"));
}

TEST(UnitPolicies, AGlobThatMatchesNoUnitIsAnErrorThatListsThem) {
  const auto model = models::make_model(small_llama(true));
  EXPECT_EQ(error_of([&] { plan_units(*model, with_policies("root, embed*: offload = yes")); }),
            "parallel: option 'unit_policies': expected globs of units, got 'embed*', which "
            "matches none; the units are root, model.layers.0, model.layers.1, model.layers.2, "
            "model.layers.3");
}

TEST(UnitPolicies, TrainToTheSameDigitsWhereverUnitsAreAndHoweverLong) {
  for (const char* sharding : {"zero3", "zero2"}) {
    for (const char* world : {"auto", "fake:2", "fake:4"}) {
      for (const char* engine : {"none", "ghost", "flash_bookkeeping", "auto"}) {
        PolicyCase way;
        way.engine = engine;
        ShardingOptions plain = with_policies("", sharding, world);
        if (plain.world == "fake:4") plain.replicate = 2;
        ShardingOptions other = plain;
        other.reshard_root = true;
        expect_same_training(small_llama(true), plain, other, way);
        other.reshard_root = false;
        other.unit_policies =
            "*.1: offload = yes, reshard = no; *.2: reshard = yes; root: reshard = yes, offload = "
            "yes";
        way.grad_accum = 2;
        expect_same_training(small_llama(true), plain, other, way);
      }
    }
  }
}

TEST(UnitPolicies, AlsoWithAdaptersTiedWeightsAndOtherPrefetches) {
  for (const char* prefetch : {"pre", "post", "none"}) {
    for (const bool ahead : {true, false}) {
      for (const char* kind : {"lora", "tied", "frozen embedding", "recomputed"}) {
        const std::string changed = kind;
        models::ModelOptions model = small_llama(true);
        if (changed == "lora") model.lora_rank = 2;
        if (changed == "tied") model.tie_embeddings = "yes";
        if (changed == "frozen embedding") model.frozen = "model.embed_tokens.weight";
        if (changed == "recomputed") model.checkpointing = "block";
        ShardingOptions plain = with_policies("", "zero3", "fake:2");
        plain.backward_prefetch = prefetch;
        plain.forward_prefetch = ahead;
        plain.limit_all_gathers = ahead;
        ShardingOptions other = plain;
        other.reshard_root = true;
        other.unit_policies = "*.0, *.3: offload = yes; *.2: reshard = no";
        for (const char* engine : {"none", "ghost"})
          expect_same_training(model, plain, other, {.engine = engine});
      }
    }
  }
}

TEST(UnitPolicies, OffloadWithABoundOfTheGlobalNormTrainsToTheSameDigits) {
  for (const char* world : {"auto", "fake:2"}) {
    for (const int64_t grad_accum : {1, 2}) {
      const PolicyCase way{.grad_accum = grad_accum, .clip_global_norm = 1e-3};
      ShardingOptions plain = with_policies("", "zero3", world), all = plain, some = plain;
      all.cpu_offload = true;
      some.unit_policies = "*.1, root: offload = yes";
      expect_same_training(small_llama(true), plain, all, way);
      expect_same_training(small_llama(true), plain, some, way);
    }
  }
}

TEST(UnitPolicies, OnlyOffloadedUnitsAreUpdatedBesideTheStep) {
  const SmallTraining run = make_policy_run(
      small_llama(true), with_policies("*.1, root: offload = yes", "zero3", "fake:2"));
  EXPECT_TRUE(run.trainer->parallel().works_beside());
  const auto& updated = run.trainer->parallel().updated();
  for (size_t i = 0; i < updated.size(); ++i) {
    const bool in_block = updated[i]->name.find(".layers.") != std::string::npos;
    const bool expected = !in_block || updated[i]->name.find(".layers.1.") != std::string::npos;
    EXPECT_EQ(run.trainer->parallel().is_beside(i), expected) << updated[i]->name;
  }
}

int64_t gathers_of(const SmallTraining& run, const std::string& unit) {
  run.trainer->record_timeline(true);
  int64_t count = 0;
  for (const profile::Span& span : run.trainer->step().spans)
    count += span.name == "all_gather " + unit && span.lane != "exposed" ? 1 : 0;
  return count;
}

TEST(UnitPolicies, SayHowOftenAUnitIsGathered) {
  const auto gathers = [](const std::string& policies, const char* sharding, const char* unit) {
    return gathers_of(
        make_policy_run(small_llama(true), with_policies(policies, sharding, "fake:2")), unit);
  };
  EXPECT_EQ(gathers("", "zero3", "model.layers.1"), 2);
  EXPECT_EQ(gathers("*.1: reshard = no", "zero3", "model.layers.1"), 1);
  EXPECT_EQ(gathers("*.1: reshard = no", "zero3", "model.layers.2"), 2);
  EXPECT_EQ(gathers("", "zero2", "model.layers.1"), 1);
  EXPECT_EQ(gathers("*.1: reshard = yes", "zero2", "model.layers.1"), 2);
  // The root runs first and last: gathered for the embedding, then for the head, which backward
  // begins with, then for the embedding's backward.
  EXPECT_EQ(gathers("", "zero3", "root"), 1);
  EXPECT_EQ(gathers("root: reshard = yes", "zero3", "root"), 3);
  EXPECT_EQ(gathers("root: reshard = yes", "zero2", "root"), 3);
}

TEST(UnitPolicies, AReshardedRootIsNotHeldWhileBlocksRun) {
  models::ModelOptions model = small_llama(true);
  model.vocab_size = 3000;  // far more than the blocks
  ShardingOptions options = with_policies("", "zero3", "fake:2");
  const int64_t kept = make_policy_run(model, options).trainer->step().sharding.whole_peak;
  options.unit_policies = "root: reshard = yes";
  const int64_t released = make_policy_run(model, options).trainer->step().sharding.whole_peak;
  // The root alone is the peak now: one block is gathered beside it, not two.
  EXPECT_LT(released, kept);
}

TEST(UnitPolicies, ADtypeIsThatOfTheGatheredRowAndOfTheComputation) {
  // One rank: the same numbers as a model without a wrapper whose layers have these dtypes.
  for (const char* engine : {"none", "ghost", "flash_bookkeeping"}) {
    for (const char* kind : {"llama", "llama lora", "llama recomputed", "dit", "linear"}) {
      models::ModelOptions options = small_llama(true);
      const std::string family = kind;
      if (family == "llama lora") options.lora_rank = 2;
      if (family == "llama recomputed") options.checkpointing = "block";
      if (!family.starts_with("llama")) {
        options = {};
        options.model = family + "-tiny";
        options.device = "cpu";
      }
      options.deferred = false;
      const auto sharding = with_policies("*.1: dtype = bfloat16; *.0: dtype = float64");
      const PolicyCase way{.engine = engine, .optimizer = "sgd"};
      const SmallTraining wrapped = make_policy_run(options, sharding, way);
      const SmallTraining plain = make_policy_run(options, {}, way);
      set_compute_types(*plain.model, sharding);
      const double usual = make_policy_run(options, {}, way).trainer->step().loss;
      const double loss = wrapped.trainer->step().loss;
      EXPECT_EQ(loss, plain.trainer->step().loss) << kind << " " << engine;
      // A DiT predicts zeros at first.
      if (family != "dit") {
        EXPECT_NE(loss, usual) << kind << ": the dtypes have an effect";
      }
      EXPECT_NEAR(loss, usual, 0.02 * std::abs(usual));
      wrapped.trainer->gather();
      for (const auto& parameter : plain.model->parameters()) {
        const at::Tensor& value = wrapped.model->parameter(parameter->name).value;
        EXPECT_EQ(value.scalar_type(), at::kFloat);
        EXPECT_TRUE(at::allclose(parameter->value, value, 1e-5, 1e-6)) << parameter->name;
      }
    }
  }
}

TEST(UnitPolicies, OfAClosedTrainerAreForgotten) {
  const std::shared_ptr<models::Model> model = [] {
    models::ModelOptions options = small_llama(true);
    options.deferred = false;
    return models::make_model(options);
  }();
  {
    train::Trainer trainer({.model = model, .sharding = with_policies("root: dtype = bfloat16")});
    EXPECT_EQ(model->layers()[0]->compute_type(), at::kBFloat16);
    EXPECT_EQ(model->layers()[1]->compute_type(), at::kFloat);
    trainer.gather();
  }
  EXPECT_EQ(model->layers()[0]->compute_type(), at::kFloat);
}

TEST(UnitPolicies, GradientsOfAUnitTravelInItsDtype) {
  const auto bytes = [](const std::string& policies) {
    const SmallTraining run =
        make_policy_run(small_llama(true), with_policies(policies, "zero3", "fake:2"));
    int64_t sent = 0;
    for (const comm::Traffic& traffic : run.trainer->step().traffic)
      if (traffic.operation == "reduce_scatter") sent += traffic.bytes;
    return sent;
  };
  const int64_t all = bytes(""), half = bytes("*: reduce_dtype = bfloat16");
  EXPECT_EQ(half * 2, all);
  const int64_t one = bytes("*.1: reduce_dtype = bfloat16");
  EXPECT_GT(one, half);
  EXPECT_LT(one, all);
}

TEST(UnitPolicies, OfBucketsSayInWhichDtypeTheyTravel) {
  const auto bytes = [](const std::string& policies) {
    ShardingOptions options = with_policies(policies, "zero3", "fake:2");
    options.parallel = "ddp";
    options.bucket_mb = 0.01;
    models::ModelOptions model = small_llama(true);
    model.deferred = false;
    int64_t sent = 0;
    for (const comm::Traffic& traffic : make_policy_run(model, options).trainer->step().traffic)
      if (traffic.operation == "all_reduce") sent += traffic.bytes;
    return sent;
  };
  const int64_t all = bytes(""), one = bytes("bucket 0: reduce_dtype = bfloat16");
  EXPECT_EQ(bytes("bucket *: reduce_dtype = bfloat16") * 2, all);
  EXPECT_GT(one, all / 2);
  EXPECT_LT(one, all);
}

TEST(UnitPolicies, SumsAcrossCopiesTravelWhileTheNextUnitComputes) {
  models::ModelOptions model = small_llama(true);
  model.hidden_dim = 96;
  model.intermediate_dim = 512;
  ShardingOptions options = with_policies("", "zero3", "fake:4");
  options.replicate = 2;
  options.link = "ethernet10";
  const SmallTraining run = make_policy_run(model, options);
  comm::Traffic across, inside;
  for (const comm::Traffic& traffic : run.trainer->step().traffic) {
    if (traffic.operation == "all_reduce") across = traffic;
    if (traffic.operation == "reduce_scatter") inside = traffic;
  }
  EXPECT_EQ(inside.count, 5);
  EXPECT_EQ(across.count, 5);
  EXPECT_EQ(across.bytes * 2, inside.bytes) << "each of two ranks has half of the sums";
  run.trainer->record_timeline(true);
  const train::StepReport report = run.trainer->step();
  const auto find = [&](const std::string& name, bool exposed) {
    for (const profile::Span& span : report.spans)
      if (span.name == name && (span.lane == profile::kExposedLane) == exposed) return span;
    ADD_FAILURE() << "no span " << name;
    return profile::Span{};
  };
  // Under way while the next two units are computed.
  EXPECT_LT(find("all_reduce model.layers.3", false).begin_ms,
            find("backward model.layers.1", false).begin_ms);
  EXPECT_GT(find("all_reduce model.layers.3", true).begin_ms,
            find("backward model.layers.0", false).begin_ms);
}

}  // namespace
}  // namespace moonshard::sharding
