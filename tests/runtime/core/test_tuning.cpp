// Remembered choices: the fastest is taken, timed once, kept over processes' lives, and a spoilt
// file costs only the memory.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "runtime/base/json.h"
#include "runtime/core/tuning.h"

namespace moonshard {
namespace {

namespace fs = std::filesystem;

class Tuning : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = fs::temp_directory_path() / ("moonshard_tuning_" + std::to_string(::getpid())) /
            "tuning.json";
    ::setenv("MOONSHARD_TUNING", file_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("MOONSHARD_TUNING");
    fs::remove_all(file_.parent_path());
  }
  fs::path file_;
};

TEST_F(Tuning, TheFastestIsTakenAndTimedOnce) {
  int timed = 0;
  const auto time = [&] {
    ++timed;
    return std::map<std::string, double>{{"flash", 2.0}, {"cudnn", 1.5}};
  };
  EXPECT_EQ(tuned_choice("gpu", "once: T 64", time), "cudnn");
  EXPECT_EQ(tuned_choice("gpu", "once: T 64", time), "cudnn");
  EXPECT_EQ(timed, 1);
  tuned_choice("another gpu", "once: T 64", time);
  EXPECT_EQ(timed, 2);
  const Json written = read_json_file(file_);
  EXPECT_EQ(written["choices"]["gpu | once: T 64"]["choice"], "cudnn");
  EXPECT_EQ(written["choices"]["gpu | once: T 64"]["ms"]["flash"], 2.0);
  EXPECT_EQ(written["choices"].size(), 2u);
}

TEST_F(Tuning, WhatAnotherProcessRememberedIsUsed) {
  fs::create_directories(file_.parent_path());
  std::ofstream(file_)
      << R"({"choices": {"gpu | read: T 8": {"choice": "flash", "ms": {"flash": 1}}}})";
  const auto never = []() -> std::map<std::string, double> {
    ADD_FAILURE() << "timed what the file has";
    return {};
  };
  EXPECT_EQ(tuned_choice("gpu", "read: T 8", never), "flash");
  EXPECT_EQ(tuned_choices().at("gpu | read: T 8").ms.at("flash"), 1.0);
}

TEST_F(Tuning, ASpoiltFileOrAPlaceThatCannotBeWrittenCostsOnlyTheMemory) {
  const auto time = [] { return std::map<std::string, double>{{"one", 1.0}, {"two", 2.0}}; };
  fs::create_directories(file_.parent_path());
  for (const char* text : {"", "{", "[]", R"({"choices": 3})",
                           R"({"choices": {"gpu | spoilt": {"choice": 7, "ms": {}}}})"}) {
    std::ofstream(file_, std::ios::trunc) << text;
    EXPECT_EQ(tuned_choice("gpu", std::string("spoilt ") + text, time), "one") << text;
  }
  ::setenv("MOONSHARD_TUNING", "/proc/no/such/place.json", 1);
  EXPECT_EQ(tuned_choice("gpu", "nowhere", time), "one");
  ::setenv("MOONSHARD_TUNING", "off", 1);
  EXPECT_TRUE(tuning_file().empty());
  EXPECT_EQ(tuned_choice("gpu", "off", time), "one");
}

}  // namespace
}  // namespace moonshard
