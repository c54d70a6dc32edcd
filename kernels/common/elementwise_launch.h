// Raw launchers of elementwise operations: contiguous arrays of `count` numbers, of one dtype but
// for cast.
#pragma once

#include <cstdint>

#include "kernels/common/number_format.h"

namespace moonshard::kernels {

/// `count` elements, contiguous, not overlapping.
void launch_gelu_forward(const void* x, void* result, int64_t count, NumberFormat format,
                         void* stream);

/// x_gradient may be g itself.
void launch_gelu_backward(const void* g, const void* x, void* x_gradient, int64_t count,
                          NumberFormat format, void* stream);

/// What opens a gate: silu (SwiGLU), or gelu in its tanh form (GeGLU).
enum class GateFunction { Silu, GeluTanh };

void launch_gated_forward(const void* gate, const void* up, void* result, int64_t count,
                          GateFunction function, NumberFormat format, void* stream);

/// up_gradient may be g itself, gate_gradient gate, and product up. product: f(gate) * up is
/// written there; null: it is not.
void launch_gated_backward(const void* g, const void* gate, const void* up, void* gate_gradient,
                           void* up_gradient, void* product, int64_t count, GateFunction function,
                           NumberFormat format, void* stream);

struct Rotary {
  void *q = nullptr, *k = nullptr;                   ///< [rows, heads, 2 half]
  const float *cosines = nullptr, *sines = nullptr;  ///< [tokens, half]
  int64_t rows = 0;                                  ///< samples x tokens
  int64_t tokens = 0;
  int q_heads = 0, k_heads = 0, half = 0;
  bool inverse = false;
  NumberFormat format = NumberFormat::Float32;
};

void launch_rotary(const Rotary& p, void* stream);

/// A kernel of one thread that sleeps.
void launch_delay(double microseconds, void* cuda_stream);
/// The same until a transfer through the device's port has ended: transfers of all streams take
/// turns at it.
void launch_transfer(double port_us, double latency_us, void* cuda_stream);
/// One row into many (delay.h).
void launch_repeat(void* rows, const void* row, int64_t bytes, int64_t count, int64_t except,
                   void* cuda_stream);

}  // namespace moonshard::kernels
