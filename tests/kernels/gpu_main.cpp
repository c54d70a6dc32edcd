// Tests of CUDA end without destructors of LibTorch's globals: on some systems they abort behind
// the last test, and the exit code of a passing run would say that it failed.
#include <gtest/gtest.h>

#include <cstdio>

#include <unistd.h>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int code = RUN_ALL_TESTS();
  std::fflush(nullptr);
  ::_exit(code);
}
