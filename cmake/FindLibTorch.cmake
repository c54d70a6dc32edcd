# LibTorch out of a Python installation, as one imported target moonshard::torch.
#
# Torch's own CMake package wants the CUDA toolkit whenever the wheel was built with CUDA, even to build
# without any kernel, and probes for GPUs. We need its headers and three libraries, so we name those.
# libtorch_cuda is left out on purpose: it is loaded when a GPU is first used (core/device.cpp),
# which keeps start-up fast and lets one binary run with and without GPUs.
#
# Looks at: -DTORCH_DIR (folder site-packages/torch), .deps/venv, the active python3.
# Sets LibTorch_FOUND, _VERSION, _WANTED, _HAS_CUDA, _INCLUDE_DIR, _LIBRARY_DIR, _REASON.
get_filename_component(_ms_cmake_dir "${CMAKE_CURRENT_LIST_DIR}" ABSOLUTE)
if(EXISTS ${_ms_cmake_dir}/versions.ini)
  file(STRINGS ${_ms_cmake_dir}/versions.ini _torch_line REGEX "^torch = ")
  string(REGEX REPLACE "^torch = " "" LibTorch_WANTED "${_torch_line}")
endif()

set(_candidates "")
if(TORCH_DIR)
  list(APPEND _candidates ${TORCH_DIR})
else()
  file(GLOB _venv_torch ${CMAKE_SOURCE_DIR}/.deps/venv/lib/python3*/site-packages/torch)
  list(APPEND _candidates ${_venv_torch})
  execute_process(COMMAND python3 -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
                  OUTPUT_VARIABLE _active_torch OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(_active_torch)
    list(APPEND _candidates ${_active_torch})
  endif()
endif()

set(LibTorch_REASON "no folder 'torch' in .deps/venv or the active Python")
foreach(_torch ${_candidates})
  if(NOT EXISTS ${_torch}/lib/libtorch_cpu.so OR NOT EXISTS ${_torch}/version.py)
    set(LibTorch_REASON "${_torch} has no lib/libtorch_cpu.so")
    continue()
  endif()
  file(STRINGS ${_torch}/version.py _version_line REGEX "^__version__ *=")
  string(REGEX REPLACE "^[^'\"]*['\"]([^'\"]*)['\"].*$" "\\1" LibTorch_VERSION "${_version_line}")
  string(REGEX REPLACE "\\+.*$" "" _plain_version "${LibTorch_VERSION}")
  if(LibTorch_WANTED AND NOT _plain_version VERSION_EQUAL LibTorch_WANTED)
    set(LibTorch_REASON "found ${LibTorch_VERSION} in ${_torch}")
    continue()
  endif()
  set(LibTorch_FOUND TRUE)
  set(LibTorch_ROOT_DIR ${_torch})
  break()
endforeach()

if(LibTorch_FOUND AND NOT TARGET moonshard::torch)
  set(LibTorch_INCLUDE_DIR ${LibTorch_ROOT_DIR}/include)
  get_filename_component(LibTorch_LIBRARY_DIR ${LibTorch_ROOT_DIR}/lib REALPATH)
  set(LibTorch_HAS_CUDA OFF)
  if(EXISTS ${LibTorch_LIBRARY_DIR}/libtorch_cuda.so)
    set(LibTorch_HAS_CUDA ON)
  endif()
  add_library(moonshard::torch_c10 SHARED IMPORTED GLOBAL)
  set_target_properties(moonshard::torch_c10 PROPERTIES IMPORTED_LOCATION ${LibTorch_LIBRARY_DIR}/libc10.so)
  add_library(moonshard::torch SHARED IMPORTED GLOBAL)
  set_target_properties(moonshard::torch PROPERTIES
    IMPORTED_LOCATION ${LibTorch_LIBRARY_DIR}/libtorch_cpu.so
    INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_INCLUDE_DIRECTORIES "${LibTorch_INCLUDE_DIR};${LibTorch_INCLUDE_DIR}/torch/csrc/api/include"
    INTERFACE_LINK_LIBRARIES "moonshard::torch_c10;dl"
    INTERFACE_LINK_OPTIONS "-Wl,--allow-shlib-undefined")
endif()
