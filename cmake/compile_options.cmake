# Warnings, sanitizers and the include root, shared by every target of the project.
function(ferry_compile_options target)
  target_compile_features(${target} PUBLIC cxx_std_20)  # for who links the installed libraries
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                              $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/ferry>)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
                                           $<$<BOOL:${FERRY_WARNINGS_AS_ERRORS}>:-Werror>)
  # GCC 12 warns of overlapping copies inside std::string's operator+ (its bug 105651, mended in 13).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
  # GCC 13 takes what a view returns for a part of the view, and a vector's growth for an overflow
  # (14 knows better).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^13\\.")
    target_compile_options(${target} PRIVATE -Wno-dangling-reference -Wno-stringop-overflow -Wno-array-bounds)
  endif()
  foreach(sanitizer IN LISTS FERRY_SANITIZE)
    target_compile_options(${target} PUBLIC $<BUILD_INTERFACE:-fsanitize=${sanitizer}> $<BUILD_INTERFACE:-fno-omit-frame-pointer>
                                            $<BUILD_INTERFACE:-fno-sanitize-recover=all>)
    target_link_options(${target} PUBLIC $<BUILD_INTERFACE:-fsanitize=${sanitizer}>)
  endforeach()
endfunction()
