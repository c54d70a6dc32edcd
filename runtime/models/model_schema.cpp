#include "runtime/models/model_schema.h"

#include "runtime/models/model_options.h"

namespace moonshard::models {

const OptionSchema& model_schema() {
  static const OptionSchema schema = [] {
    OptionSchema s("model");
    add_model_options<ModelOptions>(s);
    return s;
  }();
  return schema;
}

}  // namespace moonshard::models
