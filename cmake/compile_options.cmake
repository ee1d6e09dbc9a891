# Warnings, sanitizers and the include root, shared by every target of the project.
function(ferry_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)  # for who links the installed libraries
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/ferry>)
  # Libraries can become a part of shared ones. Without interposition their functions are still inlined.
  get_target_property(type ${target} TYPE)
  if(NOT type STREQUAL "EXECUTABLE")
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-fno-semantic-interposition>)
  endif()
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
                                           $<$<BOOL:${FERRY_WARNINGS_AS_ERRORS}>:-Werror>)
  # GCC 12 warns of overlapping copies inside std::string's operator+ (its bug 105651, mended in 13).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  # GCC 12 (of what it precompiled) and 13 take a vector's growth and a string's copy for overflows; 14 knows better.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 14)
    target_compile_options(${target} PRIVATE -Wno-stringop-overflow -Wno-stringop-overread -Wno-array-bounds)
  endif()
  # To 13 and 14 what a function returns refers to the text or view that it was called with.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
    target_compile_options(${target} PRIVATE -Wno-dangling-reference)
  endif()
  # To 12 and 14 the std::function in a struct of options is not initialised where a later member's constructor throws.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    # Large units: garbage that is collected less often is a sixth of the time, for a third more memory.
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-expand=300>
                                             $<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=524288>)
  endif()
  foreach(sanitizer IN LISTS FERRY_SANITIZE)
    target_compile_options(${target} PUBLIC $<BUILD_INTERFACE:-fsanitize=${sanitizer}> $<BUILD_INTERFACE:-fno-omit-frame-pointer>
                                            $<BUILD_INTERFACE:-fno-sanitize-recover=all>)
    target_link_options(${target} PUBLIC $<BUILD_INTERFACE:-fsanitize=${sanitizer}>)
  endforeach()
endfunction()

# ferry_precompile_headers(TARGET): what most of its sources include of other libraries, parsed once for
# all targets. Each source still includes what it needs.
function(ferry_precompile_headers target)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")  # compiled as the libraries are, whose precompiled headers it takes
    target_compile_options(${target} PRIVATE -fPIC -fno-semantic-interposition)
  endif()
  # With libFuzzer the first of them is compiled otherwise than the others.
  if(NOT target STREQUAL "ferry_ckpt" AND NOT FERRY_LIBFUZZER)
    target_precompile_headers(${target} REUSE_FROM ferry_ckpt)
    return()
  endif()
  target_precompile_headers(${target} PRIVATE <algorithm> <charconv> <cstdint> <cstring> <functional> <map> <memory> <optional>
                                              <span> <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h>)
endfunction()

# ferry_unity(TARGET [FOLDERS...]): the target's sources are compiled as one, or as one for each list of
# folders ("base io"). Names in the anonymous namespaces of what is compiled as one differ therefore.
function(ferry_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # To GCC each source looks like a header then, whose anonymous namespaces others see and hide.
  target_compile_options(${target} PRIVATE -Wno-subobject-linkage -Wno-shadow)
  get_target_property(sources ${target} SOURCES)
  if(NOT ARGN)
    set_source_files_properties(${sources} PROPERTIES UNITY_GROUP all)
  endif()
  foreach(source IN LISTS sources)
    cmake_path(ABSOLUTE_PATH source NORMALIZE OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    foreach(folders IN LISTS ARGN)
      string(REPLACE " " "|" any_folder "${folders}")
      if(path MATCHES "^(${any_folder})/")
        string(MAKE_C_IDENTIFIER "${folders}" group)
        set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
      endif()
    endforeach()
  endforeach()
endfunction()
