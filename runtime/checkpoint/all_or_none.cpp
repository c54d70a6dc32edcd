#include "runtime/checkpoint/all_or_none.h"

#include <ATen/ATen.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "runtime/core/device.h"

namespace moonshard::checkpoint {
namespace {

// First letter of a rank's message to the others: an answer, or the kind of its error.
enum Kind : char {
  kAnswer = 'a',
  kUsage = 'u',
  kIo = 'i',
  kMemory = 'm',
  kInterrupted = 'x',
  kOther = 'o'
};

std::string outcome(const std::function<std::string()>& work) {
  const auto told = [](Kind kind, const char* text) { return std::string(1, kind) + text; };
  try {
    try {
      return std::string(1, kAnswer) + work();
    } catch (...) {
      rethrow_memory_errors();
    }
  } catch (const Interrupted& error) {
    return told(kInterrupted, error.what());
  } catch (const OutOfMemoryError& error) {
    return told(kMemory, error.what());
  } catch (const UsageError& error) {
    return told(kUsage, error.what());
  } catch (const IoError& error) {
    return told(kIo, error.what());
  } catch (const std::exception& error) {
    return told(kOther, error.what());
  }
}

[[noreturn]] void raise(const std::string& told, size_t rank) {
  const std::string text = fmt::format("rank {}: {}", rank, told.substr(1));
  switch (told[0]) {
    case kUsage:
      throw UsageError(text);
    case kIo:
      throw IoError(text);
    case kMemory:
      throw OutOfMemoryError(text, -1);
    case kInterrupted:
      throw Interrupted();
    default:
      throw InternalError(text);
  }
}

}  // namespace

AllOrNone::AllOrNone(std::shared_ptr<comm::Communicator> group, std::string about)
    : group_(std::move(group)), about_(std::move(about)) {}

std::vector<std::string> AllOrNone::run(const std::function<std::string()>& work) {
  if (group_->size() == 1) return {work()};
  std::string own;
  {
    std::atomic<bool> done{false};
    const std::jthread worker([&] {
      own = outcome(work);
      done.store(true, std::memory_order_release);
    });
    wait_for([&] { return done.load(std::memory_order_acquire); });
  }
  std::vector<std::string> told = gather(own);
  for (size_t rank = 0; rank < told.size(); ++rank)
    if (told[rank][0] != kAnswer) raise(told[rank], rank);
  for (std::string& answer : told) answer.erase(0, 1);
  return told;
}

std::string AllOrNone::run_on_first(const std::function<std::string()>& work) {
  return run([&] { return rank() == 0 ? work() : std::string(); }).front();
}

// Ranks poll each other: each poll is a separate collective with a time-out of
// its own, so that only a rank that is gone or stuck runs into one.
void AllOrNone::wait_for(const std::function<bool()>& is_done) {
  auto pause = std::chrono::milliseconds(1);
  while (true) {
    const at::Tensor all_done = at::tensor({is_done() ? 1 : 0}, at::kInt);
    group_->all_reduce(all_done, about_, comm::Reduction::Min).wait();
    if (all_done.item<int>() == 1) return;
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, std::chrono::milliseconds(500));
  }
}

std::vector<std::string> AllOrNone::gather(const std::string& own) {
  const int size = group_->size();
  const at::Tensor lengths = at::empty({size}, at::kLong);
  group_->all_gather(lengths, at::tensor({static_cast<int64_t>(own.size())}, at::kLong), about_)
      .wait();
  const int64_t most = lengths.max().item<int64_t>();
  const at::Tensor part = at::zeros({most}, at::kByte), row = at::empty({most * size}, at::kByte);
  std::memcpy(part.data_ptr(), own.data(), own.size());
  group_->all_gather(row, part, about_).wait();
  std::vector<std::string> texts;
  for (int rank = 0; rank < size; ++rank) {
    texts.emplace_back(static_cast<const char*>(row.const_data_ptr()) + most * rank,
                       static_cast<size_t>(lengths[rank].item<int64_t>()));
  }
  return texts;
}

}  // namespace moonshard::checkpoint
