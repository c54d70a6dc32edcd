// LibTorch reports exhausted memory in three ways; here they become one.
#pragma once

namespace moonshard {

/// Call inside a catch block: throws OutOfMemoryError when the exception in flight means that
/// memory ran out (host or device), else the same exception again.
[[noreturn]] void rethrow_memory_errors();

}  // namespace moonshard
