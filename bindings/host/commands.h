// The verbs of the program that need no Lua. Each returns an exit code; errors are thrown.
#pragma once

#include <string>
#include <vector>

namespace moonshard::host {

/// moonshard profile: one experiment by flags, one result on the screen or as JSON, or in a file.
int profile_command(const std::vector<std::string>& words, bool as_json, const std::string& output);
std::string profile_help();

/// moonshard point FOLDER ID: one point of a sweep, as its child process.
int point_command(const std::string& folder, const std::string& id);

int doctor_command(bool as_json);

/// moonshard view: starts moonshard-view with the words; does not return when that works.
int view_command(const std::vector<std::string>& words);

/// moonshard completion bash|zsh: the completion script.
int completion_command(const std::string& shell);

}  // namespace moonshard::host
