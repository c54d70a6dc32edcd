// Verbs that need no Lua: experiments, this machine, the viewer.
#pragma once

#include "bindings/host/verbs.h"

namespace moonshard::host {

/// moonshard profile: one experiment by flags, one result on the screen or as JSON, or in a file.
int profile_command(const Verb& verb, const Words& words);
std::string profile_help(const Verb& verb);

/// moonshard point FOLDER ID: one point of a sweep, as its child process.
int point_command(const Verb& verb, const Words& words);

/// moonshard experiment OPTIONS.json RESULT.json: one experiment as a rank of a job that a script
/// started; rank 0 writes the record.
int experiment_command(const Verb& verb, const Words& words);

int doctor_command(const Verb& verb, const Words& words);
std::string doctor_help(const Verb& verb);

/// moonshard view: executes moonshard-view with these arguments; returns only on failure.
int view_command(const Verb& verb, const Words& words);

}  // namespace moonshard::host
