// What tests that draw share: a place to draw without a display, or the reason why there is none.
#pragma once

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "runtime/base/errors.h"
#include "viewer/backend.h"
#include "viewer/context.h"

namespace moonshard::viewer {

/// Why nothing can be drawn on this machine; empty when it can. For tests that make their own
/// contexts.
inline std::string why_not_drawn() {
  try {
    const UiContext context(Theme::Dark);
    make_headless_backend();
  } catch (const IoError& error) {
    return error.what();
  }
  return "";
}

/// Pictures are compared letter by letter: without the font they would all differ.
inline std::string why_no_pictures() {
  if (!std::filesystem::exists(share_folder() / "fonts" / "DejaVuSans.ttf")) {
    return "no DejaVu font beside the program: pictures would differ by their letters";
  }
  return why_not_drawn();
}

/// A context and a back end of the given size for the length of a test.
class HeadlessTest : public ::testing::Test {
 protected:
  HeadlessTest(int width, int height) : width_(width), height_(height) {}

  void SetUp() override {
    context_ = std::make_unique<UiContext>(Theme::Light);
    try {
      backend_ = make_headless_backend();
    } catch (const IoError& error) {
      GTEST_SKIP() << error.what();
    }
    backend_->resize(width_, height_, 1.0f);
  }

  void TearDown() override {
    backend_.reset();
    context_.reset();
  }

  std::unique_ptr<UiContext> context_;
  std::unique_ptr<HeadlessBackend> backend_;

 private:
  const int width_, height_;
};

}  // namespace moonshard::viewer
