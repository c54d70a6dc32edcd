// PNG files from images: encoded in memory, then written atomically.
#pragma once

#include <filesystem>
#include <string>

#include "viewer/backend.h"

namespace moonshard::viewer {

std::string encode_png(const Image& image);

/// Writes the file whole or not at all. Throws IoError.
void write_png(const std::filesystem::path& path, const Image& image);

}  // namespace moonshard::viewer
