# Writes which commit is built, with a + where files differ from it, into the header OUT: at every build, and only if it has changed.
# An archive of the sources has its commit in source_commit.txt (git archive puts it there).
execute_process(COMMAND git -C ${SOURCE} rev-parse --short HEAD OUTPUT_VARIABLE commit RESULT_VARIABLE failed
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND git -C ${SOURCE} rev-parse --show-cdup OUTPUT_VARIABLE above OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(failed OR above)  # somebody else's repository around an archive says nothing
  file(READ ${SOURCE}/cmake/source_commit.txt commit)
  string(STRIP "${commit}" commit)
  if(commit MATCHES "Format")
    set(commit unknown)
  endif()
else()
  # Without locks: somebody may commit while a build runs.
  execute_process(COMMAND git --no-optional-locks -C ${SOURCE} status --porcelain OUTPUT_VARIABLE changes ERROR_QUIET)
  if(changes)
    string(APPEND commit "+")
  endif()
endif()
set(text "#define MOONSHARD_COMMIT \"${commit}\"\n")
set(before)
if(EXISTS ${OUT})
  file(READ ${OUT} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${OUT} "${text}")
endif()
