// Two Lua states of one process, each with moonshard in it: they share no module, no sweep, and no
// measurement, whether they take turns or run at the same time.
#include <gtest/gtest.h>

#include <lua.hpp>
#include <stdexcept>
#include <string>
#include <thread>

#include "bindings/moonshard_lua.h"

namespace {

class State {
 public:
  State() : lua_(luaL_newstate()) {
    static const bool once = (moonshard_set_prefix(MOONSHARD_BUILD_DIR), true);
    static_cast<void>(once);
    luaL_openlibs(lua_);
    lua_getglobal(lua_, "package");
    lua_getfield(lua_, -1, "preload");
    lua_pushcfunction(lua_, &luaopen_moonshard);
    lua_setfield(lua_, -2, "moonshard");
    lua_pop(lua_, 2);
    run("ms = require 'moonshard'");
  }
  ~State() { lua_close(lua_); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// The chunk's first result as text.
  std::string run(const std::string& chunk) {
    lua_settop(lua_, 0);
    if (luaL_loadstring(lua_, chunk.c_str()) != 0 || lua_pcall(lua_, 0, 1, 0) != 0)
      throw std::runtime_error(lua_tostring(lua_, -1));
    const char* text = lua_tostring(lua_, -1);
    return text != nullptr ? text : luaL_typename(lua_, -1);
  }

  bool has_in_registry(const char* name) {
    lua_getfield(lua_, LUA_REGISTRYINDEX, name);
    const bool there = !lua_isnil(lua_, -1);
    lua_pop(lua_, 1);
    return there;
  }

 private:
  lua_State* lua_;
};

// An experiment, and what its record says of its own steps alone.
std::string experiment(const std::string& options) {
  return "local record = ms.run { device = 'cpu', threads = 1, batch_size = 2, seq_length = 16, "
         "warmup = 1, "
         "iters = 2, profile = 'layers', " +
         options + R"lua( }
    local said = { record.status }
    for _, phase in ipairs(record.memory.phases) do said[#said + 1] = phase.phase end
    for _, row in ipairs(record.layers or {}) do said[#said + 1] = row.layer end
    for _, row in ipairs(record.memory.after_step) do
      if row.owner ~= "rest" then said[#said + 1] = row.owner .. " " .. row.bytes end
    end
    return table.concat(said, "\n"))lua";
}

const char* const kGhost = "model = 'llama3-tiny', mode = 'ghost'";
const char* const kPlain = "model = 'linear-tiny', mode = 'none', hidden_dim = 16";

TEST(TwoStates, HaveAModuleEach) {
  State one;
  {
    State two;
    one.run("ms.mine = 'one' require('moonshard.text_table').mine = 'one'");
    EXPECT_EQ(two.run("return rawget(ms, 'mine')"), "nil");
    EXPECT_EQ(two.run("return require('moonshard.text_table').mine"), "nil");
    EXPECT_EQ(two.run("return ms.ones({ 2, 3 }).numel"), "6");
  }
  EXPECT_EQ(one.run("return ms.mine"), "one");
  EXPECT_EQ(one.run("return ms.ones({ 2 }):sum():item()"), "2");
}

TEST(TwoStates, DoNotShareWhatACommandLineAsksOfSweeps) {
  State one, two;
  one.run(R"(ms.sweep = require('moonshard.sweep').maker {
               set = { seq_length = 64 }, only = {}, run = { retry = 3 } })");
  const std::string points = R"(
    local sweep = ms.sweep { model = 'linear-tiny', device = 'cpu', grid = { seq_length = { 8, 16 } } }
    return #sweep.points .. ' ' .. sweep.points[1].options.seq_length)";
  EXPECT_EQ(one.run(points), "1 64");
  EXPECT_EQ(two.run(points), "2 8");
}

TEST(TwoStates, HaveFailedPointsEach) {
  State one, two;
  one.run("require('moonshard.native').launch.note_failed_points()");
  EXPECT_TRUE(one.has_in_registry("moonshard.failed_points"));
  EXPECT_FALSE(two.has_in_registry("moonshard.failed_points"));
}

TEST(TwoStates, TakingTurnsEachMeasuresItsOwnSteps) {
  State one, two;
  const std::string ghost = one.run(experiment(kGhost)), plain = two.run(experiment(kPlain));
  EXPECT_NE(ghost, plain);
  EXPECT_EQ(one.run(experiment(kGhost)), ghost);
  EXPECT_EQ(two.run(experiment(kPlain)), plain);
  EXPECT_EQ(one.run(experiment(kPlain)), plain);
}

TEST(TwoStates, AtTheSameTimeEachMeasuresItsOwnSteps) {
  State one, two;
  const std::string ghost = one.run(experiment(kGhost)), plain = two.run(experiment(kPlain));
  std::string error;
  for (int round = 0; round < 5; ++round) {
    std::string measured;
    std::thread other([&] {
      try {
        measured = two.run(experiment(kPlain));
      } catch (const std::exception& failed) {
        error = failed.what();
      }
    });
    EXPECT_EQ(one.run(experiment(kGhost)), ghost);
    other.join();
    EXPECT_EQ(measured, plain) << error;
  }
}

TEST(TwoStates, AreOpenedInTwoThreadsAtOnce) {
  std::string sums[2];
  std::thread other([&] { sums[0] = State().run("return ms.ones({ 3 }):sum():item()"); });
  sums[1] = State().run("return ms.ones({ 4 }):sum():item()");
  other.join();
  EXPECT_EQ(sums[0], "3");
  EXPECT_EQ(sums[1], "4");
}

}  // namespace
