// Order between streams of a device.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace moonshard {

/// Work that `behind` is given from now on begins when all that `before` has is done.
inline void run_after(c10::Stream before, c10::Stream behind) {
  c10::Event done(before.device_type());
  done.record(before);
  done.block(behind);
}

}  // namespace moonshard
