// One sample more or less moves a clipped sum by at most C: in every wrapper of one process, style
// of clipping, engine and reduce_dtype; and what breaks that is found. Real ranks are
// tests/runtime/sharding/neighbour_spec.lua and the verify_N_ranks tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "runtime/verify/faults.h"
#include "runtime/verify/verify.h"

namespace moonshard::verify {
namespace {

const std::set<std::string> kClippingEngines = {
    "materialize", "ghost", "flash", "bookkeeping", "flash_bookkeeping", "auto"};

struct Outcome {
  size_t cells = 0;
  std::set<std::string> failed, layers;
};

Outcome outcome_of(const char* options, const sharding::ShardingOptions& sharding = {},
                   std::shared_ptr<privacy::StepHooks> hooks = nullptr,
                   const char* model = "linear-tiny") {
  VerifyOptions wanted;
  wanted.model = model;
  wanted.options = options;
  wanted.dtype = "float64";
  wanted.device = "cpu";
  wanted.sharding = sharding;
  wanted.hooks = std::move(hooks);
  Outcome outcome;
  for (const Cell& cell : verify(wanted)) {
    ++outcome.cells;
    outcome.layers.insert(cell.layer);
    if (!cell.ok) outcome.failed.insert(cell.engine);
  }
  return outcome;
}

class NeighbourStyles : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Styles, NeighbourStyles,
                         testing::Values("neighbour", "neighbour+accumulation",
                                         "neighbour+per_layer", "neighbour+groups",
                                         "neighbour+padded", "neighbour+automatic",
                                         "neighbour+adaptive"),
                         [](const auto& test) {
                           std::string name = test.param;
                           std::replace(name.begin(), name.end(), '+', '_');
                           return name;
                         });

TEST_P(NeighbourStyles, StayWithinTheBoundInEveryWrapper) {
  EXPECT_EQ(outcome_of(GetParam()).failed, std::set<std::string>());
  sharding::ShardingOptions sharding;
  for (const char* wrapper : {"ddp", "zero3", "zero2", "zero2_replicated"}) {
    const bool is_ddp = std::string(wrapper) == "ddp";
    sharding.parallel = is_ddp ? "ddp" : "fsdp";
    sharding.sharding = is_ddp ? "zero3" : wrapper;
    const Outcome outcome = outcome_of(GetParam(), sharding);
    EXPECT_EQ(outcome.failed, std::set<std::string>()) << wrapper;
    const size_t dtypes = std::string(GetParam()) == "neighbour" ? 4 : 1;  // reduce_dtypes
    EXPECT_EQ(outcome.layers.size(), dtypes);
    EXPECT_EQ(outcome.cells, dtypes * kClippingEngines.size());
  }
}

TEST(NeighbourFaults, AreFound) {
  const auto failed = [](const char* options, Fault fault, const char* model = "linear-tiny") {
    return outcome_of(options, {}, make_fault(fault), model).failed;
  };
  EXPECT_EQ(failed("neighbour", Fault::NoClipping), kClippingEngines);
  EXPECT_EQ(failed("neighbour", Fault::ShortNorm), kClippingEngines);
  EXPECT_EQ(failed("neighbour", Fault::NoBiasTerm), kClippingEngines);
  EXPECT_EQ(failed("neighbour+accumulation", Fault::MicroStepNorm), kClippingEngines);
  EXPECT_EQ(failed("neighbour+per_layer", Fault::ClippingPerLayer), kClippingEngines);
  EXPECT_EQ(failed("neighbour+adaptive", Fault::ShortNorm), kClippingEngines);
  EXPECT_EQ(failed("neighbour+automatic", Fault::ShortNorm), kClippingEngines);
  EXPECT_EQ(failed("neighbour", Fault::NoCrossTerm, "llama3.2-tiny"), kClippingEngines);
}

}  // namespace
}  // namespace moonshard::verify
