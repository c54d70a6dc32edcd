// Two threads. Only the messenger talks to the board, which may be slow or not answer at all when
// its host is stopped; the judge never blocks, so that timeouts hold whatever happens to the board.
// Beginning a collective costs the caller's thread one lock.
#include "runtime/comm/watchdog.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "runtime/comm/missing_ranks.h"
#include "runtime/comm/pulse.h"

namespace moonshard::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kTick = 0.1;
constexpr double kPatience = 1.0;    // a collective open for longer: check the other ranks
constexpr double kBoardGrace = 2.0;  // how long a board may be out of reach
constexpr double kLastWords = 3.0;   // how long explain waits for the others
// What others posted is kept here too, for the case that the board is lost with its host. Each look
// asks for every rank: the more ranks, the less often.
constexpr double kLooksPerSecond = 32;
constexpr int kRanksPerMessage = 64;
constexpr size_t kRecent = 16;  // collectives listed in a pulse

void print_and_end(const std::string& report, const std::function<void()>& before_end) {
  fmt::print(stderr, "moonshard: {}\n", report);
  if (before_end) before_end();
  // Another thread may hold stdout's lock for ever; then its buffer is lost.
  if (::ftrylockfile(stdout) == 0) std::fflush(stdout);
  std::fflush(stderr);
  ::_exit(1);
}

std::chrono::duration<double> seconds(double count) {
  return Seconds(count);
}

}  // namespace

struct Watchdog::State {
  struct Entry {
    Collective collective;
    std::function<bool()> is_done;
    double begun = 0;           // in watch time
    bool is_abandoned = false;  // failed and explained: not judged any more
  };

  State(std::shared_ptr<Board> job_board, WatchdogOptions given)
      : board(std::move(job_board)),
        options(std::move(given)),
        tick(std::min(kTick, options.interval_s)),
        patience(std::min(kPatience, options.timeout_s / 2)),
        process(this_process()),
        sightings(static_cast<size_t>(options.world)),
        last_beats(static_cast<size_t>(options.world)) {
    if (!options.on_fatal) {
      options.on_fatal = [before_end = options.before_end](const std::string& report) {
        print_and_end(report, before_end);
      };
    }
  }

  const std::shared_ptr<Board> board;
  WatchdogOptions options;
  const double tick, patience;
  const ProcessIdentity process;

  std::mutex mutex;
  std::condition_variable wake_messenger, wake_judge, changed;

  // Collectives, the oldest first: all that are open, and the last ones that are done.
  std::deque<std::shared_ptr<Entry>> entries;
  int64_t started = 0;
  // Time that passes only while this process runs: being stopped does not count towards a timeout.
  double now = 0;

  RankState state = RankState::Running;
  std::string error;
  int64_t version = 0, posted_version = -1;  // of the pulse's content
  int64_t beat = 0;

  std::vector<Sighting> sightings;
  std::vector<std::pair<int64_t, double>> last_beats;  // beat, and when it was first seen
  bool look_wanted = false;                            // in every round
  int64_t looks_asked = 0, looks_done = 0;             // single rounds, for waiting callers
  std::string board_error;
  double board_error_since = 0;

  bool is_explaining = false, is_over = false;  // is_over: on_fatal has been called
  bool stop = false, messenger_ended = false;
  std::thread messenger, judge_thread;

  std::shared_ptr<Entry> find(int64_t number) const {
    const auto found = std::find_if(entries.rbegin(), entries.rend(), [&](const auto& entry) {
      return entry->collective.number == number;
    });
    return found != entries.rend() ? *found : nullptr;
  }

  static bool is_open(const Entry& entry) {
    return !entry.collective.is_done && !entry.is_abandoned;
  }

  std::shared_ptr<Entry> oldest_open() const {
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [](const auto& entry) { return is_open(*entry); });
    return found != entries.end() ? *found : nullptr;
  }

  void change_state(RankState to, const std::string& text) {
    state = to;
    error = text;
    ++version;
    wake_messenger.notify_one();
  }

  // Waits until the latest pulse is on the board, or cannot be posted.
  void wait_until_posted(std::unique_lock<std::mutex>& lock, double most_s) {
    const int64_t wanted = version;
    changed.wait_for(lock, seconds(most_s),
                     [&] { return posted_version >= wanted || !board_error.empty(); });
  }

  // Looks at all ranks once more. Waits at most this long.
  void look_again(std::unique_lock<std::mutex>& lock, double most_s) {
    const int64_t wanted = ++looks_asked;
    wake_messenger.notify_one();
    changed.wait_for(lock, seconds(most_s), [&] { return looks_done >= wanted; });
  }

  std::string board_trouble() const {
    if (!board_error.empty()) {
      return fmt::format("the job's board is gone with its host, {}: {}", board->host(),
                         board_error);
    }
    if (looks_done < looks_asked) {
      return fmt::format(
          "the job's board does not answer: its host, {}, may be stopped; what follows may be old",
          board->host());
    }
    return "";
  }

  // --- the messenger ---

  Pulse pulse() const {
    Pulse result;
    result.beat = beat;
    result.process = process;
    result.state = state;
    result.error = error;
    result.started = started;
    const size_t first = entries.size() > kRecent ? entries.size() - kRecent : 0;
    const auto open = oldest_open();
    if (open != nullptr && first > 0 && open->collective.number < entries[first]->collective.number)
      result.recent.push_back(open->collective);
    for (size_t i = first; i < entries.size(); ++i) result.recent.push_back(entries[i]->collective);
    return result;
  }

  using Text = std::optional<std::string>;
  Sighting look_for(int rank, const Text& text, const Text& end, const Text& gone) {
    Sighting seen;
    if (text) seen.pulse = read_pulse(*text);
    if (end) seen.end = *end;
    if (!seen.pulse) return seen;
    seen.life = look_at(seen.pulse->process);
    if (!seen.end.empty() || seen.pulse->state != RankState::Running) return seen;
    if (seen.life == Life::Gone) {
      board->post(gone_key(rank), "its process is gone");  // ranks elsewhere cannot look
    } else if (seen.life == Life::Unknown && gone) {
      seen.end = *gone;
    }
    return seen;
  }

  // Many ranks by one message: one each would take longer than a heartbeat where the way is long.
  void look_at_all() {
    for (int first = 0; first < options.world; first += kRanksPerMessage) {
      const int last = std::min(options.world, first + kRanksPerMessage);
      std::vector<std::string> keys;
      for (int rank = first; rank < last; ++rank)
        keys.insert(keys.end(), {pulse_key(rank), end_key(rank), gone_key(rank)});
      keep_sightings(first, board->read_all(keys));
    }
  }

  void keep_sightings(int first, const std::vector<Text>& texts) {
    for (size_t i = 0; i + 2 < texts.size(); i += 3) {
      const int rank = first + static_cast<int>(i / 3);
      if (rank == options.rank) continue;
      Sighting seen = look_for(rank, texts[i], texts[i + 1], texts[i + 2]);
      const std::lock_guard lock(mutex);
      auto& [last, since] = last_beats[static_cast<size_t>(rank)];
      if (seen.pulse && seen.pulse->beat != last) {
        last = seen.pulse->beat;
        since = now;
      }
      seen.silent_s = seen.pulse ? now - since : 0;
      sightings[static_cast<size_t>(rank)] = std::move(seen);
    }
  }

  // The board cannot be reached: what was kept stands, and processes of this machine can be seen.
  // When its host is gone the others end one after another, and can no longer say why: only one
  // that was seen to be gone before is a cause.
  void look_without_board() {
    const std::lock_guard lock(mutex);
    const int host = board->host_rank();
    bool host_is_gone = false;
    if (host >= 0) {
      const auto& pulse = sightings[static_cast<size_t>(host)].pulse;
      host_is_gone = !pulse || look_at(pulse->process) != Life::Alive;
    }
    for (int rank = 0; rank < options.world; ++rank) {
      if (rank == options.rank) continue;
      Sighting& seen = sightings[static_cast<size_t>(rank)];
      seen.lost_with = board->host();
      seen.hosted_board = rank == host;
      if (!seen.pulse || seen.life == Life::Gone) continue;
      seen.life = look_at(seen.pulse->process);
      seen.ended_after_board = seen.life == Life::Gone && host_is_gone && rank != host;
    }
  }

  void run_messenger() {
    const double between_looks = std::max(options.interval_s, options.world / kLooksPerSecond);
    Clock::time_point last_look{};
    Clock::time_point last_post{};
    std::unique_lock lock(mutex);
    while (true) {
      const bool due = Seconds(Clock::now() - last_post).count() >= options.interval_s;
      const bool news = posted_version < version;
      const int64_t looks = looks_asked;
      const bool look = look_wanted || looks_done < looks ||
                        Seconds(Clock::now() - last_look).count() >= between_looks;
      if (stop && !news) break;
      if (due || news || look) {
        ++beat;
        const int64_t posting = version;
        const std::string text = to_text(pulse());
        lock.unlock();
        std::string trouble;
        try {
          board->post(pulse_key(options.rank), text);
          if (look) look_at_all();
        } catch (const std::exception& problem) {
          trouble = problem.what();
          look_without_board();
        }
        last_post = Clock::now();
        if (look) last_look = last_post;
        lock.lock();
        if (trouble.empty()) {
          posted_version = posting;
          if (look) looks_done = looks;
        } else if (board_error.empty()) {
          board_error_since = now;
        }
        board_error = trouble;
        changed.notify_all();
        if (stop) break;
      }
      wake_messenger.wait_for(lock, seconds(tick));
    }
    messenger_ended = true;
    changed.notify_all();
  }

  // --- the judge ---

  // Polls open collectives without holding the lock, which begin() takes.
  void drop_what_is_done(std::unique_lock<std::mutex>& lock) {
    std::vector<std::shared_ptr<Entry>> open;
    for (const auto& entry : entries)
      if (is_open(*entry)) open.push_back(entry);
    std::vector<std::function<bool()>> questions;
    for (const auto& entry : open) questions.push_back(entry->is_done);
    lock.unlock();
    std::vector<bool> answers;
    for (const auto& is_done : questions) answers.push_back(is_done && is_done());
    lock.lock();
    for (size_t i = 0; i < open.size(); ++i) {
      if (answers[i] && is_open(*open[i])) {
        open[i]->collective.is_done = true;
        open[i]->is_done = nullptr;
        ++version;
      }
    }
    while (entries.size() > kRecent && !is_open(*entries.front())) entries.pop_front();
    lock.unlock();
    questions.clear();  // may free what the collectives held
    lock.lock();
  }

  // Why the collective can never finish, or has timed out; empty if it may still finish.
  std::string why_unfinishable(const Entry& entry) const {
    const double age = now - entry.begun;
    const std::string name = name_of(entry.collective);
    if (age >= options.timeout_s) {
      return fmt::format(
          "rank {}: {} has not ended after {:.1f} s; MOONSHARD_TIMEOUT sets how long one may take",
          options.rank, name, age);
    }
    if (age < patience) return "";
    const std::string hopeless = fmt::format("rank {}: {} cannot end", options.rank, name);
    if (!board_error.empty() && now - board_error_since > kBoardGrace) return hopeless;
    for (int rank = 0; rank < options.world; ++rank) {
      if (rank != options.rank &&
          judge(entry.collective, sightings[static_cast<size_t>(rank)]).is_certain)
        return hopeless;
    }
    return "";
  }

  void run_judge() {
    Clock::time_point last = Clock::now();
    std::unique_lock lock(mutex);
    while (!stop) {
      wake_judge.wait_for(lock, seconds(tick));
      const Clock::time_point time = Clock::now();
      now += std::min(Seconds(time - last).count(), 3 * tick);
      last = time;
      drop_what_is_done(lock);
      if (stop || is_explaining || is_over) continue;
      auto entry = oldest_open();
      look_wanted = entry != nullptr && now - entry->begun >= patience;
      if (entry == nullptr || why_unfinishable(*entry).empty()) continue;
      // Judge again after a fresh look: what was seen may be older than the collective's end.
      look_again(lock, 1.0);
      drop_what_is_done(lock);
      if (stop || is_explaining || entry->collective.is_done) continue;
      const std::string why = why_unfinishable(*entry);
      if (why.empty()) continue;
      is_over = true;
      const std::string report =
          report_missing(why, entry->collective, options.rank, sightings, board_trouble()).text;
      if (state == RankState::Running) change_state(RankState::GaveUp, report);
      wait_until_posted(lock, 1.0);
      lock.unlock();
      options.on_fatal(report);
      lock.lock();
    }
  }
};

Watchdog::Watchdog(std::shared_ptr<Board> board, WatchdogOptions options)
    : state_(std::make_shared<State>(std::move(board), std::move(options))) {
  // The threads block all signals: an interrupt must reach the thread that runs Lua.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  state_->messenger = std::thread([state = state_] { state->run_messenger(); });
  state_->judge_thread = std::thread([state = state_] { state->run_judge(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Watchdog::~Watchdog() {
  bool is_stuck = false;
  {
    std::unique_lock lock(state_->mutex);
    state_->drop_what_is_done(lock);  // the posted pulse is final
    if (state_->state == RankState::Running) state_->change_state(RankState::Finished, "");
    state_->wait_until_posted(lock, 2.0);
    state_->stop = true;
    state_->wake_messenger.notify_one();
    state_->wake_judge.notify_one();
    is_stuck =
        !state_->changed.wait_for(lock, seconds(2.0), [&] { return state_->messenger_ended; });
  }
  if (is_stuck) {
    state_->messenger.detach();  // it shares ownership of the state
  } else {
    state_->messenger.join();
  }
  state_->judge_thread.join();
}

int64_t Watchdog::begin(const std::string& operation, const std::string& about,
                        std::function<bool()> is_done) {
  auto entry = std::make_shared<State::Entry>();
  entry->collective.operation = operation;
  entry->collective.about = about;
  entry->is_done = std::move(is_done);
  const std::lock_guard lock(state_->mutex);
  entry->collective.number = ++state_->started;
  entry->begun = state_->now;
  ++state_
        ->version;  // posted at the messenger's next tick; waking it would cost more than all this
  state_->entries.push_back(std::move(entry));
  return state_->started;
}

void Watchdog::end(int64_t sequence) {
  std::function<bool()> dropped;  // freed without the lock
  const std::lock_guard lock(state_->mutex);
  const auto entry = state_->find(sequence);
  if (entry == nullptr || entry->collective.is_done) return;
  entry->collective.is_done = true;
  dropped = std::move(entry->is_done);
  ++state_->version;
}

std::string Watchdog::explain(int64_t sequence, const std::string& error) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const auto entry = state.find(sequence);
  if (entry == nullptr) return error;
  const Collective collective = entry->collective;
  const std::string headline =
      fmt::format("rank {}: {} failed: {}", state.options.rank, name_of(collective), error);
  state.is_explaining = true;
  entry->is_abandoned = true;     // a transport calls a failed one done
  state.drop_what_is_done(lock);  // the posted pulse is final
  if (state.state == RankState::Running) state.change_state(RankState::GaveUp, headline);
  // A rank that died is visible at once, or when its launcher posts it. After a timeout a late rank
  // gives no new information, so the wait is half as long.
  const auto asked = Clock::now();
  Report report;
  while (true) {
    const double waited = Seconds(Clock::now() - asked).count();
    state.look_again(lock, std::max(0.1, kLastWords - waited));
    report = report_missing(headline, collective, state.options.rank, state.sightings,
                            state.board_trouble());
    bool is_clear = !state.board_error.empty(), all_have_ended = true;
    for (int rank = 0; rank < state.options.world; ++rank) {
      if (rank == state.options.rank) continue;
      const Verdict verdict = judge(collective, state.sightings[static_cast<size_t>(rank)]);
      is_clear |= verdict.absence <= Absence::Stopped;
      all_have_ended &= verdict.is_certain;
    }
    const double now_waited = Seconds(Clock::now() - asked).count();
    if (is_clear || all_have_ended || now_waited >= kLastWords) break;
    if (!report.missing.empty() && now_waited >= kLastWords / 2) break;
    state.changed.wait_for(lock, seconds(state.tick));
  }
  if (state.state == RankState::GaveUp) state.change_state(RankState::GaveUp, report.text);
  state.wait_until_posted(lock, 1.0);
  // The transport is broken: other open collectives fail too, where they are waited for.
  std::vector<std::function<bool()>> dropped;
  for (const auto& open : state.entries) {
    open->is_abandoned = true;
    dropped.push_back(std::move(open->is_done));
    open->is_done = nullptr;
  }
  state.is_explaining = false;
  lock.unlock();
  return report.text;
}

void Watchdog::post_failure(const std::string& error) {
  std::unique_lock lock(state_->mutex);
  if (state_->state != RankState::Running) return;
  state_->drop_what_is_done(lock);  // the posted pulse is final
  state_->change_state(RankState::Failed, error);
  state_->wait_until_posted(lock, 1.0);
}

}  // namespace moonshard::comm
