// Which GPU "cuda" and "auto" mean in this process.
#pragma once

namespace moonshard {

/// Call before any other GPU function: ranks of one machine take one GPU each, and share them when
/// there are fewer (index modulo count).
void set_default_gpu(int index);

}  // namespace moonshard
