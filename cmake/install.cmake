# `cmake --install` puts bin/ferry, the libraries, their headers and a CMake package: find_package(ferry), or
# find_package(ferry COMPONENTS mpi) for ferry::mpi, too.
include(CMakePackageConfigHelpers)

install(TARGETS ferry_ckpt ferry_convert ferry_tool
        EXPORT ferryTargets
        RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR}
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ckpt convert DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ferry FILES_MATCHING PATTERN "*.h"
        PATTERN "ckpt/group/mpi" EXCLUDE)
install(EXPORT ferryTargets NAMESPACE ferry:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
# A component of its own: who does without MPI need not have it.
if(FERRY_MPI)
  install(TARGETS ferry_mpi EXPORT ferryMpiTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY ckpt/group/mpi DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ferry/ckpt/group FILES_MATCHING PATTERN "*.h")
  install(EXPORT ferryMpiTargets NAMESPACE ferry:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
endif()
configure_package_config_file(cmake/ferryConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/ferryConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ferryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ferryConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ferryConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
