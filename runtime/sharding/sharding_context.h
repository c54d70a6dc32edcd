// What all units of a model share: the group of ranks, devices and dtypes of values, and the bytes
// that this rank holds.
#pragma once

#include <memory>
#include <optional>

#include <c10/core/Stream.h>

#include "runtime/comm/communicator.h"
#include "runtime/models/model.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::sharding {

/// Bytes of one rank, now and at their peak since the last reset.
struct ShardingMemory {
  int64_t parameters = 0;                     ///< kept between steps: own parts, or all of them
  int64_t gradients = 0;                      ///< peak of the sums kept for the optimizer
  int64_t gradients_now = 0;                  ///< held now
  int64_t whole = 0, whole_peak = 0;          ///< gathered parameters
  int64_t in_flight = 0, in_flight_peak = 0;  ///< gradients being reduced
  int64_t whole_units = 0, whole_units_peak = 0;

  void add_whole(int64_t bytes, int64_t units);
  void add_in_flight(int64_t bytes);
  void add_gradients(int64_t bytes);
};

struct ShardingContext {
  /// Parts live on the host where the options say so and `may_offload`.
  ShardingContext(models::Model& model, const ShardingOptions& options, bool may_offload,
                  std::shared_ptr<comm::Communicator> ranks);

  std::shared_ptr<comm::Communicator> group;
  c10::Device device;   ///< of the computation
  c10::Device home;     ///< of the parts: the host with offload
  at::ScalarType type;  ///< of the parts
  at::ScalarType compute_type;
  at::ScalarType sum_type;     ///< of gradient sums
  at::ScalarType reduce_type;  ///< of gradient collectives
  ShardingMemory memory;

  bool single() const { return group->size() == 1; }
  bool offloads() const { return home != device; }
  /// With offload: the stream that copies between host and device, beside the computation.
  c10::Stream copy_stream();
  /// With offload: waits for gradients that are being copied to the host.
  void wait_for_copies();
  /// With offload a copy in pinned memory, asynchronous to the computation; else the same tensor.
  at::Tensor brought_home(const at::Tensor& gradient) const;

 private:
  std::optional<c10::Stream> copies_;
};

}  // namespace moonshard::sharding
