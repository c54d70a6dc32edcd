// Alone: it is compiled again at every commit.
#include "runtime/core/version.h"

#include "moonshard_commit.h"

namespace moonshard {

std::string source_commit() {
  return MOONSHARD_COMMIT;
}

}  // namespace moonshard
