#include "viewer/render/png.h"

#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
#define STBI_WRITE_NO_STDIO
#include <stb/stb_image_write.h>

#include "runtime/base/check.h"
#include "runtime/base/staged_file.h"

namespace moonshard::viewer {

std::string encode_png(const Image& image) {
  MS_ASSERT(image.rgba.size() == static_cast<size_t>(image.width) * image.height * 4,
            "{} bytes for {} x {} pixels", image.rgba.size(), image.width, image.height);
  // Figures are opaque: three channels make the file smaller and the encoder faster.
  std::string rgb(image.rgba.size() / 4 * 3, '\0');
  for (size_t pixel = 0; pixel < image.rgba.size() / 4; ++pixel) {
    for (size_t channel = 0; channel < 3; ++channel) {
      rgb[pixel * 3 + channel] = static_cast<char>(image.rgba[pixel * 4 + channel]);
    }
  }
  std::string png;
  const auto append = [](void* target, void* bytes, int size) {
    static_cast<std::string*>(target)->append(static_cast<const char*>(bytes),
                                              static_cast<size_t>(size));
  };
  stbi_write_force_png_filter =
      0;  // flat areas compress best unfiltered, and five trials are saved
  stbi_write_png_to_func(append, &png, image.width, image.height, 3, rgb.data(), image.width * 3);
  MS_ASSERT(!png.empty(), "PNG of {} x {} pixels", image.width, image.height);
  return png;
}

void write_png(const std::filesystem::path& path, const Image& image) {
  write_file_atomically(path, encode_png(image));
}

}  // namespace moonshard::viewer
