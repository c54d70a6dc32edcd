// moonshard verify: runs the cells, prints what was found, and says by its exit code whether all
// hold.
#pragma once

#include <string>
#include <vector>

#include "runtime/verify/verify.h"

namespace moonshard::host {

struct VerifyOutput {
  bool as_json = false;
  bool verbose = false;
};

/// The wrapper's options, which follow the verb's own.
std::string verify_help();

/// 0 when every cell holds, 4 when one does not. `fault` names a deliberate mistake, or is empty;
/// `wrapper` are the words about parallel training.
int verify_command(verify::VerifyOptions options, const VerifyOutput& output,
                   const std::string& fault, const std::vector<std::string>& wrapper);

}  // namespace moonshard::host
