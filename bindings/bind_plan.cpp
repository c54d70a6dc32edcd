// native.plan: predictions before anything runs, for the Lua library (moonshard.plan).
#include "bindings/bindings.h"

#include <thread>

#include "bindings/convert.h"
#include "bindings/docs.h"
#include "runtime/base/check.h"
#include "runtime/base/files.h"
#include "runtime/core/device.h"
#include "runtime/plan/calibration.h"
#include "runtime/plan/collective_calibration.h"
#include "runtime/plan/goodput.h"
#include "runtime/plan/plan_request.h"
#include "runtime/sharding/sharding_options.h"

namespace moonshard::bindings {
namespace {

Json run_calibration(const Arguments& args) {
  const std::string device = args.text(1, "device");
  const double seconds = args.number(2, "seconds");
  const plan::MachineProfile profile = plan::calibrate(
      device, seconds,
      [](const std::string& what) { fmt::print(stderr, "moonshard: calibration: {}\n", what); });
  return plan::to_json(profile);
}

// Read as a profile first, so that nothing else is ever kept as one.
void write_profile(const Arguments& args) {
  const std::filesystem::path file = args.text(2, "file");
  const plan::MachineProfile profile = plan::profile_from_json(args.json(1), args.function_name());
  std::filesystem::create_directories(file.parent_path());
  write_file_atomically(file, to_text(plan::to_json(profile)));
}

Json calibration_file(const Arguments& args) {
  const auto ranks = static_cast<int64_t>(args.number(2, "ranks"));
  return Json(plan::calibration_file(args.text(1, "device"), ranks).string());
}

}  // namespace

void bind_plan(sol::table native) {
  sol::table table(native.lua_state(), sol::create);
  native["plan"] = table;
  define(table, "plan", "predict", "(options, cluster) -> table",
         "Memory by owner and time by phase of one configuration (plan/plan_request.h).",
         [](const Arguments& args) { return plan::predict_table(args.json(1), args.json(2)); });
  define(table, "plan", "search", "(options, cluster, space) -> table",
         "The best of many configurations (plan/search.h).", [](const Arguments& args) {
           return plan::search_table(args.json(1), args.json(2), args.json(3));
         });
  define(table, "plan", "has_effect", "(parallel, option) -> boolean",
         "Whether an option does anything under a wrapper (sharding/sharding_options.h).",
         [](const Arguments& args) {
           return sharding::has_effect(args.text(1, "parallel"), args.text(2, "option"));
         });
  define(table, "plan", "trace", "(options, cluster, file)",
         "Writes the simulated step of one configuration as a Chrome trace.",
         [](const Arguments& args) {
           plan::write_trace(args.json(1), args.json(2), args.text(3, "file"));
         });
  define(table, "plan", "record", "(options, cluster, steps, folder) -> record",
         "A simulated run as the record of an experiment, with traces in the folder unless it is "
         "empty.",
         [](const Arguments& args) {
           return plan::record_table(args.json(1), args.json(2), args.integer(3, "steps"),
                                     args.text(4, "folder"));
         });
  define(
      table, "plan", "goodput", "(run) -> table",
      "Wall time, goodput and best interval of saves of a run on ranks that fail "
      "(plan/goodput.h).",
      [](const Arguments& args) {
        return plan::to_json(plan::simulate_failures(plan::failure_model_from_json(args.json(1))));
      });
  define(table, "plan", "collectives", "(device, seconds) -> list",
         "Times of collectives between the ranks of this job, which all call it together "
         "(plan/collective_calibration.h).",
         [](const Arguments& args) {
           Json list = Json::array();
           const auto world = comm::this_world();
           for (const plan::CollectiveRate& rate : plan::measure_collectives(
                    *world, resolve_device(args.text(1, "device")), args.number(2, "seconds")))
             list.push_back(plan::to_json(rate));
           return list;
         });
  define(table, "plan", "calibrate", "(device, seconds) -> profile",
         "Measures this machine (plan/calibration.h).", run_calibration);
  define(table, "plan", "write_profile", "(profile, file)", "Keeps a profile in a file.",
         write_profile);
  define(table, "plan", "device_name", "(device) -> text", "As profiles name it.",
         [](const Arguments& args) { return Json(plan::device_name(args.text(1, "device"))); });
  define(table, "plan", "devices", "(device) -> table",
         "Of this machine: how many there are of its kind (of a CPU its cores), and whether ranks "
         "share it, as they do a CPU.",
         [](const Arguments& args) {
           const bool is_cpu = resolve_device(args.text(1, "device")).is_cpu();
           return Json{{"count", is_cpu ? static_cast<int>(std::thread::hardware_concurrency())
                                        : cuda_device_count()},
                       {"is_shared", is_cpu}};
         });
  define(table, "plan", "calibration_file", "(device name, ranks) -> text",
         "Where this user's calibration of a device that so many ranks share lies; empty: nowhere.",
         calibration_file);
}

}  // namespace moonshard::bindings
