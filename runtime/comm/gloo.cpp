// Groups over c10d's backends: Gloo here, NCCL through a separate library (communicator.cpp).
#define USE_C10D_GLOO  // what LibTorch was built with; its header is empty without
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "runtime/comm/communicator.h"
#include "runtime/comm/links.h"

namespace moonshard::comm {
namespace {

class BackendWork : public Communicator::Work {
 public:
  explicit BackendWork(c10::intrusive_ptr<c10d::Work> work) : work_(std::move(work)) {}
  bool is_done() override { return work_->isCompleted(); }
  void wait() override {
    work_->wait();
    if (after_wait_) std::exchange(after_wait_, nullptr)();
  }
  void when_done(std::function<void()> callback) override {
    try {
      work_->getFuture()->addCallback([callback](c10::ivalue::Future&) { callback(); });
    } catch (const c10::Error&) {
      after_wait_ = std::move(callback);  // Gloo's reduce_scatter has no future
    }
  }

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::function<void()> after_wait_;
};

c10d::ReduceOp::RedOpType operation_of(Reduction reduction) {
  switch (reduction) {
    case Reduction::Max:
      return c10d::ReduceOp::MAX;
    case Reduction::Min:
      return c10d::ReduceOp::MIN;
    default:
      return c10d::ReduceOp::SUM;
  }
}

class BackendCommunicator : public Communicator {
 public:
  BackendCommunicator(c10::intrusive_ptr<c10d::Backend> backend, const char* transport,
                      const GroupOptions& options)
      : Communicator(options.rank, options.size, options.watchdog, options.device),
        backend_(std::move(backend)),
        transport_(transport) {}
  const char* transport() const override { return transport_; }

 protected:
  Started start_all_gather(at::Tensor whole, at::Tensor part) override {
    return started(backend_->_allgather_base(whole, part, asynchronous<c10d::AllgatherOptions>()));
  }
  Started start_reduce_scatter(at::Tensor part, at::Tensor whole) override {
    return started(
        backend_->_reduce_scatter_base(part, whole, asynchronous<c10d::ReduceScatterOptions>()));
  }
  Started start_all_reduce(at::Tensor tensor, Reduction reduction) override {
    std::vector<at::Tensor> tensors{tensor};
    auto options = asynchronous<c10d::AllreduceOptions>();
    options.reduceOp = operation_of(reduction);
    return started(backend_->allreduce(tensors, options));
  }
  Started start_broadcast(at::Tensor tensor, int root) override {
    std::vector<at::Tensor> tensors{tensor};
    auto options = asynchronous<c10d::BroadcastOptions>();
    options.rootRank = root;
    return started(backend_->broadcast(tensors, options));
  }

 private:
  template <class Options>
  static Options asynchronous() {
    Options options;
    options.asyncOp = true;
    return options;
  }
  static Started started(c10::intrusive_ptr<c10d::Work> work) {
    return std::make_shared<BackendWork>(std::move(work));
  }

  c10::intrusive_ptr<c10d::Backend> backend_;
  const char* transport_;
};

}  // namespace

std::shared_ptr<Communicator> wrap_backend(c10d::Backend* backend, const char* transport,
                                           const GroupOptions& options) {
  return std::make_shared<BackendCommunicator>(c10::intrusive_ptr<c10d::Backend>::reclaim(backend),
                                               transport, options);
}

std::shared_ptr<Communicator> make_gloo(c10d::Store* store, const GroupOptions& options) {
  leave_watching_to_us();
  auto shared = c10::intrusive_ptr<c10d::Store>::reclaim_copy(store);
  auto settings = c10d::ProcessGroupGloo::Options::create(
      std::chrono::milliseconds(static_cast<int64_t>(options.timeout_s * 1000)));
  settings->threads = kGlooAtOnce;
  // Never Gloo's own choice: the first address of this machine's name, which may be the loopback's.
  settings->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
  auto backend = c10::make_intrusive<c10d::ProcessGroupGloo>(
      c10::make_intrusive<c10d::PrefixStore>("gloo/" + options.name, shared), options.rank,
      options.size, settings);
  return wrap_backend(backend.release(), "gloo", options);
}

}  // namespace moonshard::comm
