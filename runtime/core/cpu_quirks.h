// Makes LibTorch's CPU libraries work on the machine at hand.
#pragma once

namespace moonshard {

/// Does nothing by itself: a program that calls it links cpu_quirks.cpp, whose constructor does the
/// work before main.
void prepare_cpu_libraries();

}  // namespace moonshard
