// What was going on when memory ran out: asked for, still free, in which phase. Noted by the
// allocators at that moment, before the error unwinds what filled the memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <c10/core/Device.h>

namespace moonshard::profile {

struct OutOfMemoryDetails {
  int64_t bytes_asked = -1, bytes_free = -1;  ///< -1: nobody knows
  std::string phase;                          ///< of the step, or "" outside of one
};

/// By allocators. The second form asks the device what is free.
void note_out_of_memory(int64_t bytes_asked, int64_t bytes_free);
void note_out_of_memory(int64_t bytes_asked, c10::Device device);

/// While it lives, a GPU allocation of this thread (and of autograd's on its behalf) that fails is
/// noted, and `action` runs while everything is still in memory.
class OutOfMemoryWatch {
 public:
  explicit OutOfMemoryWatch(std::function<void()> action = {});
  ~OutOfMemoryWatch();
  OutOfMemoryWatch(const OutOfMemoryWatch&) = delete;
  OutOfMemoryWatch& operator=(const OutOfMemoryWatch&) = delete;
  /// The last one since this watch began.
  std::optional<OutOfMemoryDetails> seen() const;

 private:
  struct Guard;
  std::unique_ptr<Guard> guard_;
};

}  // namespace moonshard::profile
