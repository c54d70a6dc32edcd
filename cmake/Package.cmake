# The same layout in the build folder and where it is installed: bin/, lib/, share/moonshard/scripts.
# The build folder's scripts are a link to the sources, so that an edited script needs no build.
include(CMakePackageConfigHelpers)

file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/share/moonshard)
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/scripts ${CMAKE_BINARY_DIR}/share/moonshard/scripts SYMBOLIC)
install(DIRECTORY scripts/ DESTINATION ${CMAKE_INSTALL_DATADIR}/moonshard/scripts)
# The notebook's kernel, which `moonshard kernel start` runs.
file(CREATE_LINK ${CMAKE_SOURCE_DIR}/bindings/python/moonshard ${CMAKE_BINARY_DIR}/share/moonshard/python SYMBOLIC)
install(FILES bindings/python/moonshard/kernel.py DESTINATION ${CMAKE_INSTALL_DATADIR}/moonshard/python)

# The C++ library: find_package(moonshard), then link moonshard::runtime, or moonshard::bindings for Lua.
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moonshard)
set_target_properties(moonshard_json PROPERTIES EXPORT_NAME json)
install(TARGETS moonshard_json moonshard_base moonshard_records moonshard_input moonshard_tracing moonshard_accountant moonshard_analysis moonshard_descriptors moonshard_processes moonshard_text
                moonshard_kernels moonshard_runtime moonshard_bindings
        EXPORT moonshardTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT moonshardTargets NAMESPACE moonshard:: DESTINATION ${package_dir})
install(DIRECTORY runtime kernels DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moonshard FILES_MATCHING PATTERN "*.h")
install(FILES bindings/moonshard_lua.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moonshard/bindings)
configure_package_config_file(cmake/moonshardConfig.cmake.in ${CMAKE_BINARY_DIR}/moonshardConfig.cmake
                              INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/moonshardConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/moonshardConfig.cmake ${CMAKE_BINARY_DIR}/moonshardConfigVersion.cmake
              cmake/FindLibTorch.cmake cmake/FindLuaJIT.cmake cmake/versions.ini DESTINATION ${package_dir})

# make packages: the installed tree as .deb and .tar.gz. LibTorch is no Debian package: it is found as CMakeLists.txt says.
set(CPACK_PACKAGE_CONTACT "the moonshard developers <moonshard@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_FILE_NAME moonshard-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /opt/moonshard)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.34), libstdc++6, libedit2, libpcre2-8-0, libutf8proc2 | libutf8proc3, zlib1g, libglfw3, libegl1, libopengl0")
set(CPACK_STRIP_FILES ON)
include(CPack)
