# LuaJIT 2.1: headers for all, the static library for programs (it is linked into them, so that they
# run where no LuaJIT is installed). Targets: moonshard::luajit_headers, moonshard::luajit.
find_path(LUAJIT_INCLUDE_DIR luajit.h PATH_SUFFIXES luajit-2.1)
find_library(LUAJIT_LIBRARY NAMES libluajit-5.1.a luajit-5.1)
if(LUAJIT_INCLUDE_DIR AND LUAJIT_LIBRARY)
  set(LuaJIT_FOUND TRUE)
  if(NOT TARGET moonshard::luajit)
    add_library(moonshard::luajit_headers INTERFACE IMPORTED GLOBAL)
    target_include_directories(moonshard::luajit_headers SYSTEM INTERFACE ${LUAJIT_INCLUDE_DIR})
    add_library(moonshard::luajit UNKNOWN IMPORTED GLOBAL)
    set_target_properties(moonshard::luajit PROPERTIES IMPORTED_LOCATION ${LUAJIT_LIBRARY}
                          INTERFACE_LINK_LIBRARIES "moonshard::luajit_headers;m;dl")
  endif()
endif()
