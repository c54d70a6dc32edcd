// Bottleneck rules on rows made by hand: each at its threshold, above and below it.
#include "runtime/analysis/bottleneck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace moonshard::analysis {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

records::Result& detail_of(Row& row) {
  auto detail = std::make_shared<records::Result>();
  records::Result& made = *detail;
  row.detail = std::move(detail);
  return made;
}

records::Named<records::Statistics> phase_ms(const std::string& name, double median) {
  records::Named<records::Statistics> phase{name};
  phase.value.median = median;
  return phase;
}

Row timed_row() {
  Row row;
  row.label = "flash";
  row.status = "ok";
  row.metrics.median_time_ms = 100;
  row.metrics.peak_memory_bytes = 100 * kMiB;
  return row;
}

std::vector<std::string> causes(const Row& row, const Thresholds& thresholds = {}) {
  std::vector<std::string> names;
  for (const Finding& finding : find_bottlenecks({{}, {}, {row}}, thresholds).findings)
    names.push_back(finding.name);
  return names;
}

TEST(AnalysisBottleneck, NothingMeasuredIsNoEvidence) {
  Row bare;
  bare.status = "ok";
  EXPECT_THAT(causes(bare), IsEmpty());
  EXPECT_THAT(causes(timed_row()), IsEmpty());
  EXPECT_THAT(find_bottlenecks({}).notes,
              ElementsAre("no layer was timed; profile = layers does that"));
}

TEST(AnalysisBottleneck, SharesCountFromTheirThresholdOn) {
  Row row = timed_row();
  row.metrics.data_share_percent = 10;
  EXPECT_THAT(causes(row), ElementsAre("data"));
  row.metrics.data_share_percent = 9.9;
  EXPECT_THAT(causes(row), IsEmpty());
  Thresholds thresholds;
  thresholds.data_percent = 5;
  EXPECT_THAT(causes(row, thresholds), ElementsAre("data"));
  row = timed_row();
  detail_of(row).time.phases_ms = {phase_ms("second_backward", 25), phase_ms("norm_reduce", 5)};
  EXPECT_THAT(causes(row), ElementsAre("norm_reduce", "second_backward"));
  row.metrics.median_time_ms = 0;
  EXPECT_THAT(causes(row), IsEmpty()) << "no share of a step without a time";
}

TEST(AnalysisBottleneck, ABusyGpuHidesCommunicationAndAnIdleOneIsNamed) {
  Row row = timed_row();
  row.metrics.comm_share_percent = 35;
  EXPECT_THAT(causes(row), ElementsAre("communication"));
  row.metrics.gpu_utilization_percent = 70;
  EXPECT_THAT(causes(row), IsEmpty());
  row.metrics.gpu_utilization_percent = 69;
  EXPECT_THAT(causes(row), ElementsAre("communication")) << "then it is not idle for no reason";
  row.metrics.comm_share_percent = 3;
  EXPECT_THAT(causes(row), ElementsAre("idle"));
}

TEST(AnalysisBottleneck, MemoryThatClimbsThroughBackward) {
  Row row = timed_row();
  records::MemoryTimeline& timeline = detail_of(row).memory.timeline;
  for (const char* phase : {"forward", "backward", "backward"}) timeline.phase.add(phase);
  timeline.total = {0, 20 * kMiB, 40 * kMiB};
  row.metrics.engine_kept_bytes = 30 * kMiB;
  const auto findings = find_bottlenecks({{}, {}, {row}}).findings;
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].evidence[0].text,
            "the engine keeps 30.0 MiB, 30 % of the peak, memory rises by 20.0 MiB through "
            "backward");
}

TEST(AnalysisBottleneck, ALayerMustBeFarAboveTheMedianAndAPartOfAll) {
  Row row = timed_row();
  records::Result& detail = detail_of(row);
  detail.layers = {{"a", 1, "linear"}, {"head", 3, "linear"}, {"b", 1, ""}};
  EXPECT_THAT(causes(row), ElementsAre("layer"));
  detail.layers[1].norm_ms = 2.9;
  EXPECT_THAT(causes(row), IsEmpty());
  detail.layers = {{"a", 1, "linear"}, {"head", 30, "linear"}};
  EXPECT_THAT(causes(row), ElementsAre("norms")) << "two layers have no median to speak of";
}

TEST(AnalysisBottleneck, CausesWithTheMostEvidenceComeFirst) {
  Row data = timed_row(), both = timed_row();
  data.metrics.data_share_percent = both.metrics.data_share_percent = 20;
  detail_of(both).time.phases_ms = {phase_ms("second_backward", 50)};
  Row failed = both;
  failed.status = "oom";
  const auto findings = find_bottlenecks({{}, {}, {data, both, failed}}).findings;
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].name, "data");
  EXPECT_EQ(findings[0].evidence.size(), 2u);
  EXPECT_EQ(findings[1].evidence.size(), 1u);
}

}  // namespace
}  // namespace moonshard::analysis
