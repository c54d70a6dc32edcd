// Ranks that are threads of the test, with Gloo between them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "runtime/comm/world.h"

namespace moonshard {

class ThreadWorld : public comm::World {
 public:
  ThreadWorld(c10::intrusive_ptr<c10d::Store> store, int rank, int size)
      : store_(std::move(store)), rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::shared_ptr<comm::Communicator> group(const std::string& name, c10::Device device) override {
    auto& known = groups_[name];
    if (known == nullptr) known = part_group(name, device, rank_, size_);
    return known;
  }
  std::shared_ptr<comm::Communicator> part_group(const std::string& name, c10::Device, int rank,
                                                 int size) override {
    comm::GroupOptions options;
    options.name = name;
    options.rank = rank;
    options.size = size;
    options.timeout_s = 60;
    return comm::make_gloo(store_.get(), options);
  }

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  int rank_, size_;
  std::map<std::string, std::shared_ptr<comm::Communicator>> groups_;
};

/// Returns when all of them have. An exception in one of them ends the test program.
inline void run_thread_ranks(
    int count, const std::function<void(const std::shared_ptr<comm::World>& world)>& run) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < count; ++rank)
    ranks.emplace_back([&, rank] { run(std::make_shared<ThreadWorld>(store, rank, count)); });
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace moonshard
