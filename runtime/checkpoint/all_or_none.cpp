#include "runtime/checkpoint/all_or_none.h"

#include <fmt/format.h>

#include "runtime/base/check.h"

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

std::string outcome(const Exchange& exchange, const std::function<std::string()>& work) {
  const auto told = [](Kind kind, const char* text) { return std::string(1, kind) + text; };
  try {
    try {
      return std::string(1, kAnswer) + work();
    } catch (...) {
      exchange.rethrow();
      throw;  // as it was
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

std::vector<std::string> AllOrNone::run(const std::function<std::string()>& work) {
  if (exchange_->size() == 1) return {work()};
  std::vector<std::string> told =
      exchange_->gather(exchange_->perform([&] { return outcome(*exchange_, work); }));
  for (size_t rank = 0; rank < told.size(); ++rank)
    if (told[rank][0] != kAnswer) raise(told[rank], rank);
  for (std::string& answer : told) answer.erase(0, 1);
  return told;
}

std::string AllOrNone::run_on_first(const std::function<std::string()>& work) {
  return run([&] { return rank() == 0 ? work() : std::string(); }).front();
}

}  // namespace moonshard::checkpoint
