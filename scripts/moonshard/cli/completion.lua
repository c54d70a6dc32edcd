--- moonshard completion bash|zsh: a script for the shell, made from the same verbs, flags and options as everything else.
local lists = require "moonshard.lists"
local usage = require "moonshard.usage"

local function dashed(name) return "--" .. name:gsub("_", "-") end

--- The words of a verb: its flags, and whatever may stand without one.
local function verb_words(verb)
  local shown = lists.select(verb.flags, function(flag) return not flag.hidden end)
  local free = verb.positional and verb.positional.words or {}
  return table.concat(lists.extend({}, free, lists.map(lists.column(shown, "name"), dashed), { "--help" }), " ")
end

--- Branches that offer the values of flags with a closed list.
local function value_cases(ms)
  local lines = {}
  local function add(name, values)
    local spellings = name:find("_", 1, true) and dashed(name) .. "|--" .. name or dashed(name)
    lines[#lines + 1] = ("    %s) COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return;;"):format(spellings, values)
  end
  for _, option in ipairs(ms.options()) do
    if option.type:find("|", 1, true) and option.type ~= "true | false" then add(option.name, (option.type:gsub(" | ", " "))) end
  end
  add("model", table.concat(lists.column(ms.models(), "name"), " "))
  return table.concat(lines, "\n")
end

--- Branches that offer the flags of a verb; those of verbs in Lua are in moonshard.cli.
local function verb_cases(ms, verbs)
  local lines = {}
  local function add(verb, words, more)
    lines[#lines + 1] = ("    %s) COMPREPLY=($(compgen -W \"%s\" -- \"$word\")%s);;"):format(verb, words, more or "")
  end
  add("profile", table.concat(lists.map(ms.option_names(), dashed), " ") .. " --json --output --help")
  for _, name in ipairs(verbs) do
    local ok, verb = pcall(require, "moonshard.cli." .. name)
    if ok then add(name, verb_words(verb), verb.takes_files and " $(compgen -f -- \"$word\")") end
  end
  return table.concat(lines, "\n")
end

local function bash_script(verbs)
  local ms = package.loaded["moonshard"]
  return table.concat {
    "# bash completion of moonshard: source <(moonshard completion bash)\n",
    "_moonshard() {\n",
    "  local word=\"${COMP_WORDS[COMP_CWORD]}\" before=\"${COMP_WORDS[COMP_CWORD-1]}\" verb=\"${COMP_WORDS[1]}\"\n",
    "  COMPREPLY=()\n",
    "  if [ \"$COMP_CWORD\" -eq 1 ]; then COMPREPLY=($(compgen -W \"", table.concat(verbs, " "), "\" -- \"$word\")); return; fi\n",
    "  case \"$before\" in\n", value_cases(ms), "\n  esac\n",
    "  case \"$verb\" in\n", verb_cases(ms, verbs), "\n",
    "    *) COMPREPLY=($(compgen -f -- \"$word\"));;\n",
    "  esac\n",
    "}\n",
    "complete -o filenames -F _moonshard moonshard\n",
  }
end

return {
  usage = "bash|zsh",
  about = "Prints a script: source <(moonshard completion bash)",
  flags = { { name = "verbs", kind = "text", list = true, commas = true, hidden = true, doc = "names of all verbs, by the program" } },
  positional = { name = "shell", kind = "text", words = { "bash", "zsh" } },
  run = function(given)
    if given.shell ~= "bash" and given.shell ~= "zsh" then
      usage.fail("completion: expected bash or zsh, got '%s'", given.shell or "")
    end
    -- zsh runs bash's completion functions through its own adapter.
    if given.shell == "zsh" then
      io.write("# zsh completion of moonshard: source <(moonshard completion zsh)\nautoload -U +X compinit && compinit\n",
        "autoload -U +X bashcompinit && bashcompinit\n")
    end
    io.write(bash_script(given.verbs or {}))
    return 0
  end,
}
