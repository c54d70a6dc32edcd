#include "runtime/sharding/worker.h"

#include <utility>

namespace moonshard::sharding {

Worker::~Worker() {
  drop();
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Worker::throw_error() {
  if (error_ != nullptr) std::rethrow_exception(error_);
}

void Worker::add(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    throw_error();
    jobs_.push_back(std::move(job));
    ++added_;
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  }
  changed_.notify_all();
}

void Worker::wait(size_t left) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.size() <= left || error_ != nullptr; });
  throw_error();
}

void Worker::drop() noexcept {
  std::unique_lock lock(mutex_);
  const size_t kept = is_running_ ? 1 : 0;
  ended_ += static_cast<int64_t>(jobs_.size() - kept);
  jobs_.resize(kept);
  changed_.wait(lock, [&] { return jobs_.empty(); });
  error_ = nullptr;
}

int64_t Worker::ended() const {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void Worker::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return stops_ || (!jobs_.empty() && error_ == nullptr); });
    if (stops_) return;
    is_running_ = true;
    std::exception_ptr error;
    {
      const std::function<void()> job = std::move(jobs_.front());
      lock.unlock();
      try {
        job();
      } catch (...) {
        error = std::current_exception();
      }
    }  // what the job holds is freed before anyone is told that it has ended
    lock.lock();
    is_running_ = false;
    error_ = error;
    jobs_.pop_front();
    ++ended_;
    changed_.notify_all();
  }
}

}  // namespace moonshard::sharding
