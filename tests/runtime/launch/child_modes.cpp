#include "tests/runtime/launch/child_modes.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <map>

namespace moonshard {
namespace {

std::map<std::string, ChildMode>& modes() {
  static std::map<std::string, ChildMode> all;
  return all;
}

}  // namespace

ChildModeEntry::ChildModeEntry(const char* name, ChildMode mode) {
  modes()[name] = mode;
}

std::vector<std::string> child_command(const std::string& name,
                                       const std::vector<std::string>& words) {
  std::vector<std::string> command{std::filesystem::read_symlink("/proc/self/exe").string(), "--as",
                                   name};
  command.insert(command.end(), words.begin(), words.end());
  return command;
}

}  // namespace moonshard

int main(int argc, char** argv) {
  if (argc >= 3 && std::string(argv[1]) == "--as") {
    const auto mode = moonshard::modes().find(argv[2]);
    if (mode != moonshard::modes().end()) return mode->second({argv + 3, argv + argc});
    std::fprintf(stderr, "no mode '%s'\n", argv[2]);
    return 2;
  }
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
