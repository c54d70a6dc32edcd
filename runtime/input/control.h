// Progress and cancellation of a reader: it reports how far it is and checks regularly whether
// it was cancelled.
#pragma once

#include <atomic>
#include <functional>

#include "runtime/base/errors.h"

namespace moonshard {

/// The reading was cancelled. Not an error to show.
class Cancelled : public Error {
 public:
  Cancelled() : Error("reading was cancelled") {}
};

struct ReadControl {
  /// Told the share that is done, 0 to 1; from the thread that called the reader only.
  std::function<void(double share)> progress;
  std::atomic<bool>* stop = nullptr;

  /// Throws Cancelled after a stop request. Cheap: call it for every block of bytes.
  void check() const {
    if (stop != nullptr && stop->load(std::memory_order_relaxed)) throw Cancelled();
  }
  void report(double share) const {
    if (progress) progress(share);
  }
};

}  // namespace moonshard
