# How every target is compiled: warnings, sanitizers, ccache.

find_program(CCACHE ccache)
if(CCACHE)
  # A precompiled header defeats ccache unless these are set (ccache's manual, "Precompiled headers").
  set(ccache_launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

set(moonshard_warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 sees impossible sizes in std::string's operator+ (GCC bugs 105329 and 105651); fixed in 13.
  list(APPEND moonshard_warnings -Wno-restrict -Wno-stringop-overflow -Wno-array-bounds)
endif()
if(MOONSHARD_WERROR)
  list(APPEND moonshard_warnings -Werror)
endif()

# Sanitizers and ccache's flag go to every target alike: a precompiled header is shared only between
# targets with equal flags.
if(CCACHE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
endif()
if(MOONSHARD_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${MOONSHARD_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>)
  add_link_options(-fsanitize=${MOONSHARD_SANITIZE})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
  message(FATAL_ERROR "moonshard: expected g++ 11 or newer (C++20), got ${CMAKE_CXX_COMPILER_VERSION}; "
                      "set CXX to a newer compiler")
endif()

# -fPIC for programs too (CMake would give them -fPIE): a precompiled header made with one is not used with
# the other, and parsing torch anew costs half a minute per file.
set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC>)

# moonshard_target(NAME): what all our targets share. Includes are written from the repository's root.
function(moonshard_target name)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/moonshard>)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${moonshard_warnings}>)
  # libtorch_cpu finds its own neighbours; the linker need not.
  target_link_options(${name} PRIVATE -Wl,--allow-shlib-undefined -Wl,--as-needed)
endfunction()
