// Hostile files for the tests of readers: pipes, links, sources that give a byte at a time.
#pragma once

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "runtime/base/errors.h"
#include "runtime/input/json_stream.h"
#include "tests/viewer/sample_run.h"

namespace moonshard::viewer {

/// Gives a few bytes at a time, so that every token is torn somewhere.
class TricklingSource final : public ByteSource {
 public:
  TricklingSource(std::string_view text, size_t step) : text_(text), step_(step) {}
  size_t read(char* to, size_t capacity) override {
    const size_t count = std::min({text_.size(), capacity, step_});
    text_.copy(to, count);
    text_.remove_prefix(count);
    return count;
  }

 private:
  std::string_view text_;
  size_t step_;
};

/// The text of the IoError that a call ends with; "" when it ends well. Any other exception fails.
inline std::string io_error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

inline void make_pipe(const std::filesystem::path& path) {
  std::filesystem::create_directories(path.parent_path());
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
}

/// Compresses a file in place, with the system's gzip; returns the new path.
inline std::filesystem::path gzip(const std::filesystem::path& path) {
  const std::string command = "gzip -f '" + path.string() + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
  return path.string() + ".gz";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::filesystem::path source_folder() {
  return MOONSHARD_SOURCE_DIR;
}

}  // namespace moonshard::viewer
