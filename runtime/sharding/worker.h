// One thread beside the step's: with offload it sums and updates parts in host memory while the
// device goes on with the backward pass.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace moonshard::sharding {

/// Runs jobs in the order in which they are added. After an error no further job runs; the error is
/// thrown to the next that adds or waits, until drop() forgets it. Used by one thread at a time.
class Worker {
 public:
  Worker() = default;
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void add(std::function<void()> job);
  /// Until at most so many jobs are left.
  void wait(size_t left = 0);
  /// Forgets jobs that have not begun, and waits for the one that runs.
  void drop() noexcept;

  /// Jobs added and jobs ended so far: job number n has ended when ended() >= n.
  int64_t added() const { return added_; }
  int64_t ended() const;

 private:
  void run();
  void throw_error();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  ///< the first may be running
  std::exception_ptr error_;
  int64_t added_ = 0, ended_ = 0;
  bool is_running_ = false, stops_ = false;
  std::thread thread_;
};

}  // namespace moonshard::sharding
