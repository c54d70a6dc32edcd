// AllOrNone over the collectives of a communicator.
#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "runtime/checkpoint/all_or_none.h"
#include "runtime/comm/communicator.h"
#include "runtime/core/device.h"

namespace moonshard::checkpoint {
namespace {

class CollectiveExchange final : public Exchange {
 public:
  CollectiveExchange(std::shared_ptr<comm::Communicator> group, std::string about)
      : group_(std::move(group)), about_(std::move(about)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  void rethrow() const override { rethrow_memory_errors(); }

  std::string perform(const std::function<std::string()>& work) override {
    std::string own;
    std::atomic<bool> done{false};
    const std::jthread worker([&] {
      own = work();
      done.store(true, std::memory_order_release);
    });
    wait_for([&] { return done.load(std::memory_order_acquire); });
    return own;
  }

  std::vector<std::string> gather(const std::string& own) override {
    const at::Tensor lengths = at::empty({size()}, at::kLong);
    group_->all_gather(lengths, at::tensor({static_cast<int64_t>(own.size())}, at::kLong), about_)
        .wait();
    const int64_t most = lengths.max().item<int64_t>();
    const at::Tensor part = at::zeros({most}, at::kByte),
                     row = at::empty({most * size()}, at::kByte);
    std::memcpy(part.data_ptr(), own.data(), own.size());
    group_->all_gather(row, part, about_).wait();
    std::vector<std::string> texts;
    for (int rank = 0; rank < size(); ++rank) {
      texts.emplace_back(static_cast<const char*>(row.const_data_ptr()) + most * rank,
                         static_cast<size_t>(lengths[rank].item<int64_t>()));
    }
    return texts;
  }

 private:
  // Ranks poll each other: each poll is a separate collective with a time-out of
  // its own, so that only a rank that is gone or stuck runs into one.
  void wait_for(const std::function<bool()>& is_done) {
    auto pause = std::chrono::milliseconds(1);
    while (true) {
      const at::Tensor all_done = at::tensor({is_done() ? 1 : 0}, at::kInt);
      group_->all_reduce(all_done, about_, comm::Reduction::Min).wait();
      if (all_done.item<int>() == 1) return;
      std::this_thread::sleep_for(pause);
      pause = std::min(2 * pause, std::chrono::milliseconds(500));
    }
  }

  std::shared_ptr<comm::Communicator> group_;
  std::string about_;
};

}  // namespace

AllOrNone::AllOrNone(std::shared_ptr<comm::Communicator> group, std::string about)
    : exchange_(std::make_shared<CollectiveExchange>(std::move(group), std::move(about))) {}

}  // namespace moonshard::checkpoint
