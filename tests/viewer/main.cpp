// Starts the reading service before there are threads, as the program itself does.
#include <gtest/gtest.h>

#include "viewer/readers/limited_process.h"
#include "viewer/readers/requests.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  moonshard::viewer::start_reading_service(moonshard::viewer::answer_read_request);
  ::setenv("MOONSHARD_VIEW", MOONSHARD_VIEW_PROGRAM, 1);
  return RUN_ALL_TESTS();
}
