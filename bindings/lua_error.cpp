#include "bindings/lua_error.h"

#include <string_view>

#include <c10/util/Exception.h>

#include "runtime/base/check.h"
#include "runtime/core/device.h"
#include "runtime/plan/fit_check.h"

namespace moonshard::bindings {
namespace {

// "script.lua:3: text" -> "text".
std::string_view without_position(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  for (size_t colon = line.find(':'); colon != line.npos; colon = line.find(':', colon + 1)) {
    const size_t behind = line.find_first_not_of("0123456789", colon + 1);
    if (behind != line.npos && behind > colon + 1 && line.substr(behind, 2) == ": ")
      return text.substr(behind + 2);
  }
  return text;
}

int push_error(lua_State* L, sol::optional<const std::exception&> error, sol::string_view what) {
  if (error) {
    push_error_text(L, *error);
  } else {
    lua_pushlstring(L, what.data(), what.size());
  }
  return 1;
}

// Run once in the state of our own programs. Written in Lua because these functions must behave
// like the originals in every other way (environments, readers, chunk names).
constexpr const char* kSourceTextOnly = R"lua(
local load, loadfile, io_open = load, loadfile, io.open
local refusal = "expected source text, got byte code; moonshard does not run byte code"
local function is_byte_code(text) return text:sub(1, 1) == "\27" end

function _G.load(chunk, name, mode, env)
  if type(chunk) == "function" then
    local parts = {}
    while true do
      local part = chunk()
      if part == nil or part == "" then break end
      parts[#parts + 1] = part
    end
    chunk = table.concat(parts)
    name = name or "=(load)"
  end
  if type(chunk) == "string" and is_byte_code(chunk) then return nil, "load: " .. refusal end
  if env ~= nil then return load(chunk, name, "t", env) end
  return load(chunk, name, "t")
end
_G.loadstring = function(chunk, name) return _G.load(chunk, name) end

function _G.loadfile(path, mode, env)
  if path ~= nil then
    local file, reason = io_open(path, "rb")
    if not file then return nil, reason end
    local first = file:read(1)
    file:close()
    if first and is_byte_code(first) then return nil, path .. ": " .. refusal end
  end
  if env ~= nil then return loadfile(path, "t", env) end
  return loadfile(path, "t")
end
function _G.dofile(path)
  local chunk, reason = _G.loadfile(path)
  if not chunk then error(reason, 2) end
  return chunk()
end
-- require's own loader reads files itself; a searcher before it looks at the first byte.
table.insert(package.loaders, 2, function(name)
  local path = package.searchpath and package.searchpath(name, package.path)
  if not path then return nil end
  local chunk, reason = _G.loadfile(path)
  if not chunk then error(("error loading module '%s' from file '%s':\n\t%s"):format(name, path, reason), 0) end
  return chunk
end)
)lua";

}  // namespace

void push_error_text(lua_State* L, const std::exception& error) {
  // The host's hook has done its work once the interrupt is an error; the script's own clean-up
  // must not be stopped by it again.
  if (dynamic_cast<const Interrupted*>(&error) != nullptr) lua_sethook(L, nullptr, 0, 0);
  luaL_where(L, 1);
  {
    constexpr size_t kLongest = 3000;  // bad input may be megabytes; its beginning is enough
    std::string text = readable_message(error);
    if (text.size() > kLongest) text.replace(kLongest, std::string::npos, " ...");
    lua_pushlstring(L, text.data(), text.size());
  }
  lua_concat(L, 2);
}

MemoryOutcome memory_outcome(const std::string& text) {
  if (text.find(plan::kCannotFit) != std::string::npos) return MemoryOutcome::CannotFit;
  const std::string_view own = without_position(text);
  const bool is_of_luajit = own.substr(0, own.find('\n')) == "not enough memory";
  const bool ran_out = says_out_of_memory(text) || is_of_luajit || own.starts_with("memory: ");
  return ran_out ? MemoryOutcome::RanOut : MemoryOutcome::Other;
}

std::string readable_message(const std::exception& error) {
  if (const auto* torch_error = dynamic_cast<const c10::Error*>(&error)) {
    const std::string memory = out_of_memory_message(error);
    if (!memory.empty()) return memory;
    return fmt::format("libtorch: {}", torch_error->what_without_backtrace());
  }
  return error.what();
}

void install_error_handler(lua_State* L) {
  sol::state_view(L).set_exception_handler(&push_error);
}

void refuse_byte_code(const std::string& chunk, const std::string& where) {
  MS_CHECK(chunk.empty() || chunk[0] != '\x1b',
           "{}: expected source text, got byte code; moonshard does not run byte code", where);
}

void allow_source_text_only(lua_State* L) {
  const auto result =
      sol::state_view(L).safe_script(kSourceTextOnly, sol::script_pass_on_error, "=moonshard");
  MS_ASSERT(result.valid(), "{}", result.get<sol::error>().what());
}

}  // namespace moonshard::bindings
