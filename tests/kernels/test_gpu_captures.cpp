// What graphs of steps rest on: NCCL's collectives in a capture, and the measure by which
// compile = auto makes one. Skipped with a reason without a GPU.
#include <ATen/ATen.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "kernels/delay/delay.h"
#include "runtime/comm/communicator.h"
#include "runtime/profile/phases.h"
#include "runtime/train/cuda_graph.h"
#include "runtime/train/step_graph.h"
#include "tests/kernels/on_gpu.h"

namespace moonshard::train {
namespace {

class CaptureGpu : public OnGpu {};

// What a step's graph is made of on real ranks. One GPU can have one rank: what several send each
// other is not seen here, that the collectives are captured and run at every replay is.
TEST_F(CaptureGpu, CollectivesOfNcclCanBeCaptured) {
  const c10::Device device(c10::kCUDA, 0);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  comm::GroupOptions options;
  options.name = "captured";
  options.device = device;
  const auto group = comm::make_nccl(store.get(), options);
  const at::Tensor part = at::zeros({1000}, at::TensorOptions().device(device));
  const at::Tensor whole = at::zeros_like(part), sum = at::zeros_like(part);
  const auto exchange = [&] {
    comm::Pending gather = group->all_gather(whole, part, "whole");
    gather.wait();
    const at::Tensor twice = whole * 2;
    comm::Pending reduction = group->reduce_scatter(sum, twice, "sum");
    reduction.wait();
    group->all_reduce(sum, "all").wait();
  };
  exchange();  // connects
  const std::unique_ptr<CudaGraph> graph(graph_plugin().make(0));
  group->set_captured(true);
  graph->begin();
  exchange();
  const std::string failure = graph->end();
  group->set_captured(false);
  ASSERT_EQ(failure, "");
  for (int i = 1; i <= 3; ++i) {
    part.fill_(i);
    graph->launch();
    group->watch_replay();
    EXPECT_TRUE(at::equal(sum, at::full_like(sum, 2 * i))) << i;
  }
}

// A host that is ahead by CUDA's whole queue of launches waits for the device: its own time is then
// nearly that of the device, but it is not what the device waits for.
TEST_F(CaptureGpu, AHostThatWaitsForTheQueueDoesNotBoundAStep) {
  const at::Tensor any = at::zeros({1}, at::TensorOptions().device(at::kCUDA));
  const c10::Stream stream = c10::impl::VirtualGuardImpl(c10::kCUDA).getStream(any.device());
  const auto share = [&](double us, int kernels) {
    profile::PhaseTimer timer(any.device());
    for (const char* phase : {"forward", "backward", "clipped_sum"}) {
      timer.begin(phase);
      for (int i = 0; i < kernels; ++i) kernels::delay_stream(us, stream.native_handle());
    }
    timer.all_launched();
    timer.finish();
    return timer.host_share();
  };
  share(1, 100);
  EXPECT_LT(share(40, 3000), StepGraph::kHostBound);
  EXPECT_LT(share(40, 200), 0.2) << "the queue has room";
  EXPECT_GT(share(0.1, 3000), 0.8);
}

}  // namespace
}  // namespace moonshard::train
