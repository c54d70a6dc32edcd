#include "runtime/sharding/sharding_context.h"

#include <ATen/ATen.h>

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "runtime/core/device.h"

namespace moonshard::sharding {

void ShardingMemory::add_whole(int64_t bytes, int64_t units) {
  whole += bytes;
  whole_units += units;
  whole_peak = std::max(whole_peak, whole);
  whole_units_peak = std::max(whole_units_peak, whole_units);
}

void ShardingMemory::add_in_flight(int64_t bytes) {
  in_flight += bytes;
  in_flight_peak = std::max(in_flight_peak, in_flight);
}

void ShardingMemory::add_gradients(int64_t bytes) {
  gradients_now += bytes;
  gradients = std::max(gradients, gradients_now);
}

ShardingContext::ShardingContext(models::Model& model, const ShardingOptions& options,
                                 bool may_offload, std::shared_ptr<comm::Communicator> ranks)
    : group(std::move(ranks)),
      device(resolve_device(model.options().device)),
      home(options.cpu_offload && may_offload ? c10::Device(c10::kCPU) : device),
      type(dtype_from_name(model.options().dtype)),
      compute_type(model.seam().compute_type),
      sum_type(compute_type == at::kDouble || type == at::kDouble ? at::kDouble : at::kFloat),
      reduce_type(options.reduce_dtype == "auto" ? sum_type
                                                 : dtype_from_name(options.reduce_dtype)) {}

c10::Stream ShardingContext::copy_stream() {
  if (!copies_)
    copies_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
  return *copies_;
}

void ShardingContext::wait_for_copies() {
  if (!offloads()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeStream(guard.getStream(device));
}

at::Tensor ShardingContext::brought_home(const at::Tensor& gradient) const {
  if (!offloads()) return gradient;
  const at::Tensor host =
      at::empty(gradient.sizes(), gradient.options().device(home).pinned_memory(true));
  host.copy_(gradient, /*non_blocking=*/true);
  return host;
}

}  // namespace moonshard::sharding
