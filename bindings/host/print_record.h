// An experiment's record as text, as `moonshard profile` prints it.
#pragma once

#include "runtime/experiment/experiment_options.h"
#include "runtime/records/schema.h"

namespace moonshard::host {

void print_record(const records::Result& record);

}  // namespace moonshard::host
