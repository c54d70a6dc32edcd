# Two precompiled headers, each made once and shared: LibTorch's (parsing it takes half a minute) and one for everything
# else. A target has the same flags as the header's owner, or the compiler ignores the header.
foreach(kind torch plain)
  add_library(moonshard_${kind}_headers OBJECT ${CMAKE_SOURCE_DIR}/cmake/precompiled.cpp)
  moonshard_target(moonshard_${kind}_headers)
  target_link_libraries(moonshard_${kind}_headers PUBLIC moonshard_json)
  target_precompile_headers(moonshard_${kind}_headers PRIVATE ${CMAKE_SOURCE_DIR}/cmake/${kind}_headers.h)
endforeach()
target_link_libraries(moonshard_torch_headers PUBLIC moonshard::torch)

function(moonshard_torch_target name)
  moonshard_target(${name})
  target_link_libraries(${name} PUBLIC moonshard::torch moonshard_json)
  target_precompile_headers(${name} REUSE_FROM moonshard_torch_headers)
endfunction()

function(moonshard_use_plain_header name)
  target_link_libraries(${name} PUBLIC moonshard_json)
  target_precompile_headers(${name} REUSE_FROM moonshard_plain_headers)
endfunction()
