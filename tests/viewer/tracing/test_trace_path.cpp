// The critical path as the trace panel gets it: on the lanes that are drawn, without holes.
#include <gtest/gtest.h>

#include <algorithm>

#include "viewer/tracing/trace.h"
#include "viewer/tracing/trace_path.h"

namespace moonshard::viewer {
namespace {

const std::string kTrace =
    std::string(MOONSHARD_SOURCE_DIR) +
    "/examples/results/bench_gpu/points/9e5caf5727bf31b7/trace.rank0.json.gz";

TEST(TracePath, LiesOnLanesThatAreDrawn) {
  const TracePath path = read_path(kTrace);
  const Trace trace = read_trace({kTrace});
  ASSERT_FALSE(path.lanes.empty());
  for (const std::string& key : path.lanes)
    EXPECT_EQ(std::ranges::count(trace.lanes, key, &TraceLane::key), 1) << key;
  // The path's clock is the file's; a lane says where the axis begins.
  const double origin = trace.lanes.front().origin_us;
  EXPECT_GE(path.begin_us - origin, 0);
  EXPECT_LE(path.end_us - origin, trace.length_us + 1);
}

TEST(TracePath, HasNoHolesAndSumsUp) {
  const TracePath path = read_path(kTrace);
  double at = path.begin_us;
  for (const TracePathPiece& piece : path.pieces) {
    EXPECT_NEAR(piece.start_us, at, 1e-3);
    at = piece.end_us;
  }
  EXPECT_NEAR(at, path.end_us, 1e-3);
  double sum = 0;
  for (const TracePathSum& kind : path.kinds) sum += kind.us;
  EXPECT_NEAR(sum, path.end_us - path.begin_us, 1);
}

TEST(TracePath, ForecastsAreNoLongerThanTheStep) {
  const TracePath path = read_path(kTrace);
  ASSERT_FALSE(path.forecasts.empty());
  for (const TraceForecast& forecast : path.forecasts)
    EXPECT_LE(forecast.us, path.end_us - path.begin_us + 1) << forecast.change;
}

}  // namespace
}  // namespace moonshard::viewer
