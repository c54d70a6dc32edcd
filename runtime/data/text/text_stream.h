// A file's bytes as valid UTF-8, in pieces of about a MiB, whatever the file's size. Every consumer
// (documents.cpp) can rely on it: what is ill-formed has been repaired and counted, or was an error
// with the file, line and byte.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "runtime/base/read_file.h"

namespace moonshard::data {

/// What reading changed. Counted, never silent.
struct Repairs {
  int64_t byte_order_marks = 0;     ///< left out at a file's start
  int64_t replaced_characters = 0;  ///< ill-formed UTF-8, zero bytes and lone surrogates: U+FFFD
};

class TextStream {
 public:
  /// With `replace` ill-formed UTF-8 and zero bytes become U+FFFD, else they are errors.
  TextStream(const std::filesystem::path& path, bool replace, Repairs& repairs);

  /// Appends the next whole characters. False at the end, with nothing appended. Throws IoError
  /// "file:line: …", also when the file becomes shorter; Interrupted when the user asked to stop.
  bool read(std::string& text);
  /// Bytes of the file, when it was opened.
  int64_t size() const { return file_.size(); }

 private:
  void take(std::string& text, size_t end);
  [[noreturn]] void fail(size_t at, const std::string& got) const;

  ReadOnlyFile file_;
  bool replace_;
  Repairs& repairs_;
  int64_t position_ = 0;  ///< of the next read
  int64_t taken_ = 0;     ///< bytes before raw_
  int64_t line_ = 1;
  std::string raw_;
};

}  // namespace moonshard::data
