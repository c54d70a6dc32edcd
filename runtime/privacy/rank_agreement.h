// What a claim rests on must be the same on all ranks: one with another seed draws samples that
// others have drawn too, one with other data protects other people, one with a larger bound
// outweighs the noise.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/comm/world.h"

namespace moonshard::privacy {

struct SharedFact {
  std::string name;        ///< "clip: option 'max_grad_norm'"
  std::string value;       ///< of this rank
  bool is_secret = false;  ///< not shown in messages
};

/// One fact per key of a table of options; `where` opens the names.
void add_option_facts(std::vector<SharedFact>& facts, const std::string& where,
                      const Json& options);

/// Throws UsageError on every rank where one has another value, and names the first such rank and
/// fact. All ranks together.
void require_agreement(comm::World& world, const std::vector<SharedFact>& facts);

}  // namespace moonshard::privacy
