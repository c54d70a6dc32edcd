// Errors of the whole project. Three kinds of failure, each its own type, so that hosts can map
// them to exit codes and Lua errors without reading text:
//   UsageError     the caller's mistake (MS_CHECK), says what was expected, what came, what to do
//   InternalError  our own bug (MS_ASSERT)
//   IoError, OutOfMemoryError, Interrupted   the world's doing
// Message shape: "where: what was expected, got what; what to do". Nothing in a library prints or
// exits.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace moonshard {

class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class UsageError : public Error {
 public:
  using Error::Error;
};

class InternalError : public Error {
 public:
  using Error::Error;
};

/// A file or process operation failed; the text names the path and the system's reason.
class IoError : public Error {
 public:
  using Error::Error;
};

/// Device or host memory ran out. A recorded outcome for sweeps, exit code 3 for the program.
class OutOfMemoryError : public Error {
 public:
  OutOfMemoryError(const std::string& text, int64_t bytes) : Error(text), bytes_asked(bytes) {}
  int64_t bytes_asked;  ///< -1 when the allocator did not say
};

/// The user asked to stop (Ctrl-C). Work stops at the next safe point and nothing is lost.
class Interrupted : public Error {
 public:
  Interrupted() : Error("interrupted") {}
};

}  // namespace moonshard
