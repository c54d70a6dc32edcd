// Filter expressions: what they take, what they refuse and where, and that the Lua they turn into
// says the same.
#include "viewer/data/filter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "tests/support/temporary_folder.h"

namespace moonshard::viewer {
namespace {

using Points = std::vector<size_t>;

class FilterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    run_.name = "Night sweep";
    run_.axes = {"mode", "seq_length"};
    RunBuilder builder(run_);
    add(builder, "p0", "ok", "none", 512, 100, 8.0);
    add(builder, "p1", "ok", "ghost", 512, 200, 12.5);
    add(builder, "p2", "ok", "ghost", 1024, 9000, 30);
    add(builder, "p3", "oom", "flash_bookkeeping", 4096, NAN, NAN);
    add(builder, "p4", "ok", "flash", 4000, 20000, 100);
    builder.set(run_.metrics, 4, "epsilon", 2.0);
    builder.set(run_.metrics, 1, "epsilon", NAN);
    builder.set(run_.options, 2, "deterministic", true);
    builder.finish();
    run_.points[3].error = "out of memory in backward";
    keys_ = filter_keys({&run_});
  }

  void add(RunBuilder& builder, const char* id, const char* status, const char* mode, double length,
           double mebibytes, double ms) {
    const size_t point = builder.add_point({id, status, ""});
    builder.set(run_.options, point, "mode", std::string_view(mode));
    builder.set(run_.options, point, "seq_length", length);
    builder.set(run_.options, point, "model", std::string_view("llama3-8b"));
    builder.set(run_.options, point, "checkpointing", std::string_view("none"));
    if (std::isnan(ms)) return;
    builder.set(run_.metrics, point, "peak_memory_bytes", mebibytes * 1048576);
    builder.set(run_.metrics, point, "peak_memory_mb", mebibytes);
    builder.set(run_.metrics, point, "median_time_ms", ms);
    builder.set(run_.metrics, point, "end_to_end_s", ms / 10);
    builder.set(run_.metrics, point, "tokens_per_s", 1e6 / ms);
  }

  Points taken(const std::string& text) const {
    const ParsedFilter parsed = parse_filter(text, keys_);
    EXPECT_FALSE(parsed.error) << text << ": " << parsed.error->message;
    const FilterOnRun filter(parsed.filter, run_);
    Points points;
    for (size_t i = 0; i < run_.points.size(); ++i)
      if (filter.matches(i)) points.push_back(i);
    return points;
  }

  FilterError error(const std::string& text) const {
    const ParsedFilter parsed = parse_filter(text, keys_);
    EXPECT_TRUE(parsed.error) << text;
    EXPECT_TRUE(parsed.filter.nodes.empty());
    return parsed.error.value_or(FilterError{});
  }

  RunData run_;
  FilterKeys keys_;
};

TEST_F(FilterTest, WordsAreFoundInStatusIdErrorRunAndSweptOptionsWhateverTheCase) {
  EXPECT_EQ(taken(""), (Points{0, 1, 2, 3, 4}));
  EXPECT_EQ(taken("   "), (Points{0, 1, 2, 3, 4}));
  EXPECT_EQ(taken("GHOST"), (Points{1, 2}));
  EXPECT_EQ(taken("ghost 1024"), (Points{2}));
  EXPECT_EQ(taken("oom"), (Points{3}));
  EXPECT_EQ(taken("backward"), (Points{3}));
  EXPECT_EQ(taken("p4"), (Points{4}));
  EXPECT_EQ(taken("night"), (Points{0, 1, 2, 3, 4}));
  EXPECT_EQ(taken("f*book"), (Points{3}));
  EXPECT_EQ(taken("'out of'"), (Points{3}));
  // Every point has checkpointing = none, which is not swept: the word is about the mode.
  EXPECT_EQ(taken("none"), (Points{0}));
  EXPECT_TRUE(taken("nothing-like-it").empty());
}

TEST_F(FilterTest, ComparesOptionsMetricsAndHeads) {
  EXPECT_EQ(taken("mode = ghost"), (Points{1, 2}));
  EXPECT_EQ(taken("mode=ghost"), (Points{1, 2}));
  EXPECT_EQ(taken("mode == Ghost"), (Points{1, 2}));
  EXPECT_EQ(taken("mode != ghost"), (Points{0, 3, 4}));
  EXPECT_EQ(taken("mode ~= ghost"), (Points{0, 3, 4}));
  EXPECT_EQ(taken("mode = flash*"), (Points{3, 4}));
  EXPECT_EQ(taken("mode = flas?"), (Points{4}));
  EXPECT_EQ(taken("seq_length >= 1024"), (Points{2, 3, 4}));
  EXPECT_EQ(taken("seq_length = 512"), (Points{0, 1}));
  EXPECT_EQ(taken("seq_length = 40*"), (Points{3, 4}));
  EXPECT_EQ(taken("status = oom"), (Points{3}));
  EXPECT_EQ(taken("id = p?"), (Points{0, 1, 2, 3, 4}));
  EXPECT_EQ(taken("error = *backward*"), (Points{3}));
  EXPECT_EQ(taken("run = night*"), (Points{0, 1, 2, 3, 4}));
  EXPECT_TRUE(taken("run = day*").empty());
  EXPECT_EQ(taken("model = llama3-8b").size(), 5u);
  EXPECT_EQ(taken("deterministic = true"), (Points{2}));
  EXPECT_EQ(taken("deterministic = yes"), (Points{2})) << "as the table shows it";
}

TEST_F(FilterTest, UnitsAreTurnedIntoTheKeysOwn) {
  EXPECT_EQ(taken("peak_memory_bytes < 1GiB"), (Points{0, 1}));
  EXPECT_EQ(taken("peak_memory_bytes < 10 GiB"), (Points{0, 1, 2}));
  EXPECT_EQ(taken("peak_memory_bytes < 10gib ghost"), (Points{1, 2}));
  EXPECT_EQ(taken("peak_memory_mb >= 1GiB"), (Points{2, 4})) << "the key is in MiB";
  EXPECT_EQ(taken("peak_memory_bytes = 100MiB"), (Points{0}));
  EXPECT_TRUE(taken("peak_memory_bytes = 100MB").empty()) << "a MB is a million";
  EXPECT_EQ(taken("median_time_ms > 0.02s"), (Points{2, 4}));
  EXPECT_EQ(taken("median_time_ms <= 12500us"), (Points{0, 1}));
  EXPECT_EQ(taken("end_to_end_s < 900ms"), (Points{0}));
  EXPECT_EQ(taken("seq_length = 4k"), (Points{4}));
  EXPECT_EQ(taken("tokens_per_s > 0.05M"), (Points{0, 1}));
}

TEST_F(FilterTest, AbsentFiguresAreNeitherAboveNorBelow) {
  EXPECT_EQ(taken("peak_memory_bytes < 1e300"), (Points{0, 1, 2, 4}));
  EXPECT_EQ(taken("not peak_memory_bytes < 1e300"), (Points{3}));
  EXPECT_EQ(taken("has(peak_memory_bytes)"), (Points{0, 1, 2, 4}));
  EXPECT_EQ(taken("has(epsilon)"), (Points{4})) << "NaN is none";
  EXPECT_EQ(taken("has(error)"), (Points{3}));
  EXPECT_EQ(taken("not has( mode )"), Points{});
}

TEST_F(FilterTest, AndBindsStrongerThanOrAndTermsSideBySideMeanAnd) {
  EXPECT_EQ(taken("mode = none or mode = ghost and seq_length = 1024"), (Points{0, 2}));
  EXPECT_EQ(taken("(mode = none or mode = ghost) and seq_length = 512"), (Points{0, 1}));
  EXPECT_EQ(taken("(mode=none or mode=ghost)seq_length=512"), (Points{0, 1}));
  EXPECT_EQ(taken("not (mode = none or mode = ghost)"), (Points{3, 4}));
  EXPECT_EQ(taken("NOT not mode = none"), (Points{0}));
  EXPECT_EQ(taken("ghost or oom"), (Points{1, 2, 3}));
  EXPECT_EQ(taken("\"or\""), (Points{3})) << "in quotes a word like others: out of memORy";
}

TEST_F(FilterTest, SaysWhatIsWrongAndWhere) {
  const FilterError unknown = error("ok and mdoe = ghost");
  EXPECT_EQ(unknown.message,
            "filter: expected an option or a metric before '=', got 'mdoe'; did you mean 'mode'?");
  EXPECT_EQ(unknown.begin, 7u);
  EXPECT_EQ(unknown.end, 11u);
  EXPECT_THAT(error("has(peak_memory)").message, testing::HasSubstr("did you mean 'peak_memory_"));
  EXPECT_EQ(error("mode =").message, "filter: expected a value after 'mode =', got 'the end'");
  EXPECT_EQ(error("mode = ").begin, 7u);
  EXPECT_THAT(error("seq_length < ghost").message,
              testing::HasSubstr("expected a number after 'seq_length <', got 'ghost'"));
  EXPECT_THAT(error("seq_length < 3ms").message,
              testing::HasSubstr("without such a unit for seq_length, got '3ms'"));
  EXPECT_THAT(error("median_time_ms < 3GiB").message, testing::HasSubstr("in ms or the like"));
  EXPECT_THAT(error("(ghost").message, testing::HasSubstr("expected ')' for this '('"));
  EXPECT_EQ(error("a (ghost").begin, 2u);
  EXPECT_THAT(error("ghost)").message, testing::HasSubstr("expected '(' before ')'"));
  EXPECT_THAT(error("ghost and").message, testing::HasSubstr("expected a word or a comparison"));
  EXPECT_THAT(error("or ghost").message, testing::HasSubstr("expected a word or a comparison"));
  EXPECT_THAT(error("= 3").message, testing::HasSubstr("before '=', got none"));
  EXPECT_THAT(error("!ghost").message, testing::HasSubstr("'not' turns a term around"));
  EXPECT_THAT(error("'ghost").message, testing::HasSubstr("expected a closing '"));
  EXPECT_THAT(error("has(mode").message, testing::HasSubstr("expected ')' after has(mode"));
  EXPECT_THAT(error("()").message, testing::HasSubstr("got ')'"));
}

TEST_F(FilterTest, LongAndDeepTextIsRefusedNotFollowed) {
  EXPECT_THAT(error(std::string(100000, '(')).message, testing::HasSubstr("nested parentheses"));
  std::string words;
  for (int i = 0; i < 100000; ++i) words += "a ";
  EXPECT_THAT(error(words).message, testing::HasSubstr("at most 1000 terms"));
  EXPECT_TRUE(taken(std::string(5000, '*') + "x" + std::string(5000, '?')).empty());
  std::string nots;
  for (int i = 0; i < 99999; ++i) nots += "not ";
  EXPECT_EQ(taken(nots + "oom").size(), 4u);
}

TEST_F(FilterTest, ARunWithoutTheKeyHasNoPointForIt) {
  RunData other;
  other.name = "other";
  RunBuilder builder(other);
  builder.add_point({"q0", "ok", ""});
  builder.finish();
  const auto matches = [&](const char* text) {
    const ParsedFilter parsed = parse_filter(text, filter_keys({&run_, &other}));
    return FilterOnRun(parsed.filter, other).matches(0);
  };
  EXPECT_FALSE(matches("mode = ghost"));
  EXPECT_TRUE(matches("mode != ghost"));
  EXPECT_FALSE(matches("seq_length > 0"));
  EXPECT_FALSE(matches("has(seq_length)"));
  EXPECT_TRUE(matches("run = other"));
}

std::string lua_value(const RunData& run, const Value& value) {
  switch (value.kind) {
    case Value::Kind::None:
      return "nil";
    case Value::Kind::Bool:
      return value.number != 0 ? "true" : "false";
    case Value::Kind::Text:
      return "\"" + run.text_of(value) + "\"";
    case Value::Kind::Number:
      return std::isnan(value.number) ? "0/0" : plain_number(value.number);
  }
  return "nil";
}

std::string lua_points(const RunData& run) {
  std::string text = "local points = {\n";
  for (size_t i = 0; i < run.points.size(); ++i) {
    text += "{ run = \"" + run.name + "\", id = \"" + run.points[i].id + "\", status = \"" +
            run.points[i].status + "\", error = \"" + run.points[i].error + "\"";
    for (const ValueTable* table : {&run.options, &run.metrics}) {
      text += table == &run.options ? ", options = {" : ", metrics = {";
      for (size_t key = 0; key < table->keys.size(); ++key)
        text += table->keys[key] + " = " + lua_value(run, table->at(i, key)) + ", ";
      text += "}";
    }
    text += " },\n";
  }
  return text + "}\n";
}

TEST_F(FilterTest, AsLuaItTakesTheSamePoints) {
  if (std::system("luajit -v > /dev/null 2>&1") != 0) GTEST_SKIP() << "luajit is not installed";
  const TemporaryFolder folder;
  for (const char* text : {"",
                           "ghost",
                           "GHOST 1024",
                           "none",
                           "f*book",
                           "'out of'",
                           "mode = ghost",
                           "mode != ghost",
                           "mode = flash*",
                           "seq_length >= 1024",
                           "seq_length = 512",
                           "seq_length = 40*",
                           "status = oom",
                           "not status = oom",
                           "run = night*",
                           "error = *",
                           "deterministic = true",
                           "deterministic = yes",
                           "deterministic != no",
                           "peak_memory_bytes < 10GiB",
                           "not peak_memory_bytes < 10GiB",
                           "has(epsilon)",
                           "not has(epsilon)",
                           "has(error)",
                           "seq_length != 4k",
                           "model = llama3-8b",
                           "model = 8",
                           "(mode = none or mode = ghost) and not seq_length > 512",
                           "\"a\\\\b\"",
                           "100% [x] ^ $ -"}) {
    const ParsedFilter parsed = parse_filter(text, keys_);
    ASSERT_FALSE(parsed.error) << parsed.error->message;
    const auto script = folder.path() / "filter.lua", result = folder.path() / "result.txt";
    std::ofstream(script) << lua_points(run_) << "local function takes(point)\n"
                          << to_lua(parsed.filter) << "end\n"
                          << "for i, point in ipairs(points) do if takes(point) then "
                             "io.write(i - 1, ' ') end end\n";
    const std::string command = "luajit '" + script.string() + "' > '" + result.string() + "'";
    ASSERT_EQ(std::system(command.c_str()), 0) << text << "\n" << to_lua(parsed.filter);
    Points points;
    std::ifstream file(result);
    for (size_t point; file >> point;) points.push_back(point);
    EXPECT_EQ(points, taken(text)) << text << "\n" << to_lua(parsed.filter);
  }
}

}  // namespace
}  // namespace moonshard::viewer
