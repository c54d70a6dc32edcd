// The test program as the program that is launched: test_launch --as NAME WORDS runs the function
// of that name instead of the tests.
#pragma once

#include <string>
#include <vector>

namespace moonshard {

using ChildMode = int (*)(const std::vector<std::string>& words);

/// At namespace scope: const ChildModeEntry entry("name", &function);
struct ChildModeEntry {
  ChildModeEntry(const char* name, ChildMode mode);
};

/// The command line that runs this program in that mode.
std::vector<std::string> child_command(const std::string& name,
                                       const std::vector<std::string>& words = {});

}  // namespace moonshard
