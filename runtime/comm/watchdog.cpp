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
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "runtime/comm/watch.h"

namespace moonshard::comm {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr double kTick = 0.1;
// What others posted is kept here too, for the case that the board is lost with its host. Each look
// asks for every rank: the more ranks, the less often.
constexpr double kLooksPerSecond = 32;
constexpr int kRanksPerMessage = 64;

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
  State(std::shared_ptr<Board> job_board, WatchdogOptions given)
      : board(std::move(job_board)),
        options(std::move(given)),
        tick(std::min(kTick, options.interval_s)),
        process(this_process()),
        watch(options.rank, options.world, options.timeout_s) {
    if (!options.on_fatal) {
      options.on_fatal = [before_end = options.before_end](const std::string& report) {
        print_and_end(report, before_end);
      };
    }
  }

  const std::shared_ptr<Board> board;
  WatchdogOptions options;
  const double tick;
  const ProcessIdentity process;

  std::mutex mutex;
  std::condition_variable wake_messenger, wake_judge, changed;

  Watch watch;
  int64_t posted_version = -1;              // of the pulse's content
  bool look_wanted = false;                 // in every round
  int64_t looks_asked = 0, looks_done = 0;  // single rounds, for waiting callers

  bool is_explaining = false, is_over = false;  // is_over: on_fatal has been called
  bool stop = false, messenger_ended = false;
  std::thread messenger, judge_thread;

  void change_state(RankState to, const std::string& text) {
    watch.change_state(to, text);
    wake_messenger.notify_one();
  }

  // Waits until the latest pulse is on the board, or cannot be posted.
  void wait_until_posted(std::unique_lock<std::mutex>& lock, double most_s) {
    const int64_t wanted = watch.version();
    changed.wait_for(lock, seconds(most_s),
                     [&] { return posted_version >= wanted || !watch.board_error().empty(); });
  }

  // Looks at all ranks once more. Waits at most this long.
  void look_again(std::unique_lock<std::mutex>& lock, double most_s) {
    const int64_t wanted = ++looks_asked;
    wake_messenger.notify_one();
    changed.wait_for(lock, seconds(most_s), [&] { return looks_done >= wanted; });
  }

  std::string board_trouble() const {
    if (!watch.board_error().empty()) {
      return fmt::format("the job's board is gone with its host, {}: {}", board->host(),
                         watch.board_error());
    }
    if (looks_done < looks_asked) {
      return fmt::format(
          "the job's board does not answer: its host, {}, may be stopped; what follows may be old",
          board->host());
    }
    return "";
  }

  // --- the messenger ---

  using Sightings = std::vector<std::pair<int, Sighting>>;

  // Many ranks by one message: one each would take longer than a heartbeat where the way is long.
  void look_at_all() {
    for (int first = 0; first < options.world; first += kRanksPerMessage) {
      std::vector<int> ranks, ended;
      for (int rank = first; rank < std::min(options.world, first + kRanksPerMessage); ++rank)
        if (rank != options.rank) ranks.push_back(rank);
      for (auto& [rank, seen] : look_at_ranks(ranks)) {
        if (Watch::has_ended_running(seen)) {
          ended.push_back(rank);
        } else {
          keep_sighting(rank, std::move(seen));
        }
      }
      if (ended.empty()) continue;
      // Last words may have been posted after the texts were read, before the process was looked
      // at: who gave up must not pass for one that died without a word.
      for (auto& [rank, seen] : look_at_ranks(ended)) {
        if (Watch::must_tell(seen)) board->post(gone_key(rank), "its process is gone");
        keep_sighting(rank, std::move(seen));
      }
    }
  }

  Sightings look_at_ranks(const std::vector<int>& ranks) {
    std::vector<std::string> keys;
    for (const int rank : ranks)
      keys.insert(keys.end(), {pulse_key(rank), end_key(rank), gone_key(rank)});
    const std::vector<Watch::Text> texts = board->read_all(keys);
    Sightings seen;
    for (size_t i = 0; i < ranks.size() && 3 * i + 2 < texts.size(); ++i)
      seen.emplace_back(ranks[i], watch.see(texts[3 * i], texts[3 * i + 1], texts[3 * i + 2]));
    return seen;
  }

  void keep_sighting(int rank, Sighting seen) {
    const std::lock_guard lock(mutex);
    watch.keep(rank, std::move(seen));
  }

  void look_without_board() {
    const std::lock_guard lock(mutex);
    watch.look_without_board(*board);
  }

  void run_messenger() {
    const double between_looks = std::max(options.interval_s, options.world / kLooksPerSecond);
    Clock::time_point last_look{};
    Clock::time_point last_post{};
    std::unique_lock lock(mutex);
    while (true) {
      const bool due = Seconds(Clock::now() - last_post).count() >= options.interval_s;
      const bool news = posted_version < watch.version();
      const int64_t looks = looks_asked;
      const bool look = look_wanted || looks_done < looks ||
                        Seconds(Clock::now() - last_look).count() >= between_looks;
      if (stop && !news) break;
      if (due || news || look) {
        const int64_t posting = watch.version();
        const std::string text = to_text(watch.pulse(process));
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
        }
        watch.note_board(trouble);
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
    const std::vector<Watch::EntryPointer> open = watch.open();
    std::vector<std::function<bool()>> questions;
    for (const auto& entry : open) questions.push_back(entry->is_done);
    lock.unlock();
    std::vector<bool> answers;
    for (const auto& is_done : questions) answers.push_back(is_done && is_done());
    lock.lock();
    for (size_t i = 0; i < open.size(); ++i)
      if (answers[i] && open[i]->is_open()) watch.note_done(*open[i]);
    watch.trim();
    lock.unlock();
    questions.clear();  // may free what the collectives held
    lock.lock();
  }

  void run_judge() {
    Clock::time_point last = Clock::now();
    std::unique_lock lock(mutex);
    while (!stop) {
      wake_judge.wait_for(lock, seconds(tick));
      const Clock::time_point time = Clock::now();
      watch.advance(Seconds(time - last).count(), 3 * tick);
      last = time;
      drop_what_is_done(lock);
      if (stop || is_explaining || is_over) continue;
      look_wanted = watch.must_look();
      const Watch::EntryPointer entry = watch.suspect();
      if (entry == nullptr) continue;
      // Judge again after a fresh look: what was seen may be older than the collective's end.
      look_again(lock, 1.0);
      drop_what_is_done(lock);
      if (stop || is_explaining || entry->collective.is_done) continue;
      const std::string why = watch.why_unfinishable(*entry);
      if (why.empty()) continue;
      is_over = true;
      const std::string report = watch.report(why, entry->collective, board_trouble()).text;
      if (watch.state() == RankState::Running) change_state(RankState::GaveUp, report);
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
    if (state_->watch.state() == RankState::Running) state_->change_state(RankState::Finished, "");
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
  const std::lock_guard lock(state_->mutex);
  // Posted at the messenger's next tick; waking it would cost more than all this.
  return state_->watch.begin(operation, about, std::move(is_done))->collective.number;
}

void Watchdog::end(int64_t sequence) {
  std::function<bool()> dropped;  // freed without the lock
  const std::lock_guard lock(state_->mutex);
  const auto entry = state_->watch.find(sequence);
  if (entry == nullptr || entry->collective.is_done) return;
  dropped = state_->watch.note_done(*entry);
}

std::string Watchdog::explain(int64_t sequence, const std::string& error) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  const auto entry = state.watch.find(sequence);
  if (entry == nullptr) return error;
  const Collective collective = entry->collective;
  const std::string headline =
      fmt::format("rank {}: {} failed: {}", state.options.rank, name_of(collective), error);
  state.is_explaining = true;
  entry->is_abandoned = true;     // a transport calls a failed one done
  state.drop_what_is_done(lock);  // the posted pulse is final
  if (state.watch.state() == RankState::Running) state.change_state(RankState::GaveUp, headline);
  const auto asked = Clock::now();
  Report report;
  while (true) {
    const double waited = Seconds(Clock::now() - asked).count();
    state.look_again(lock, std::max(0.1, kLastWords - waited));
    report = state.watch.report(headline, collective, state.board_trouble());
    if (state.watch.is_explained(collective, report, Seconds(Clock::now() - asked).count())) break;
    state.changed.wait_for(lock, seconds(state.tick));
  }
  if (state.watch.state() == RankState::GaveUp) state.change_state(RankState::GaveUp, report.text);
  state.wait_until_posted(lock, 1.0);
  // The transport is broken: other open collectives fail too, where they are waited for.
  const std::vector<std::function<bool()>> dropped = state.watch.abandon_all();
  state.is_explaining = false;
  lock.unlock();
  return report.text;
}

void Watchdog::post_failure(const std::string& error) {
  std::unique_lock lock(state_->mutex);
  if (state_->watch.state() != RankState::Running) return;
  state_->drop_what_is_done(lock);  // the posted pulse is final
  state_->change_state(RankState::Failed, error);
  state_->wait_until_posted(lock, 1.0);
}

}  // namespace moonshard::comm
