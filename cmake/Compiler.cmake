# How every target is compiled: warnings, sanitizers, ccache, grouping of sources.

find_program(CCACHE ccache)
if(CCACHE)
  # A precompiled header defeats ccache unless these are set (ccache's manual, "Precompiled headers").
  # Depend mode: the compiler's own list of headers instead of a second run of the preprocessor.
  set(ccache_launcher ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 ${CCACHE})
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
  # -O1 -g1 behind the build type's own flags, and no checks of null: a source that takes 14 s in a release build takes 21 s so,
  # 30 s with those checks, 94 s with -O2 -g as well. Reports still name lines, and a null dereference ends the program anyway.
  set(sanitize -fsanitize=${MOONSHARD_SANITIZE} -fno-omit-frame-pointer -O1 -g1)
  if(MOONSHARD_SANITIZE MATCHES undefined)
    list(APPEND sanitize -fno-sanitize=null,vptr)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${sanitize}>")
  add_link_options(-fsanitize=${MOONSHARD_SANITIZE})
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
  message(FATAL_ERROR "moonshard: expected g++ 11 or newer (C++20), got ${CMAKE_CXX_COMPILER_VERSION}; "
                      "set CXX to a newer compiler")
endif()

# -fPIC for programs too (CMake would give them -fPIE): a precompiled header made with one is not used with
# the other, and parsing torch again takes half a minute per file.
set(CMAKE_POSITION_INDEPENDENT_CODE OFF)
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fPIC> $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-fPIC>)

# -O2: -O3 takes a quarter more build time and changes no measured figure.
foreach(language CXX CUDA)
  string(REPLACE "-O3" "-O2" CMAKE_${language}_FLAGS_RELEASE "${CMAKE_${language}_FLAGS_RELEASE}")
endforeach()

# moonshard_target(NAME): what all our targets share. Includes are written from the repository's root.
function(moonshard_target name)
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
                                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/moonshard>)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${moonshard_warnings}>)
  # libtorch_cpu finds its own neighbours; the linker need not.
  target_link_options(${name} PRIVATE -Wl,--allow-shlib-undefined -Wl,--as-needed)
endfunction()

# Files of one folder are compiled together, so many at a time: headers of LibTorch, sol2 or ImGui cost more than the code
# that uses them. 1 compiles each file alone, which shows a file that forgot an include.
set(MOONSHARD_GROUP_SIZE 8 CACHE STRING "Source files of a folder that are compiled as one")

# moonshard_group_sources(TARGET [SIZE]): groups follow the folders, so that a new file changes the groups of its own folder
# alone; folders of few files share groups. Names in anonymous namespaces are unique within a folder for this reason (folders
# differ in their namespaces).
function(moonshard_group_sources name)
  set(size ${MOONSHARD_GROUP_SIZE})
  if(ARGC GREATER 1 AND size GREATER 1)
    set(size ${ARGV1})
  endif()
  if(size LESS 2)
    return()
  endif()
  get_target_property(sources ${name} SOURCES)
  foreach(source ${sources})
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    list(APPEND folders ${folder})
  endforeach()
  foreach(source ${sources})
    if(NOT source MATCHES "\\.cpp$")
      continue()
    endif()
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(alone)
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(GET path PARENT_PATH folder)
    set(neighbours ${folders})
    list(FILTER neighbours INCLUDE REGEX "^${folder}$")
    list(LENGTH neighbours num_neighbours)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${CMAKE_SOURCE_DIR})
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    if(num_neighbours LESS 5)
      set(folder small)
    endif()
    if(NOT DEFINED count_${folder})
      set(count_${folder} 0)
    endif()
    # As many groups as come nearest to the size, equally large: a last group of one file would cost as much as a whole one.
    math(EXPR groups "(${num_neighbours} + ${size} / 2) / ${size}")
    if(folder STREQUAL "small" OR groups LESS 1)
      math(EXPR group "${count_${folder}} / ${size}")
    else()
      math(EXPR group "${count_${folder}} * ${groups} / ${num_neighbours}")
    endif()
    math(EXPR count_${folder} "${count_${folder}} + 1")
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# moonshard_sources_of(VARIABLE TARGET…): absolute paths of the targets' sources, to compile them once more with a sanitizer.
function(moonshard_sources_of variable)
  set(all)
  foreach(target ${ARGN})
    get_target_property(files ${target} SOURCES)
    get_target_property(folder ${target} SOURCE_DIR)
    foreach(file ${files})
      cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${folder} NORMALIZE)
      list(APPEND all ${file})
    endforeach()
  endforeach()
  set(${variable} ${all} PARENT_SCOPE)
endfunction()
