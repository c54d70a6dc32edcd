// Frames into memory: an EGL context without surface or display (Mesa's surfaceless platform first,
// then whatever the default display is) and a framebuffer object. Software rendering is enough.
#define GL_GLEXT_PROTOTYPES 1
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/gl.h>
#include <GL/glext.h>

#include <cmath>
#include <cstring>

#include <imgui.h>
#include <imgui_impl_opengl3.h>

#include "runtime/base/check.h"
#include "viewer/backend.h"

namespace moonshard::viewer {
namespace {

// A picture of this many pixels takes 256 MiB; specs are untrusted.
constexpr double kMaxPixels = 64.0 * (1 << 20);

constexpr const char* kRemedy =
    "install the software driver (Debian: libegl-mesa0 libgl1-mesa-dri) and try again";

class EglContext {
 public:
  EglContext() {
    display_ = open_display();
    if (!eglBindAPI(EGL_OPENGL_API)) fail("desktop OpenGL in EGL");
    const EGLint wanted[] = {EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT, EGL_SURFACE_TYPE, EGL_DONT_CARE,
                             EGL_NONE};
    EGLConfig config = nullptr;
    EGLint count = 0;
    if (!eglChooseConfig(display_, wanted, &config, 1, &count) || count == 0) {
      fail("an EGL configuration for OpenGL");
    }
    const EGLint version[] = {EGL_CONTEXT_MAJOR_VERSION,
                              3,
                              EGL_CONTEXT_MINOR_VERSION,
                              3,
                              EGL_CONTEXT_OPENGL_PROFILE_MASK,
                              EGL_CONTEXT_OPENGL_CORE_PROFILE_BIT,
                              EGL_NONE};
    context_ = eglCreateContext(display_, config, EGL_NO_CONTEXT, version);
    if (context_ == EGL_NO_CONTEXT) fail("an OpenGL 3.3 context");
    if (!eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, context_)) {
      fail("a context without a surface");
    }
  }

  ~EglContext() {
    eglMakeCurrent(display_, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
    if (context_ != EGL_NO_CONTEXT) eglDestroyContext(display_, context_);
    eglTerminate(display_);
  }

  EglContext(const EglContext&) = delete;
  EglContext& operator=(const EglContext&) = delete;

 private:
  static EGLDisplay open_display() {
    const char* extensions = eglQueryString(EGL_NO_DISPLAY, EGL_EXTENSIONS);
    if (extensions && std::strstr(extensions, "EGL_MESA_platform_surfaceless")) {
      EGLDisplay display =
          eglGetPlatformDisplay(EGL_PLATFORM_SURFACELESS_MESA, EGL_DEFAULT_DISPLAY, nullptr);
      if (display != EGL_NO_DISPLAY && eglInitialize(display, nullptr, nullptr)) return display;
    }
    EGLDisplay display = eglGetDisplay(EGL_DEFAULT_DISPLAY);
    if (display != EGL_NO_DISPLAY && eglInitialize(display, nullptr, nullptr)) return display;
    fail("EGL to start");
  }

  [[noreturn]] static void fail(const char* wanted) {
    throw IoError(fmt::format("drawing without a display: expected {}, got EGL error 0x{:x}; {}",
                              wanted, eglGetError(), kRemedy));
  }

  EGLDisplay display_ = EGL_NO_DISPLAY;
  EGLContext context_ = EGL_NO_CONTEXT;
};

class Headless final : public HeadlessBackend {
 public:
  Headless() {
    glGenFramebuffers(1, &framebuffer_);
    glGenRenderbuffers(1, &color_);
    if (!ImGui_ImplOpenGL3_Init("#version 330 core")) {
      throw IoError(
          fmt::format("drawing without a display: OpenGL 3.3 does not start; {}", kRemedy));
    }
    resize(640, 480, 1.0f);
  }

  ~Headless() override {
    ImGui_ImplOpenGL3_Shutdown();
    glDeleteRenderbuffers(1, &color_);
    glDeleteFramebuffers(1, &framebuffer_);
  }

  void resize(int width, int height, float scale) override {
    const int pixels_x = static_cast<int>(std::lround(width * scale));
    const int pixels_y = static_cast<int>(std::lround(height * scale));
    GLint limit = 0;
    glGetIntegerv(GL_MAX_RENDERBUFFER_SIZE, &limit);
    if (pixels_x < 1 || pixels_y < 1 || pixels_x > limit || pixels_y > limit ||
        static_cast<double>(pixels_x) * pixels_y > kMaxPixels) {
      throw UsageError(fmt::format(
          "picture: expected at most {} pixels each way and {:.0f} million in all, got {} x {}; "
          "lower --scale or the size",
          limit, kMaxPixels / 1e6, pixels_x, pixels_y));
    }
    ImGuiIO& io = ImGui::GetIO();
    io.DisplaySize = ImVec2(static_cast<float>(width), static_cast<float>(height));
    io.DisplayFramebufferScale = ImVec2(scale, scale);
    pixels_x_ = pixels_x;
    pixels_y_ = pixels_y;
    glBindRenderbuffer(GL_RENDERBUFFER, color_);
    glRenderbufferStorage(GL_RENDERBUFFER, GL_RGBA8, pixels_x_, pixels_y_);
    glBindFramebuffer(GL_FRAMEBUFFER, framebuffer_);
    glFramebufferRenderbuffer(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_RENDERBUFFER, color_);
    if (glCheckFramebufferStatus(GL_FRAMEBUFFER) != GL_FRAMEBUFFER_COMPLETE) {
      throw IoError(fmt::format("drawing without a display: no framebuffer of {} x {} pixels; {}",
                                pixels_x_, pixels_y_, kRemedy));
    }
  }

  bool begin_frame(double) override {
    ImGui::GetIO().DeltaTime = 1.0f / 60.0f;
    ImGui_ImplOpenGL3_NewFrame();
    ImGui::NewFrame();
    return true;
  }

  void end_frame() override {
    ImGui::Render();
    glBindFramebuffer(GL_FRAMEBUFFER, framebuffer_);
    glViewport(0, 0, pixels_x_, pixels_y_);
    const ImVec4 backdrop = ImGui::GetStyleColorVec4(ImGuiCol_WindowBg);
    glClearColor(backdrop.x, backdrop.y, backdrop.z, 1.0f);
    glClear(GL_COLOR_BUFFER_BIT);
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
  }

  Image read_pixels() override {
    Image image{pixels_x_, pixels_y_, {}};
    const size_t row_bytes = static_cast<size_t>(pixels_x_) * 4;
    image.rgba.resize(row_bytes * static_cast<size_t>(pixels_y_));
    glBindFramebuffer(GL_FRAMEBUFFER, framebuffer_);
    glPixelStorei(GL_PACK_ALIGNMENT, 1);
    for (int row = 0; row < pixels_y_; ++row) {  // GL counts from the bottom
      glReadPixels(0, pixels_y_ - 1 - row, pixels_x_, 1, GL_RGBA, GL_UNSIGNED_BYTE,
                   image.rgba.data() + row_bytes * static_cast<size_t>(row));
    }
    for (size_t i = 3; i < image.rgba.size(); i += 4) image.rgba[i] = 255;
    return image;
  }

 private:
  EglContext context_;  // first: GL calls need it from construction to destruction
  GLuint framebuffer_ = 0, color_ = 0;
  int pixels_x_ = 0, pixels_y_ = 0;
};

}  // namespace

std::unique_ptr<HeadlessBackend> make_headless_backend() {
  return std::make_unique<Headless>();
}

}  // namespace moonshard::viewer
