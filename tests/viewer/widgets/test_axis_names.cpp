// How points, axes and groups of metrics are called: the same words in every panel.
#include <gtest/gtest.h>

#include "viewer/widgets/axis_names.h"
#include "viewer/widgets/metric_groups.h"

namespace moonshard::viewer {
namespace {

class AxisNames : public ::testing::Test {
 protected:
  void SetUp() override {
    run_.axes = {"mode", "seq_length", "compile", "wrap", "lr"};
    RunBuilder builder(run_);
    builder.add_point({"p", "ok", ""});
    builder.set(run_.options, 0, "mode", std::string_view("ghost"));
    builder.set(run_.options, 0, "seq_length", 16.0);
    builder.set(run_.options, 0, "wrap", std::string_view("block"));
    builder.set(run_.options, 0, "lr", 0.5);
    builder.finish();
  }
  RunData run_;
};

TEST_F(AxisNames, ValuesHaveTheWordsOfTheFigures) {
  EXPECT_EQ(axis_words(run_, 0), "ghost, 16 tokens, block, lr 0.5");
  EXPECT_EQ(axis_words(run_, 0, {"mode", "lr"}), "16 tokens, block");
  EXPECT_EQ(axis_word(run_, "seq_length", {Value::Kind::Number, 0, 16}, true), "16");
  EXPECT_EQ(axis_title("seq_length"), "sequence length");
  EXPECT_EQ(axis_unit("seq_length"), "tokens");
  EXPECT_EQ(axis_title("warmup_steps"), "warmup steps");
  EXPECT_EQ(axis_unit("warmup_steps"), "");
}

TEST_F(AxisNames, ASwitchIsNamedOnlyWhereItIsOn) {
  EXPECT_EQ(axis_word(run_, "cpu_offload", {Value::Kind::Bool, 0, 1}, false), "cpu offload");
  EXPECT_EQ(axis_word(run_, "cpu_offload", {Value::Kind::Bool, 0, 0}, false), "");
}

// Two models, each with its own batch: the batch follows from the model, as in the scripts'
// figures.
TEST(TellingAxes, LeaveOutWhatFollowsFromTheModel) {
  RunData run;
  run.axes = {"model", "batch_size", "mode"};
  RunBuilder builder(run);
  size_t place = 0;
  for (const std::string_view model : {"llama", "dit"}) {
    for (const std::string_view mode : {"none", "ghost"}) {
      builder.add_point({std::string(model) + std::string(mode), "ok", ""});
      builder.set(run.options, place, "model", model);
      builder.set(run.options, place, "batch_size", model == "dit" ? 32.0 : 2.0);
      builder.set(run.options, place, "mode", mode);
      ++place;
    }
  }
  builder.finish();
  EXPECT_EQ(telling_axes(run, {0, 1, 2, 3}), (std::vector<std::string>{"model", "mode"}));
}

TEST(TellingAxes, NamesOfManyWordsLeaveOutUsualValues) {
  RunData run;
  run.axes = {"model", "parallel", "sharding", "wrap", "grad_accum", "world"};
  RunBuilder builder(run);
  const auto add = [&](size_t place, std::string_view parallel, std::string_view wrap, double accum,
                       std::string_view world) {
    builder.add_point({"p" + std::to_string(place), "ok", ""});
    builder.set(run.options, place, "model", std::string_view("llama"));
    builder.set(run.options, place, "parallel", parallel);
    builder.set(run.options, place, "sharding", std::string_view("zero3"));
    builder.set(run.options, place, "wrap", wrap);
    builder.set(run.options, place, "grad_accum", accum);
    builder.set(run.options, place, "world", world);
  };
  add(0, "fsdp", "module", 1, "auto");
  add(1, "fsdp", "none", 2, "fake:2");
  add(2, "ddp", "module", 1, "auto");
  builder.finish();
  EXPECT_EQ(words_of_axes(run, 0, run.axes, false), "llama, zero3");
  EXPECT_EQ(words_of_axes(run, 1, run.axes, false), "llama, zero3, no wrap, accum 2, fake:2");
  EXPECT_EQ(words_of_axes(run, 2, run.axes, false), "llama, ddp");
  EXPECT_EQ(words_of_axes(run, 0, {"wrap", "grad_accum"}, false), "module, accum 1");
}

// A single rank shards nothing: how it would is no part of its name; that it is not wrapped is.
TEST(TellingAxes, NamesOfManyWordsLeaveOutWhatMeansNothingToOneRank) {
  RunData run;
  run.axes = {"model", "parallel",  "sharding", "backward_prefetch", "limit_all_gathers",
              "world", "batch_size"};
  RunBuilder builder(run);
  const auto add = [&](std::string_view parallel, std::string_view world, bool limit) {
    const size_t place = builder.add_point({"p" + std::to_string(run.points.size()), "ok", ""});
    builder.set(run.options, place, "model", std::string_view("llama"));
    builder.set(run.options, place, "parallel", parallel);
    builder.set(run.options, place, "sharding", std::string_view("zero3"));
    builder.set(run.options, place, "backward_prefetch", std::string_view("pre"));
    builder.set(run.options, place, "limit_all_gathers", limit);
    builder.set(run.options, place, "world", world);
    builder.set(run.options, place, "nproc", 1.0);
    builder.set(run.options, place, "batch_size", 4.0);
  };
  add("fsdp", "auto", true);
  add("none", "auto", true);
  add("fsdp", "fake:2", true);
  add("fsdp", "fake:2", false);
  builder.finish();
  const auto words = words_of_points(run, {0, 1, 2, 3}, run.axes, false);
  EXPECT_EQ(words[0], "llama, batch 4");
  EXPECT_EQ(words[1], "llama, unwrapped, batch 4");
  EXPECT_EQ(words[2], "llama, zero3, fake:2, batch 4");
  EXPECT_EQ(words[3], "llama, zero3, no limit all gathers, fake:2, batch 4");
}

// Words that come out alike are told apart by what was left out of them.
TEST(TellingAxes, NamesThatWouldBeAlikeNameTheDifference) {
  RunData run;
  run.axes = {"mode", "cpu_offload"};
  RunBuilder builder(run);
  for (const bool offload : {false, true}) {
    const size_t place = builder.add_point({offload ? "b" : "a", "ok", ""});
    builder.set(run.options, place, "mode", std::string_view("none"));
    builder.set(run.options, place, "parallel", std::string_view("none"));
    builder.set(run.options, place, "cpu_offload", offload);
  }
  builder.finish();
  EXPECT_EQ(words_of_points(run, {0, 1}, run.axes, false),
            (std::vector<std::string>{"none, cpu offload no", "none, cpu offload yes"}));
  RunData other;
  other.axes = {"forward_prefetch"};
  RunBuilder more(other);
  for (const std::string_view parallel : {"ddp", "fsdp"}) {
    const size_t place = more.add_point({std::string(parallel), "ok", ""});
    more.set(other.options, place, "parallel", parallel);
    more.set(other.options, place, "forward_prefetch", parallel == "ddp");
  }
  more.finish();
  EXPECT_EQ(words_of_points(other, {0, 1}, other.axes, false), (std::vector<std::string>{"", ""}))
      << "to ddp it means nothing";
}

// Points of different layers are no line over the length, though the length tells the layers; what
// only one engine reads, and what is another name of the place, make no other line.
TEST(TellingAxes, LinesAreOfPointsThatAgreeInAllElse) {
  RunData run;
  run.axes = {"mode", "num_layers", "memory_budget_mb", "nodes", "world"};
  RunBuilder builder(run);
  const auto add = [&](std::string_view mode, double layers, double budget, double nodes) {
    const size_t place = builder.add_point({"p" + std::to_string(run.points.size()), "ok", ""});
    builder.set(run.options, place, "mode", mode);
    builder.set(run.options, place, "num_layers", layers);
    builder.set(run.options, place, "memory_budget_mb", budget);
    builder.set(run.options, place, "nodes", nodes);
    builder.set(run.options, place, "world",
                nodes == 1 ? std::string_view("modelled:8") : "modelled:16");
  };
  add("auto", 32, 16000, 1);
  add("auto", 6, 26000, 2);
  add("none", 32, 0, 1);
  add("none", 32, 0, 2);
  builder.finish();
  EXPECT_EQ(telling_axes(run, {0, 1, 2, 3}, {"nodes"}),
            (std::vector<std::string>{"mode", "num_layers"}));
  EXPECT_EQ(telling_axes(run, {2, 3}, {"nodes"}), std::vector<std::string>());
}

TEST(MetricGroups, FiguresStandBySubjectAndOnce) {
  const std::vector<std::string> keys = {
      "comm_bytes",     "peak_memory_mb", "avg_time_ms", "tokens_per_s", "peak_memory_bytes",
      "peak_memory_gb", "clip_fraction",  "final_loss",  "comm_work_ms", "old_memory_gb"};
  std::vector<std::pair<std::string, std::vector<size_t>>> found;
  for (const MetricGroup& group : metric_groups(keys)) found.emplace_back(group.title, group.keys);
  const std::vector<std::pair<std::string, std::vector<size_t>>> expected = {
      {"Time", {2}},    {"Memory", {4, 9}}, {"Throughput and use", {3}}, {"Communication", {0, 8}},
      {"Privacy", {6}}, {"Other", {7}}};
  EXPECT_EQ(found, expected) << "peak_memory_mb and _gb say the same as _bytes";
}

}  // namespace
}  // namespace moonshard::viewer
