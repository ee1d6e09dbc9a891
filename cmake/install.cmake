# `cmake --install` puts bin/ferry, the libraries, their headers and a CMake package: find_package(ferry), or
# find_package(ferry COMPONENTS mpi estimate) for ferry::mpi and ferry::estimate, too.
include(CMakePackageConfigHelpers)

install(TARGETS ferry_tool EXPORT ferryTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(TARGETS ferry_ckpt ferry_convert ferry_ops ferry_ferry
        EXPORT ferryTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR} COMPONENT program)
# ferry/ferry.h, the headers that docs/library.md names, and what they include; all others are ferry's own.
set(public_headers
    ckpt/base/box.h
    ckpt/base/dtype.h
    ckpt/base/error.h
    ckpt/checkpoint.h
    ckpt/core/catalog.h
    ckpt/engine/engine.h
    ckpt/format/pickle/values/value.h
    ckpt/group/group.h
    ckpt/integrity/verify.h
    ckpt/io/file_system.h
    ckpt/megatron/model/target_options.h
    ckpt/memory/async_saver.h
    ckpt/memory/load.h
    ckpt/memory/region.h
    ckpt/memory/save.h
    ckpt/store/options.h
    ckpt/summary.h
    ops/check.h
    ops/convert.h
    ops/diff.h
    ops/inspect.h
    ops/prune.h
    ops/reshard.h
    ops/verify.h
    ops/write_options.h)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ferry/${folder})
endforeach()
install(FILES ferry/ferry.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ferry)
install(EXPORT ferryTargets NAMESPACE ferry:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
# A component of its own: who does without MPI need not have it.
if(FERRY_MPI)
  install(TARGETS ferry_mpi EXPORT ferryMpiTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ckpt/group/mpi/mpi_group.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ferry/ckpt/group/mpi)
  install(EXPORT ferryMpiTargets NAMESPACE ferry:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
endif()
# What training takes is known to the trainer, so this brings the trainer and its kernels along.
install(TARGETS ferry_estimate ferry_trainer ferry_kernels EXPORT ferryEstimateTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES estimate/estimate.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ferry/estimate)
install(EXPORT ferryEstimateTargets NAMESPACE ferry:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
configure_package_config_file(cmake/ferryConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/ferryConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ferryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ferryConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ferryConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
# Presets of `ferry launch`, to read and to begin from; the program carries them with it.
file(GLOB launch_presets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/launch/presets/*.yaml)
install(FILES ${launch_presets} DESTINATION ${CMAKE_INSTALL_DATADIR}/ferry/launch)
