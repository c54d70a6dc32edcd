// See repl_session.h. Functions that Lua calls (and that may therefore be left by a jump) hold
// plain data only; text comes out of them as malloc'ed copies that the caller owns.
#include "bindings/host/repl_session.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "runtime/base/interrupt.h"

namespace moonshard::host {
namespace {

// The handler does only what is safe in one: lock-free atomics, write(2),
// _exit(2), and lua_sethook, which LuaJIT's own program calls from its handler in the same way.

constexpr int64_t kRepeatWindowMs = 2000;
constexpr int kExitCodeAfterCtrlC = 130;
constexpr char kHint[] = "\npress Ctrl-C once more to end the program\n";

std::atomic<lua_State*> g_running{nullptr};
std::atomic<int> g_presses{0};
std::atomic<int64_t> g_last_press_ms{0};
pthread_t g_lua_thread;
bool g_interrupted = false;

static_assert(std::atomic<lua_State*>::is_always_lock_free, "a signal handler reads this");
static_assert(std::atomic<int64_t>::is_always_lock_free, "a signal handler writes this");

int64_t now_ms() {
  struct timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1000000;
}

// Stays armed until the call is over: a loop around pcall swallows one error, not one per
// instruction.
void raise_interrupted(lua_State* L, lua_Debug*) {
  luaL_error(L, "interrupted");
}

extern "C" void on_sigint(int signal) {
  // Worker threads do not block the signal, but only the Lua thread may touch the Lua state.
  if (!pthread_equal(pthread_self(), g_lua_thread)) {
    pthread_kill(g_lua_thread, signal);
    return;
  }
  const int saved_errno = errno;
  lua_State* L = g_running.load();
  if (L) {
    const int64_t now = now_ms();
    const int earlier = g_presses.load();
    // A late second press counts as a first one; after the hint the next press is final.
    const bool repeated = earlier == 1 && now - g_last_press_ms.load() <= kRepeatWindowMs;
    if (earlier >= 2) _exit(kExitCodeAfterCtrlC);
    if (repeated) {
      const ssize_t ignored = ::write(STDERR_FILENO, kHint, sizeof kHint - 1);
      (void)ignored;
    }
    g_presses.store(repeated ? 2 : 1);
    g_last_press_ms.store(now);
    request_interrupt();
    lua_sethook(L, raise_interrupted, LUA_MASKCALL | LUA_MASKCOUNT, 1);
  }
  errno = saved_errno;
}

// Plain data: a Lua error may not skip a destructor.
struct Watch {
  struct sigaction previous;
  lua_State* outer;
};

void start_watch(Watch* watch, lua_State* L) {
  clear_interrupt();
  g_lua_thread = pthread_self();
  g_presses.store(0);
  watch->outer = g_running.exchange(L);
  struct sigaction action;
  std::memset(&action, 0, sizeof action);
  action.sa_handler = on_sigint;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;  // system calls of the user's code need not handle EINTR
  sigaction(SIGINT, &action, &watch->previous);
}

bool stop_watch(const Watch* watch, lua_State* L) {
  g_running.store(watch->outer);  // first, so that a late press arms nothing
  lua_sethook(L, nullptr, 0, 0);
  sigaction(SIGINT, &watch->previous, nullptr);
  clear_interrupt();
  return g_presses.load() > 0;
}

// Upvalues: info function, call function. The error propagates to the outermost call, and nothing
// else can catch it: from here on the hook would only break the report.
int on_error(lua_State* L) {
  lua_sethook(L, nullptr, 0, 0);
  lua_settop(L, 1);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  lua_pushvalue(L, lua_upvalueindex(2));
  lua_call(L, 2, 1);
  return 1;
}

// Upvalues: info function, this function itself.
int interruptible_call(lua_State* L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  const int num_args = lua_gettop(L) - 1;
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushvalue(L, lua_upvalueindex(2));
  lua_pushcclosure(L, on_error, 2);
  lua_insert(L, 1);
  Watch watch;
  start_watch(&watch, L);
  const int status = lua_pcall(L, num_args, LUA_MULTRET, 1);
  g_interrupted = stop_watch(&watch, L);
  lua_pushboolean(L, status == 0);
  lua_replace(L, 1);
  if (status == 0) return lua_gettop(L);
  lua_pushboolean(L, g_interrupted);
  return 3;
}

constexpr int kDefaultWidth = 80;

int now(lua_State* L) {
  struct timespec time = {};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  lua_pushnumber(L, static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9);
  return 1;
}

int width(lua_State* L) {
  struct winsize size = {};
  const bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  lua_pushinteger(L, known ? size.ws_col : kDefaultWidth);
  return 1;
}

// ask_terminal(query, last): writes a query to the terminal and returns its answer up to the byte
// `last`, or nil when it is no terminal or says nothing for a moment. Echo is off meanwhile.
int ask_terminal(lua_State* L) {
  constexpr int kPatienceMs = 300;
  size_t length = 0;
  const char* query = luaL_checklstring(L, 1, &length);
  const char last = luaL_checkstring(L, 2)[0];
  struct termios before = {};
  if (::isatty(STDOUT_FILENO) == 0 || ::tcgetattr(STDIN_FILENO, &before) != 0) return 0;
  struct termios raw = before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  std::fflush(stdout);
  ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  char answer[512];
  size_t size = 0;
  bool whole = ::write(STDOUT_FILENO, query, length) != static_cast<ssize_t>(length);
  while (!whole && size < sizeof answer) {
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    if (::poll(&input, 1, kPatienceMs) <= 0 || ::read(STDIN_FILENO, answer + size, 1) != 1) break;
    whole = answer[size++] == last;
  }
  ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
  if (size == 0) return 0;
  lua_pushlstring(L, answer, size);
  return 1;
}

// list_dir(path): names in a folder, folders with a slash at the end; empty when unreadable.
int list_dir(lua_State* L) {
  const char* path = luaL_checkstring(L, 1);
  lua_newtable(L);
  DIR* folder = ::opendir(path);
  if (!folder) return 1;
  int count = 0;
  while (const struct dirent* entry = ::readdir(folder)) {
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    struct stat status = {};
    const bool is_folder =
        ::fstatat(::dirfd(folder), entry->d_name, &status, 0) == 0 && S_ISDIR(status.st_mode);
    // Only running out of memory could raise here, at the price of one open folder.
    lua_pushfstring(L, is_folder ? "%s/" : "%s", entry->d_name);
    lua_rawseti(L, -2, ++count);
  }
  ::closedir(folder);
  return 1;
}

// history(count): the last entries, oldest first. Upvalue: the list, owned by the REPL.
int history(lua_State* L) {
  const auto* entries =
      static_cast<const std::vector<std::string>*>(lua_touserdata(L, lua_upvalueindex(1)));
  const double asked =
      std::clamp(luaL_checknumber(L, 1), 0.0, static_cast<double>(entries->size()));
  const size_t first = entries->size() - static_cast<size_t>(asked);
  lua_newtable(L);
  for (size_t i = first; i < entries->size(); ++i) {
    lua_pushlstring(L, (*entries)[i].data(), (*entries)[i].size());
    lua_rawseti(L, -2, static_cast<int>(i - first + 1));
  }
  return 1;
}

char* copy_string(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TSTRING) return nullptr;
  const char* text = lua_tolstring(L, index, nullptr);
  return ::strdup(text);
}

std::string take(char* text) {
  std::string result(text ? text : "");
  std::free(text);
  return result;
}

}  // namespace

void push_interruptible_call(lua_State* L) {
  lua_pushnil(L);
  lua_pushcclosure(L, interruptible_call, 2);
  lua_pushvalue(L, -1);
  lua_setupvalue(L, -2, 2);
}

bool last_call_was_interrupted() noexcept {
  return g_interrupted;
}

// One call: what goes in, and what came out.
struct ReplSession::Request {
  int ref = LUA_NOREF;
  const char* method = nullptr;
  const char* text = nullptr;
  size_t size = 0;
  const void* history = nullptr;
  bool truth = false;
  char* first = nullptr;
  char* second = nullptr;
};

// Called under lua_cpcall: makes moonshard.repl's session and keeps it in the registry.
int ReplSession::open_in_lua(lua_State* L) {
  auto* request = static_cast<Request*>(lua_touserdata(L, 1));
  lua_getglobal(L, "require");
  lua_pushliteral(L, "moonshard.repl");
  lua_call(L, 1, 1);
  const int module = lua_gettop(L);
  lua_getfield(L, module, "new");
  lua_newtable(L);
  lua_getfield(L, module, "error_info");
  push_interruptible_call(L);
  lua_setfield(L, -2, "call");
  lua_pushcfunction(L, now);
  lua_setfield(L, -2, "now");
  lua_pushcfunction(L, width);
  lua_setfield(L, -2, "width");
  lua_pushcfunction(L, list_dir);
  lua_setfield(L, -2, "list_dir");
  lua_pushcfunction(L, ask_terminal);
  lua_setfield(L, -2, "ask_terminal");
  lua_pushlightuserdata(L, const_cast<void*>(request->history));
  lua_pushcclosure(L, history, 1);
  lua_setfield(L, -2, "history");
  lua_call(L, 1, 1);
  request->ref = luaL_ref(L, LUA_REGISTRYINDEX);
  return 0;
}

// Called under lua_cpcall: session:method(text), at most two results.
int ReplSession::call_in_lua(lua_State* L) {
  auto* request = static_cast<Request*>(lua_touserdata(L, 1));
  lua_rawgeti(L, LUA_REGISTRYINDEX, request->ref);
  lua_getfield(L, -1, request->method);
  lua_insert(L, -2);
  lua_pushlstring(L, request->text, request->size);
  lua_call(L, 2, 2);
  request->truth = lua_toboolean(L, -2) != 0;
  request->first = copy_string(L, -2);
  request->second = copy_string(L, -1);
  return 0;
}

ReplSession::ReplSession(lua_State* L, const std::vector<std::string>* entries) : lua_(L) {
  Request request;
  request.history = entries;
  if (lua_cpcall(L, &ReplSession::open_in_lua, &request) == 0) {
    ref_ = request.ref;
    return;
  }
  const char* message = lua_tostring(L, -1);
  problem_ = message ? message : "an error without a text";
  lua_pop(L, 1);
}

ReplSession::~ReplSession() {
  luaL_unref(lua_, LUA_REGISTRYINDEX, ref_);
}

bool ReplSession::call(const char* method, const std::string& text, Request* request) {
  request->ref = ref_;
  request->method = method;
  request->text = text.data();
  request->size = text.size();
  if (lua_cpcall(lua_, &ReplSession::call_in_lua, request) == 0) return true;
  // The session catches the user's errors itself; what arrives here is out of memory or our bug.
  const char* message = lua_tostring(lua_, -1);
  std::fprintf(stderr, "repl: %s failed: %s\n", method, message ? message : "(no text)");
  lua_pop(lua_, 1);
  return false;
}

bool ReplSession::is_complete(const std::string& text) {
  Request request;
  return !call("is_complete", text, &request) || request.truth;
}

Outcome ReplSession::run(const std::string& text) {
  Request request;
  if (!call("run", text, &request)) return Outcome::Failed;
  const bool leave = take(request.first) == "exit";
  take(request.second);
  if (leave) return Outcome::Exit;
  return request.truth ? Outcome::Good : Outcome::Failed;
}

Outcome ReplSession::run_file(const std::string& path) {
  Request request;
  return call("run_file", path, &request) && request.truth ? Outcome::Good : Outcome::Failed;
}

Completion ReplSession::complete(const std::string& before_cursor) {
  Request request;
  if (!call("complete", before_cursor, &request)) return {};
  return {take(request.first), take(request.second)};
}

std::string ReplSession::answer(const char* method, const std::string& text) {
  Request request;
  if (!call(method, text, &request)) return {};
  take(request.second);
  return take(request.first);
}

std::string ReplSession::banner() {
  Request request;
  if (!call("banner", "", &request)) return "moonshard";
  return take(request.first);
}

}  // namespace moonshard::host
