// How long the readers take on this machine and how much memory they need, for one, two and four
// times as many runs, points and events. Each measurement is a process of its own, so that its
// peak is its own. Prints a table; with --check it fails above the figures of the issue.
//
//   bench_readers [events] [points] [--check]
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>

#include "runtime/input/json_stream.h"
#include "tests/viewer/kineto_text.h"
#include "tests/viewer/sample_run.h"
#include "viewer/readers/readers.h"
#include "viewer/tracing/trace.h"

namespace moonshard::viewer {
namespace {

namespace fs = std::filesystem;

struct Measured {
  double seconds = 0, cpu_seconds = 0, peak_mib = 0;
};

// The best of three, each in a process of its own that starts small: "bench_readers --read KIND
// PATH" prints one Measured.
Measured measure(const std::string& kind, const fs::path& path) {
  Measured best{1e9, 1e9, 0};
  const std::string command =
      fmt::format("/proc/{}/exe --read {} '{}'", getpid(), kind, path.string());
  for (int i = 0; i < 3; ++i) {
    std::FILE* child = popen(command.c_str(), "r");
    Measured made;
    if (child == nullptr ||
        std::fscanf(child, "%lf %lf %lf", &made.seconds, &made.cpu_seconds, &made.peak_mib) != 3) {
      std::abort();
    }
    pclose(child);
    best.seconds = std::min(best.seconds, made.seconds);
    best.cpu_seconds = std::min(best.cpu_seconds, made.cpu_seconds);
    best.peak_mib = made.peak_mib;
  }
  return best;
}

void read_once(const std::string& kind, const fs::path& path) {
  if (kind == "trace") {
    read_trace({path});
  } else if (kind == "run") {
    read_run(path);
  } else if (kind == "runs") {
    for (const auto& entry : fs::directory_iterator(path)) read_run(entry.path());
  } else {  // tokens
    FileSource source(open_plain_file(path), {});
    JsonStreamOptions options;
    options.max_bytes = 4ull << 30;
    options.refuse_duplicates = false;
    JsonStream stream(source, "trace", options);
    if (kind == "skip") {
      stream.next();
      while (stream.next() == JsonToken::Key) stream.skip_value();
    } else {
      while (stream.next() != JsonToken::End) {
      }
    }
  }
}

int measure_here(const std::string& kind, const fs::path& path) {
  const auto begin = std::chrono::steady_clock::now();
  read_once(kind, path);
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  std::printf("%f %f %f\n", taken.count(), seconds(usage.ru_utime) + seconds(usage.ru_stime),
              static_cast<double>(usage.ru_maxrss) / 1024);
  return 0;
}

double mib_of(const fs::path& path) {
  double bytes = 0;
  if (fs::is_regular_file(path)) return static_cast<double>(fs::file_size(path)) / (1 << 20);
  for (const auto& entry : fs::recursive_directory_iterator(path)) {
    if (entry.is_regular_file()) bytes += static_cast<double>(entry.file_size());
  }
  return bytes / (1 << 20);
}

bool report(const std::string& what, const Measured& made, double text_mib, double most_seconds) {
  const bool good = made.seconds <= most_seconds && made.peak_mib <= 3 * text_mib + 16;
  std::printf(
      "%-28s %7.3f s  cpu %7.3f s  %7.1f MiB/s  peak %6.1f MiB of %7.1f  limit %4.1f s  %s\n",
      what.c_str(), made.seconds, made.cpu_seconds, text_mib / made.seconds, made.peak_mib,
      text_mib, most_seconds, good ? "" : "ABOVE");
  return good;
}

// A result of about 50 KB, as large as those of real points with a timeline.
Json sample_result(int index) {
  Json options = Json::object(), metrics = Json::object(), steps = Json::array();
  for (int i = 0; i < 85; ++i)
    options[fmt::format("option_{}", i)] = i % 3 ? Json(i) : Json("text");
  for (int i = 0; i < 30; ++i) metrics[fmt::format("metric_{}", i)] = index * 1.37 + i;
  for (int i = 0; i < 20; ++i)
    steps.push_back({{"step", i}, {"loss", 1.0 / (i + 1)}, {"time_ms", 5.5}});
  std::vector<double> numbers(240);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = 1000.0 * static_cast<double>(i) + index;
  Json owners = Json::object();
  for (int i = 0; i < 17; ++i) owners[fmt::format("owner_{}", i)] = numbers;
  return Json{
      {"schema_version", 1},
      {"status", "ok"},
      {"options", options},
      {"metrics", metrics},
      {"steps", steps},
      {"memory", {{"timeline", {{"ms", numbers}, {"total", numbers}, {"owners", owners}}}}}};
}

void write_run(const fs::path& folder, int num_points) {
  Json points = Json::array();
  for (int i = 0; i < num_points; ++i) {
    const std::string id = fmt::format("p{}", i);
    const Json result = sample_result(i);
    points.push_back({{"id", id}, {"options", result["options"]}});
    write_text(folder / "points" / id / "result.json", to_text(result));
    write_text(folder / "points" / id / "status", "ok\n");
  }
  write_text(folder / "sweep.json",
             to_text(Json{{"schema_version", 1}, {"name", "bench"}, {"points", points}}));
}

fs::path write_trace(const fs::path& folder, int64_t num_events) {
  const fs::path path = folder / "trace.json";
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) std::abort();
  write_kineto_text({num_events, 0}, [&](const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), file);
  });
  std::fclose(file);
  return path;
}

bool bench_traces(int64_t events) {
  bool good = true;
  for (const int times : {1, 2, 4}) {
    TemporaryFolder folder;
    const fs::path path = write_trace(folder.path(), events * times);
    const double text = mib_of(path), limit = 3.0 * static_cast<double>(events) / 1e6 * times;
    good &= report(fmt::format("{} events", events * times), measure("trace", path), text, limit);
    if (times == 1) {
      report("  its tokens", measure("tokens", path), text, 3);
      report("  its text passed over", measure("skip", path), text, 3);
    }
    const std::string command = "gzip -1 '" + path.string() + "'";
    if (std::system(command.c_str()) != 0) continue;
    good &= report(fmt::format("{} events, gzip", events * times),
                   measure("trace", path.string() + ".gz"), text, limit);
  }
  return good;
}

bool bench_runs(int points) {
  bool good = true;
  for (const int times : {1, 2, 4}) {
    TemporaryFolder folder;
    write_run(folder.path() / "run", points * times);
    good &= report(fmt::format("one run of {} points", points * times),
                   measure("run", folder.path() / "run"), mib_of(folder.path()),
                   0.4 * times * points / 1000);
  }
  for (const int times : {1, 2, 4}) {
    TemporaryFolder folder;
    for (int i = 0; i < points * times; ++i) {
      write_run(folder.path() / fmt::format("run_{}", i), 1);
    }
    good &=
        report(fmt::format("{} runs of one point", points * times), measure("runs", folder.path()),
               mib_of(folder.path()), 0.4 * times * points / 1000);
  }
  return good;
}

}  // namespace
}  // namespace moonshard::viewer

int main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--read") == 0) {
    return moonshard::viewer::measure_here(argv[2], argv[3]);
  }
  int64_t numbers[2] = {1'000'000, 1000};
  bool check = false;
  for (int i = 1, place = 0; i < argc; ++i) {
    if (std::strcmp(argv[i], "--check") == 0) {
      check = true;
    } else if (place < 2) {
      numbers[place++] = std::atoll(argv[i]);
    }
  }
  bool good = moonshard::viewer::bench_runs(static_cast<int>(numbers[1]));
  good &= moonshard::viewer::bench_traces(numbers[0]);
  return check && !good ? 1 : 0;
}
