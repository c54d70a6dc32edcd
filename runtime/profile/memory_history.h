// PyTorch's own record of the GPU allocator: snapshot files for its memory viewer, of a whole run
// or of the moment when memory ran out.
#pragma once

#include <filesystem>
#include <string>

#include <c10/core/Device.h>

namespace moonshard::profile {

/// Records from its construction on. On the CPU, where LibTorch keeps no such record, it does
/// nothing and reports why.
class MemoryHistory {
 public:
  explicit MemoryHistory(c10::Device device);
  ~MemoryHistory();
  MemoryHistory(const MemoryHistory&) = delete;
  MemoryHistory& operator=(const MemoryHistory&) = delete;
  /// Writes what has been recorded so far (snapshot.pickle). False when there is nothing to write.
  bool save(const std::filesystem::path& path) const;
  /// Why there is no record; "" when there is one.
  const std::string& absence() const { return absence_; }

 private:
  std::string absence_;
};

}  // namespace moonshard::profile
