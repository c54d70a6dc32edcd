#include "runtime/models/model_options.h"

#include "runtime/models/model_options.h"

namespace moonshard::models {

const OptionSchema& model_schema() {
  static const OptionSchema schema("model", add_model_options<ModelOptions>);
  return schema;
}

}  // namespace moonshard::models
