// Folders that somebody made to do harm: every panel draws them, the window stays up, nothing
// outside of them is read. Also built with the address and undefined-behaviour sanitizers.
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "tests/viewer/headless.h"
#include "tests/viewer/sample_run.h"
#include "viewer/app.h"
#include "viewer/application.h"
#include "viewer/backend.h"
#include "viewer/readers/limited_process.h"
#include "viewer/tracing/memory_snapshot.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNasty = "%n%s%n \x1b[2J\x07\x01 ##x###y \xff\xfe \xe2\x80\xae../../etc";

std::string gzipped(const std::string& text) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

class Hostile : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const std::string why = why_not_drawn(); !why.empty()) GTEST_SKIP() << why;
    folder_ = make_sample_run(root_.path());
  }

  void write_point(const std::string& id, const std::string& text) {
    write_text(folder_ / "points" / id / "result.json", text);
  }

  // Draws every panel with each point selected; a crash or a hang ends the test program.
  void draw_everything(const std::vector<std::string>& points = {"p0"}) {
    ApplicationOptions options;
    options.folders = {folder_};
    Application app(options);
    const std::unique_ptr<HeadlessBackend> backend = make_headless_backend();
    // Every widget is laid out as in a window of 700 x 460; few pixels, as nobody looks at them.
    backend->resize(700, 460, 0.1f);
    app.set_density(1.0f);
    app.document().load_now();
    for (const std::string& point : points) {
      app.workspace().select(PointKey{folder_.string(), point});
      for (const std::unique_ptr<Panel>& panel : app.panels()) {
        for (int frame = 0; frame < 6; ++frame) {
          backend->begin_frame(0);
          ImGui::SetWindowFocus(panel->title());
          app.draw_frame();
          backend->end_frame();
          if (frame < 4) app.store().wait_idle();
        }
      }
    }
    seen_ = app.document().snapshot();
  }

  TemporaryFolder root_;
  fs::path folder_;
  std::shared_ptr<const Snapshot> seen_;
};

TEST_F(Hostile, DamagedResults) {
  const std::string good = to_text(
      Json{{"schema_version", 1}, {"status", "ok"}, {"metrics", {{"median_time_ms", 1.5}}}});
  const std::vector<std::string> texts = {
      "",
      "{",
      good.substr(0, good.size() / 2),
      nested(100000),
      "{\"metrics\": " + nested(300) + "}",
      "{\"metrics\": {\"a\": 1, \"a\": 2}}",
      "[1, 2, 3]",
      "\xff\xfe\x00",
      "{\"status\": 7}",
      "{\"metrics\": {\"median_time_ms\": 1e999}}",
      "{\"metrics\": {\"x\": NaN}}",
      "{\"status\": \"ok\", \"metrics\": [1], \"options\": \"text\"}"};
  for (const std::string& text : texts) {
    write_point("p0", text);
    draw_everything();
    EXPECT_EQ(seen_->runs[0].data->points.size(), 4u);
    EXPECT_EQ(seen_->runs[0].data->points[1].status, "ok") << text.substr(0, 40);
  }
}

TEST_F(Hostile, NumbersThatNobodyMeasured) {
  for (const double number : {1e308, -1e308, 5e-324, -0.0, 1e18}) {
    Json list = Json::array({number, -number, 0, number});
    write_point(
        "p0",
        to_text(Json{
            {"status", "ok"},
            {"options", {{"mode", "ghost"}, {"seq_length", number}, {"noise_multiplier", number}}},
            {"metrics",
             {{"median_time_ms", number},
              {"peak_memory_bytes", -number},
              {"tokens_per_s", number},
              {"comm_work_ms", number}}},
            {"time",
             {{"samples_ms", list},
              {"warmup_ms", list},
              {"step_ms", {{"median", number}, {"count", number}}},
              {"phases_ms",
               {{"forward", {{"median", number}}}, {"backward", {{"median", -number}}}}},
              {"phase_order", {"forward", "backward"}}}},
            {"memory",
             {{"peak_bytes", number},
              {"breakdown", {{{"owner", "a"}, {"bytes", number}}, {{"owner", "b"}, {"bytes", -1}}}},
              {"timeline",
               {{"ms", list},
                {"total", list},
                {"phase", {"x", "x", "y", "x"}},
                {"owners", {{"a", list}, {"b", list}}}}}}},
            {"layers", {{{"layer", "l"}, {"kind", "k"}, {"norm_ms", number}}}},
            {"comm", {{{"operation", "all_gather"}, {"work_ms", number}, {"exposed_ms", -number}}}},
            {"ranks", {{{"rank", number}, {"comm_work_ms", number}}}},
            {"steps", {{{"step", number}, {"clip_fraction", number}, {"loss", -number}}}},
            {"privacy",
             {{"private_engine", true},
              {"epsilon", number},
              {"delta", number},
              {"sampling_rate", number},
              {"noise_multiplier", number},
              {"steps", number},
              {"sampler", "poisson"},
              {"norms_histogram", {{"edges", list}, {"counts", {number, 1, 2}}}}}}}));
    draw_everything();
  }
}

TEST_F(Hostile, NamesThatAreMarkupElsewhere) {
  Json options{{"mode", kNasty}, {"seq_length", kNasty}, {kNasty, kNasty}, {"", ""}};
  Json metrics{{kNasty, 1.0}, {"##", 2.0}, {"", 3.0}};
  const std::string dump =
      Json{{"status", kNasty},
           {"error", kNasty},
           {"options", options},
           {"metrics", metrics},
           {"time", {{"phases_ms", {{kNasty, {{"median", 1}}}}}, {"phase_order", {kNasty}}}},
           {"layers", {{{"layer", kNasty}, {"kind", kNasty}, {"norm_ms", 1}}}},
           {"memory", {{"breakdown", {{{"owner", kNasty}, {"bytes", 10}}}}}},
           {"privacy", {{"why_no_epsilon", kNasty}}}}
          .dump(-1, ' ', false, Json::error_handler_t::replace);
  write_point("p0", dump);
  write_text(folder_ / "points/p0/log.rank0.txt",
             std::string(kNasty) + "\n" + std::string(200000, '%'));
  write_text(folder_ / "points/p0/steps.csv", std::string(kNasty) + ",b\n%n,\"unclosed\nx,y,z,w");
  write_text(folder_ / "evil%n.csv", "a\n");
  write_text(folder_ / "visualizations/%n##x.plot.json", to_text(to_json(sample_plot())));
  write_text(
      folder_ / "progress.json",
      R"({"state": "running", "current": "%n%s", "eta_s": 1e308, "total": -1, "done": 1e99})");
  write_text(folder_ / "env.json", "{\"gpus\": [\"%n\\u001b[2J\"], \"a\": " + nested(200) + "}");
  draw_everything();
}

TEST_F(Hostile, DamagedTracesSnapshotsTablesAndPlots) {
  const fs::path point = folder_ / "points/p0";
  const std::string event = R"({"ph":"X","name":"k","pid":1,"tid":2,"ts":1,"dur":2},)";
  std::string events = "{\"traceEvents\":[";
  for (int i = 0; i < 500; ++i) events += event;
  const std::string packed = gzipped(events + "{}]}");
  const std::vector<std::pair<std::string, std::string>> traces = {
      {"trace.rank0.json", events},  // ends early
      {"trace.rank0.json", R"({"traceEvents":[{"ph":"X","ts":1e308,"dur":1e308,"name":"%n"},)"
                           R"({"ph":"X","ts":-1e308,"dur":-5},{"ph":"E"},{"ph":"B","ts":0}]})"},
      {"trace.rank0.json", "not json"},
      {"trace.rank0.json", ""},
      {"trace.rank0.json.gz", packed.substr(0, packed.size() / 2)},
      {"trace.rank0.json.gz", "not gzip"},
      {"trace.rank0.json.gz", gzipped(std::string(40 << 20, ' ') + "[]")}};
  for (const auto& [name, text] : traces) {
    write_text(point / name, text);
    draw_everything();
    fs::remove(point / name);
  }
  for (const std::string& text : {std::string("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff", 11),
                                  std::string("\x80\x02]q\x00(", 6), std::string(),
                                  std::string("cos\nsystem\n(S'true'\ntR.")}) {
    write_text(point / "snapshot.pickle", text);
    draw_everything();
  }
  for (const std::string& text :
       {std::string("\"\n\"\n"), std::string(300000, ','),
        std::string("a,b\n") + std::string(1 << 20, 'x'), std::string("\0\0", 2)}) {
    write_text(point / "steps.csv", text);
    draw_everything();
  }
  Json spec = to_json(sample_plot());
  spec["panels"][0]["series"][0]["y"][0] = 1e308;
  spec["panels"][0]["y"]["scale"] = "log";
  write_text(folder_ / "visualizations/time.plot.json", to_text(spec));
  draw_everything();
  write_text(folder_ / "visualizations/time.plot.json", "{\"panels\": " + nested(100));
  draw_everything();
}

TEST_F(Hostile, LinksOutOfTheFolderAndThingsThatAreNoFiles) {
  const fs::path point = folder_ / "points/p0", secret = root_.path() / "secret.txt";
  write_text(secret, "the secret");
  fs::create_symlink(secret, point / "log.rank0.txt");
  fs::create_symlink(secret, point / "trace.rank0.json");
  fs::create_symlink("/dev/zero", point / "snapshot.pickle");
  fs::create_symlink(point, point / "points");
  ASSERT_EQ(::mkfifo((point / "log.rank1.txt").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((folder_ / "progress.json").c_str(), 0600), 0);
  fs::remove(folder_ / "points/p1/result.json");
  ASSERT_EQ(::mkfifo((folder_ / "points/p1/result.json").c_str(), 0600), 0);
  draw_everything({"p0", "p1"});
  const std::atomic<bool> stop = false;
  EXPECT_THROW(
      read_file<std::string>(
          {ReadRequest::Kind::Log, folder_.string(), {"points/p0/log.rank0.txt"}}, {}, stop),
      IoError);
}

TEST_F(Hostile, AFolderThatChangesWhileItIsOpen) {
  ApplicationOptions options;
  options.folders = {folder_};
  options.point_id = "p0";
  Application app(options);
  const std::unique_ptr<HeadlessBackend> backend = make_headless_backend();
  backend->resize(700, 460, 1.0f);
  app.set_density(1.0f);
  const auto frames = [&](int count) {
    for (int i = 0; i < count; ++i) {
      backend->begin_frame(0);
      app.draw_frame();
      backend->end_frame();
    }
  };
  app.document().load_now();
  frames(3);
  for (int round = 0; round < 6; ++round) {  // grows, shrinks
    write_text(folder_ / "points/p0/log.rank0.txt", std::string(round % 2 ? 10 : 3000000, 'x'));
    write_point("p0", to_text(Json{{"status", "ok"}, {"metrics", {{"m", round}}}}));
    app.document().load_now();
    frames(3);
  }
  fs::remove_all(folder_);
  app.document().load_now();
  frames(3);
  EXPECT_EQ(app.workspace().run(0).points.size(), 4u);  // what was read stays
  EXPECT_NE(app.workspace().snapshot().runs[0].error, "");
  make_sample_run(root_.path());
  frames(3);
}

TEST_F(Hostile, TheReadingProcessDiesAndTheWindowDoesNot) {
  const std::atomic<bool> stop = false;
  ReadRequest request{static_cast<ReadRequest::Kind>(99), folder_.string(), {"sweep.json"}};
  EXPECT_THROW(read_file<std::string>(request, {}, stop), IoError);
  // Parsing needs memory; what the file claims is not what it gets.
  write_text(folder_ / "points/p0/snapshot.pickle",
             std::string("\x80\x04\x8e\x00\x00\x00\x00\x00\x10\x00\x00", 11));
  EXPECT_THROW(
      read_file<MemorySnapshot>(
          {ReadRequest::Kind::Snapshot, folder_.string(), {"points/p0/snapshot.pickle"}}, {}, stop),
      IoError);
  EXPECT_EQ(
      read_file<records::PlotSpec>(
          {ReadRequest::Kind::Plot, folder_.string(), {"visualizations/time.plot.json"}}, {}, stop)
          .title,
      "Step time");
}

TEST_F(Hostile, AKilledReadingServiceIsStartedAgain) {
  const std::atomic<bool> stop = false;
  const ReadRequest request{
      ReadRequest::Kind::Plot, folder_.string(), {"visualizations/time.plot.json"}};
  const pid_t before = reading_service_process();
  ASSERT_GT(before, 0);
  ASSERT_EQ(::kill(before, SIGKILL), 0);
  EXPECT_EQ(read_file<records::PlotSpec>(request, {}, stop).title, "Step time");
  EXPECT_NE(reading_service_process(), before);
}

}  // namespace
}  // namespace moonshard::viewer
