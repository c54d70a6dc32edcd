// What a fake world's communication takes on a GPU. Skipped with a reason without one.
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>

#include <chrono>

#include "kernels/delay/delay.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard::kernels {
namespace {

class PortGpu : public OnGpu {};

// Milliseconds until a transfer on each of two streams has arrived.
double together_ms(double port_us, double latency_us) {
  const c10::Device device(c10::kCUDA, 0);
  const c10::impl::VirtualGuardImpl guard(c10::kCUDA);
  const c10::Stream first = guard.getStreamFromGlobalPool(device),
                    second = guard.getStreamFromGlobalPool(device);
  guard.synchronizeDevice(0);
  const auto began = std::chrono::steady_clock::now();
  for (const c10::Stream& stream : {first, second})
    transfer_on_stream(port_us, latency_us, stream.native_handle());
  guard.synchronizeDevice(0);
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began)
      .count();
}

TEST_F(PortGpu, TransfersOfTwoStreamsTakeTurns) {
  together_ms(1, 0);
  EXPECT_GE(together_ms(5000, 0), 10);
  EXPECT_LT(together_ms(0.001, 5000), 8) << "what has left keeps nobody waiting";
}

// In place, the row lies where it is left out.
TEST_F(PortGpu, ARowIsRepeatedInAllRowsButOne) {
  void* stream =
      c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(c10::Device(c10::kCUDA, 0)).native_handle();
  for (const int64_t numbers : {8, 1000, 3'000'000}) {
    const at::Tensor row = at::rand({numbers}, at::TensorOptions(at::kCUDA));
    const auto bytes = static_cast<int64_t>(row.nbytes());
    for (const int64_t except : {-1, 0, 2, 4}) {
      const at::Tensor rows = at::zeros({5, numbers}, row.options());
      repeat_on_stream(rows.mutable_data_ptr(), row.const_data_ptr(), bytes, 5, except, stream);
      at::Tensor expected = row.expand({5, numbers}).clone();
      if (except >= 0) expected[except].zero_();
      EXPECT_TRUE(rows.equal(expected)) << numbers << " numbers, but " << except;
      if (except < 0) continue;
      rows[except].copy_(row);
      repeat_on_stream(rows.mutable_data_ptr(), rows[except].const_data_ptr(), bytes, 5, except,
                       stream);
      EXPECT_TRUE(rows.equal(row.expand({5, numbers}))) << numbers << " numbers, in " << except;
    }
  }
}

}  // namespace
}  // namespace moonshard::kernels
