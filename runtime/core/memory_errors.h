// LibTorch reports out-of-memory in three ways; here they become one error type.
#pragma once

#include <exception>
#include <string>

namespace moonshard {

/// The user's message when an exception means that memory ran out (host or device); "" for all
/// others.
std::string out_of_memory_message(const std::exception& error);

/// Call inside a catch block: throws OutOfMemoryError when the exception in flight means that
/// memory ran out, else the same exception again.
[[noreturn]] void rethrow_memory_errors();

}  // namespace moonshard
