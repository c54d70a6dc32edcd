#include "tests/viewer/golden.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <gtest/gtest.h>

#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_ONLY_PNG
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wshadow"
#include <stb/stb_image.h>
#pragma GCC diagnostic pop

#include "viewer/render/render_file.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

Image read_png(const fs::path& path) {
  Image image;
  int channels = 0;
  stbi_uc* data = stbi_load(path.c_str(), &image.width, &image.height, &channels, 4);
  if (!data) return {};
  image.rgba.assign(data, data + static_cast<size_t>(image.width) * image.height * 4);
  stbi_image_free(data);
  return image;
}

}  // namespace

double different_share(const Image& a, const Image& b) {
  constexpr int kBlock = 6;
  int blocks = 0, different = 0;
  for (int y = 0; y + kBlock <= a.height; y += kBlock) {
    for (int x = 0; x + kBlock <= a.width; x += kBlock) {
      double most = 0;
      for (size_t channel = 0; channel < 3; ++channel) {
        double sum = 0;
        for (int dy = 0; dy < kBlock; ++dy) {
          for (int dx = 0; dx < kBlock; ++dx) {
            const size_t at = (static_cast<size_t>(y + dy) * a.width + x + dx) * 4 + channel;
            sum += static_cast<double>(a.rgba[at]) - static_cast<double>(b.rgba[at]);
          }
        }
        most = std::max(most, std::abs(sum) / (kBlock * kBlock));
      }
      ++blocks;
      different += most > 20;
    }
  }
  return static_cast<double>(different) / blocks;
}

void expect_as_stored(const Image& image, const std::string& name) {
  const fs::path path = fs::path(MOONSHARD_SOURCE_DIR) / "tests/golden" / (name + ".png");
  if (std::getenv("MOONSHARD_UPDATE_GOLDEN")) {
    fs::create_directories(path.parent_path());
    write_png(path, image);
    return;
  }
  const Image stored = read_png(path);
  const bool same_size = stored.width == image.width && stored.height == image.height;
  const double share = same_size ? different_share(image, stored) : 1.0;
  EXPECT_LT(share, 0.01) << path;
  if (share < 0.01) return;
  const fs::path kept = fs::temp_directory_path() / ("moonshard_" + path.filename().string());
  write_png(kept, image);
  ADD_FAILURE() << "the picture as it is: " << kept;
}

}  // namespace moonshard::viewer
