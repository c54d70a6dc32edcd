// moonshard verify: runs the cells, prints what was found, and says by its exit code whether all
// hold.
#pragma once

#include <string>

#include "runtime/verify/verify.h"

namespace moonshard::host {

struct VerifyOutput {
  bool as_json = false;
  bool verbose = false;
};

/// 0 when every cell holds, 4 when one does not. `fault` names a deliberate mistake, or is empty.
int verify_command(const verify::VerifyOptions& options, const VerifyOutput& output,
                   const std::string& fault);

}  // namespace moonshard::host
