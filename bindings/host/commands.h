// The verbs of the program that need no Lua. Each returns an exit code; errors are thrown.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace moonshard::host {

/// moonshard profile: one experiment by flags, one result on the screen or as JSON, or in a file.
int profile_command(const std::vector<std::string>& words, bool as_json, const std::string& output);
std::string profile_help();
/// The ranks that these words ask for. Throws UsageError for any mistake in them, before ranks are
/// started.
int64_t profile_ranks(const std::vector<std::string>& words);

/// moonshard point FOLDER ID: one point of a sweep, as its child process.
int point_command(const std::string& folder, const std::string& id);

/// moonshard experiment OPTIONS.json RESULT.json: one experiment as a rank of a job that a script
/// started; rank 0 writes the record.
int experiment_command(const std::string& options_file, const std::string& result_file);

int doctor_command(bool as_json);

/// moonshard view: starts moonshard-view with the words; does not return when that works.
int view_command(const std::vector<std::string>& words);

/// moonshard completion bash|zsh: the completion script.
int completion_command(const std::string& shell);

}  // namespace moonshard::host
