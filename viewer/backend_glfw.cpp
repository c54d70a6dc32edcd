// Frames into a window, by GLFW. The only file that depends on a desktop.
#define GLFW_INCLUDE_NONE
#include <GL/gl.h>
#include <GLFW/glfw3.h>

#include <utility>

#include <imgui.h>
#include <imgui_impl_glfw.h>
#include <imgui_impl_opengl3.h>

#include "runtime/base/check.h"
#include "viewer/backend.h"

namespace moonshard::viewer {
namespace {

// GLFW reports by callback; the text goes into the exception of the call that failed.
std::string& last_error() {
  static std::string text;
  return text;
}

[[noreturn]] void fail(const char* wanted) {
  const std::string reason = last_error().empty() ? "no reason given" : last_error();
  throw IoError(
      fmt::format("window: expected {}, got '{}'; set DISPLAY or WAYLAND_DISPLAY, or use "
                  "--screenshot OUT.png, which needs no display",
                  wanted, reason));
}

class GlfwLibrary {
 public:
  GlfwLibrary() {
    glfwSetErrorCallback([](int, const char* text) { last_error() = text ? text : ""; });
    if (!glfwInit()) fail("a display");
  }
  ~GlfwLibrary() { glfwTerminate(); }
  GlfwLibrary(const GlfwLibrary&) = delete;
  GlfwLibrary& operator=(const GlfwLibrary&) = delete;
};

class Window final : public Backend {
 public:
  explicit Window(const WindowOptions& options) {
    glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
    glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
    glfwWindowHint(GLFW_SCALE_TO_MONITOR, GLFW_TRUE);
    window_ =
        glfwCreateWindow(options.width, options.height, options.title.c_str(), nullptr, nullptr);
    if (!window_) fail("a window with OpenGL 3.3 (Debian: libgl1-mesa-dri for software drawing)");
    glfwMakeContextCurrent(window_);
    glfwSwapInterval(1);
    glfwSetWindowUserPointer(window_, this);
    glfwSetDropCallback(window_, [](GLFWwindow* window, int count, const char** paths) {
      auto* self = static_cast<Window*>(glfwGetWindowUserPointer(window));
      for (int i = 0; i < count; ++i) self->dropped_.emplace_back(paths[i]);
    });
    if (!ImGui_ImplGlfw_InitForOpenGL(window_, true) ||
        !ImGui_ImplOpenGL3_Init("#version 330 core")) {
      fail("OpenGL 3.3 to start");
    }
  }

  ~Window() override {
    ImGui_ImplOpenGL3_Shutdown();
    ImGui_ImplGlfw_Shutdown();
    glfwDestroyWindow(window_);
  }

  bool wait(double wait_s) override {
    const double before = glfwGetTime();
    glfwWaitEventsTimeout(wait_s);
    // A wait that ended early was ended by something.
    return glfwGetTime() - before < 0.98 * wait_s || glfwWindowShouldClose(window_);
  }

  bool begin_frame(double wait_s) override {
    wait_s > 0 ? glfwWaitEventsTimeout(wait_s) : glfwPollEvents();
    if (glfwWindowShouldClose(window_)) return false;
    ImGui_ImplOpenGL3_NewFrame();
    ImGui_ImplGlfw_NewFrame();
    ImGui::NewFrame();
    return true;
  }

  void end_frame() override {
    ImGui::Render();
    int width = 0, height = 0;
    glfwGetFramebufferSize(window_, &width, &height);
    glViewport(0, 0, width, height);
    const ImVec4 backdrop = ImGui::GetStyleColorVec4(ImGuiCol_WindowBg);
    glClearColor(backdrop.x, backdrop.y, backdrop.z, 1.0f);
    glClear(GL_COLOR_BUFFER_BIT);
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
    glfwSwapBuffers(window_);
  }

  float density() const override {
    float scale = 1.0f;
    glfwGetWindowContentScale(window_, &scale, nullptr);
    int width = 0, pixels = 0;
    glfwGetWindowSize(window_, &width, nullptr);
    glfwGetFramebufferSize(window_, &pixels, nullptr);
    // Where the framebuffer is already larger than the window (Wayland), ImGui scales by that
    // ratio.
    const float ratio = width > 0 ? static_cast<float>(pixels) / static_cast<float>(width) : 1.0f;
    return ratio > 0 ? scale / ratio : scale;
  }

  std::vector<std::filesystem::path> take_dropped() override { return std::exchange(dropped_, {}); }

  void wake() override { glfwPostEmptyEvent(); }

 private:
  GlfwLibrary library_;
  GLFWwindow* window_ = nullptr;
  std::vector<std::filesystem::path> dropped_;
};

}  // namespace

std::unique_ptr<Backend> make_window_backend(const WindowOptions& options) {
  return std::make_unique<Window>(options);
}

}  // namespace moonshard::viewer
