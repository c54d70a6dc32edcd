// A seed that a test does not give is drawn (drawn_seed): in test programs it is the same one each
// time, also where one is started by hand, so that a test fails twice or never. MOONSHARD_SEED
// gives another one.
#include <cstdlib>

namespace {

[[maybe_unused]] const int default_seed = setenv("MOONSHARD_SEED", "0", /*overwrite=*/0);

}  // namespace
