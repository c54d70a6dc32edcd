#include "runtime/base/globs.h"

#include <fnmatch.h>

#include <algorithm>
#include <sstream>

namespace moonshard {

std::vector<std::string> globs_of(const std::string& list) {
  std::vector<std::string> globs;
  std::istringstream parts(list);
  for (std::string glob; std::getline(parts, glob, ',');) {
    glob.erase(0, glob.find_first_not_of(' '));
    glob.erase(glob.find_last_not_of(' ') + 1);
    if (!glob.empty()) globs.push_back(glob);
  }
  return globs;
}

bool matches_any(const std::vector<std::string>& globs, const std::string& text) {
  return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) {
    return ::fnmatch(glob.c_str(), text.c_str(), 0) == 0;
  });
}

}  // namespace moonshard
