// Which GPU "cuda" and "auto" mean in this process.
#pragma once

namespace moonshard {

/// Before the first question about GPUs: ranks of one machine take one each, and share them when
/// there are fewer (the index counts round).
void set_default_gpu(int index);

}  // namespace moonshard
