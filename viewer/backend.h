// The window seam: where frames go. One source per kind: backend_glfw.cpp (a window) and
// backend_headless.cpp (memory, by EGL without any display). Nothing else in viewer/ calls GL.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace moonshard::viewer {

/// Pixels as red, green, blue, alpha bytes; the top row comes first.
struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> rgba;
};

class Backend {
 public:
  virtual ~Backend() = default;
  /// Waits up to wait_s for input; true when some came, or a wake.
  virtual bool wait(double /*wait_s*/) { return true; }
  /// Takes input and starts an ImGui frame; waits up to wait_s for input first. False: the user
  /// closed the window, and no frame was started.
  virtual bool begin_frame(double wait_s) = 0;
  /// Draws the frame and shows it. The backdrop is the theme's window colour.
  virtual void end_frame() = 0;
  /// Pixels of screen per logical pixel for style sizes; 1 where the backend scales by itself.
  virtual float density() const { return 1.0f; }
  /// Files and folders that were dropped on the window since the last call.
  virtual std::vector<std::filesystem::path> take_dropped() { return {}; }
  /// Ends a wait; may be called from any thread.
  virtual void wake() {}
};

class HeadlessBackend : public Backend {
 public:
  /// Size of the next frames in logical pixels; the image is scale times as large each way.
  virtual void resize(int width, int height, float scale) = 0;
  /// The last frame, opaque.
  virtual Image read_pixels() = 0;
};

struct WindowOptions {
  std::string title = "moonshard";
  int width = 1440, height = 900;
};

/// Both need a living UiContext and throw IoError, saying what to install or to do, when there is
/// no display or no OpenGL 3.3.
std::unique_ptr<Backend> make_window_backend(const WindowOptions& options);
std::unique_ptr<HeadlessBackend> make_headless_backend();

}  // namespace moonshard::viewer
