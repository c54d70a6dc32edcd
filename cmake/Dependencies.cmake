# Finds every dependency: -D…_DIR options first, then .deps (cmake/bootstrap), then the system and the
# active Python environment. What is missing is collected and named in one message at the end.
set(deps ${CMAKE_SOURCE_DIR}/.deps)
set(missing "")

macro(moonshard_missing text)
  string(APPEND missing "\n  - ${text}")
endmacro()

# moonshard_headers(VARIABLE header hint-folder what): an include folder that holds the header.
macro(moonshard_headers variable header hint what)
  find_path(${variable} ${header} HINTS ${hint})
  if(NOT ${variable})
    moonshard_missing("${what}: no ${header}; give -D${variable}=FOLDER")
  endif()
endmacro()

find_package(Threads REQUIRED)
find_package(LibTorch MODULE)
if(NOT LibTorch_FOUND)
  moonshard_missing("LibTorch ${LibTorch_WANTED}: ${LibTorch_REASON}; run cmake/bootstrap, activate a Python that has torch ${LibTorch_WANTED}, or give -DTORCH_DIR=…/site-packages/torch")
endif()

find_package(LuaJIT MODULE)
if(NOT LuaJIT_FOUND)
  moonshard_missing("LuaJIT 2.1 (Debian: libluajit-5.1-dev): no luajit.h or libluajit-5.1.a; give -DLUAJIT_INCLUDE_DIR=… and -DLUAJIT_LIBRARY=…/libluajit-5.1.a")
endif()
moonshard_headers(SOL2_INCLUDE_DIR sol/sol.hpp ${deps}/sol2/include "sol2 3.5 (Debian forky: sol2-dev)")
moonshard_headers(JSON_INCLUDE_DIR nlohmann/json.hpp "" "nlohmann-json 3.11 (Debian: nlohmann-json3-dev)")
moonshard_headers(FMT_INCLUDE_DIR fmt/format.h "${LibTorch_INCLUDE_DIR}" "fmt 9 or newer (Debian: libfmt-dev)")
moonshard_headers(GLOO_INCLUDE_DIR gloo/algorithm.h ${deps}/gloo/include "Gloo's headers (Debian forky: libgloo-dev)")
find_package(ZLIB QUIET)
if(NOT ZLIB_FOUND)
  message(STATUS "zlib: not found (Debian: zlib1g-dev); traces are written without compression")
endif()
# Tokenizers: the patterns that split text, and Unicode normalisation.
moonshard_headers(PCRE2_INCLUDE_DIR pcre2.h "" "PCRE2 10 (Debian: libpcre2-dev)")
moonshard_headers(UTF8PROC_INCLUDE_DIR utf8proc.h "" "utf8proc 2 (Debian: libutf8proc-dev)")
find_library(PCRE2_LIBRARY NAMES pcre2-8)
find_library(UTF8PROC_LIBRARY NAMES utf8proc)
foreach(name PCRE2 UTF8PROC)
  if(${name}_INCLUDE_DIR AND NOT ${name}_LIBRARY)
    moonshard_missing("${name}: its header is there, but no library; give -D${name}_LIBRARY=FILE")
  endif()
endforeach()
find_path(EDIT_INCLUDE_DIR histedit.h)
find_library(EDIT_LIBRARY NAMES edit)
if(NOT EDIT_INCLUDE_DIR OR NOT EDIT_LIBRARY)
  # Only the REPL's line editing needs it; without it the REPL reads plain lines, with a notice.
  message(STATUS "libedit: not found (Debian: libedit-dev); the REPL is built without line editing")
endif()

if(MOONSHARD_VIEWER)
  moonshard_headers(IMGUI_SOURCE_DIR imgui/imgui/imgui.h ${deps}/imgui "Dear ImGui sources (PyPI sdist imgui-bundle, folder external)")
  moonshard_headers(STB_INCLUDE_DIR stb/stb_image_write.h "" "stb (Debian: libstb-dev)")
  find_package(glfw3 3.3 CONFIG QUIET)
  if(NOT glfw3_FOUND)
    moonshard_missing("GLFW 3.3 (Debian: libglfw3-dev); or build without the viewer: -DMOONSHARD_VIEWER=OFF")
  endif()
  find_package(OpenGL COMPONENTS OpenGL EGL QUIET)
  if(NOT TARGET OpenGL::EGL OR NOT TARGET OpenGL::OpenGL)
    moonshard_missing("OpenGL and EGL (Debian: libopengl-dev libegl-dev); or -DMOONSHARD_VIEWER=OFF")
  endif()
endif()
if(MOONSHARD_TESTS)
  find_package(GTest QUIET)
  if(NOT GTest_FOUND)
    moonshard_missing("GoogleTest (Debian: libgtest-dev libgmock-dev); or build without tests: -DMOONSHARD_TESTS=OFF")
  endif()
endif()

if(missing)
  message(FATAL_ERROR "moonshard: these are missing:${missing}\n"
                      "On Debian 12 'cmake/bootstrap' (or 'make build') fetches all of them.")
endif()

# Header-only libraries as targets, so that users of the installed package need no paths.
add_library(moonshard_json INTERFACE)
target_include_directories(moonshard_json SYSTEM INTERFACE $<BUILD_INTERFACE:${JSON_INCLUDE_DIR}>
                                                           $<BUILD_INTERFACE:${FMT_INCLUDE_DIR}>)

# CUDA kernels: with nvcc and a LibTorch that has CUDA. Without them kernels/*/*_no_cuda.cpp stand in.
set(MOONSHARD_HAS_CUDA OFF)
if(NOT MOONSHARD_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER AND LibTorch_HAS_CUDA)
    # Hopper's own code, and PTX from which the driver makes code for any other GPU since Ampere.
    if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
      set(CMAKE_CUDA_ARCHITECTURES 80-virtual 90a-real)
    endif()
    find_path(CUTLASS_INCLUDE_DIR cutlass/cutlass.h HINTS ${deps}/cutlass/include)
    if(NOT CUTLASS_INCLUDE_DIR)
      message(FATAL_ERROR "moonshard: CUDA kernels need CUTLASS's headers (PyPI: nvidia-cutlass); run cmake/bootstrap, "
                          "give -DCUTLASS_INCLUDE_DIR=FOLDER, or build without kernels: -DMOONSHARD_CUDA=OFF")
    endif()
    set(CMAKE_CUDA_STANDARD 20)
    enable_language(CUDA)
    set(MOONSHARD_HAS_CUDA ON)
    # Comes with LibTorch's wheel; without it jobs of several ranks run on CPUs only.
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${LibTorch_ROOT_DIR}/../nvidia/nccl/include)
    find_package(CUDAToolkit REQUIRED)
  elseif(MOONSHARD_CUDA STREQUAL "ON")
    message(FATAL_ERROR "moonshard: MOONSHARD_CUDA=ON needs nvcc (found: ${CMAKE_CUDA_COMPILER}) and a "
                        "LibTorch with CUDA (found: ${LibTorch_HAS_CUDA}); install the CUDA toolkit or use AUTO")
  endif()
endif()
message(STATUS "moonshard: LibTorch ${LibTorch_VERSION} (CUDA in it: ${LibTorch_HAS_CUDA}), "
               "kernels for CUDA: ${MOONSHARD_HAS_CUDA}, viewer: ${MOONSHARD_VIEWER}, tests: ${MOONSHARD_TESTS}")
