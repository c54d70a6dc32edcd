#include "runtime/sharding/sharding_options.h"

namespace moonshard::sharding {

const OptionSchema& sharding_schema() {
  static const OptionSchema schema = [] {
    OptionSchema s("parallel");
    add_sharding_options<ShardingOptions>(s);
    return s;
  }();
  return schema;
}

}  // namespace moonshard::sharding
