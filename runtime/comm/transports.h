// Factories of process groups: real ones, and the simulated one.
#pragma once

#include <memory>
#include <string>

#include <c10/core/Device.h>

#include "runtime/comm/communicator.h"

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace moonshard::comm {

struct GroupOptions {
  std::string name;
  int rank = 0, size = 1;
  double timeout_s = 300;
  bool loopback = true;  ///< all ranks are on this machine
  Watchdog* watchdog = nullptr;
  c10::Device device = c10::kCPU;
};

std::shared_ptr<Communicator> make_gloo(c10d::Store* store, const GroupOptions& options);
/// Throws UsageError where this build or this machine has no NCCL.
std::shared_ptr<Communicator> make_nccl(c10d::Store* store, const GroupOptions& options);
/// One rank of `size`; collectives take the time the link would.
std::shared_ptr<Communicator> make_fake(int rank, int size, const std::string& link,
                                        c10::Device device);

/// Takes the reference over.
std::shared_ptr<Communicator> wrap_backend(c10d::Backend* backend, const char* transport,
                                           const GroupOptions& options);

}  // namespace moonshard::comm
