# `cmake --install` puts bin/ferry, the libraries, their headers and a CMake package: find_package(ferry), or
# find_package(ferry COMPONENTS mpi) for ferry::mpi, too.
include(CMakePackageConfigHelpers)

install(TARGETS ferry_tool EXPORT ferryTargets RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
install(TARGETS ferry_ckpt ferry_convert ferry_ops
        EXPORT ferryTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR} COMPONENT program)
# The headers that docs/library.md and README.md name, and what they include; all others are ferry's own.
set(public_headers
    ckpt/base/box.h
    ckpt/base/digest.h
    ckpt/base/dtype.h
    ckpt/base/error.h
    ckpt/base/math_bits.h
    ckpt/base/non_finite.h
    ckpt/checkpoint.h
    ckpt/core/catalog.h
    ckpt/core/passing_values.h
    ckpt/core/placed.h
    ckpt/core/plan.h
    ckpt/core/recipe.h
    ckpt/core/shard.h
    ckpt/engine/engine.h
    ckpt/format/hugging_face/parameter_count.h
    ckpt/format/pickle/values/draft.h
    ckpt/format/pickle/values/value.h
    ckpt/format/torch/archive/torch_archive_writer.h
    ckpt/group/group.h
    ckpt/group/together.h
    ckpt/group/transport.h
    ckpt/integrity/integrity_options.h
    ckpt/integrity/problem.h
    ckpt/integrity/verify.h
    ckpt/io/file_system.h
    ckpt/io/staging/write_lock_options.h
    ckpt/megatron/model/architecture.h
    ckpt/megatron/model/blocks.h
    ckpt/megatron/model/model_layout.h
    ckpt/megatron/model/module_choice.h
    ckpt/megatron/model/parameter_names.h
    ckpt/megatron/model/pipeline_layout.h
    ckpt/megatron/model/run_arguments.h
    ckpt/megatron/optimizer/buckets/flat_buffer.h
    ckpt/megatron/optimizer/buckets/model_buffers.h
    ckpt/megatron/state/run_state.h
    ckpt/megatron/state_of.h
    ckpt/megatron/torch_dist/torch_dist_options.h
    ckpt/memory/async_saver.h
    ckpt/memory/run_snapshots.h
    ckpt/memory/load.h
    ckpt/memory/open_together.h
    ckpt/memory/region.h
    ckpt/memory/save.h
    ckpt/memory/snapshot.h
    ckpt/memory/stager.h
    ckpt/open.h
    ckpt/store/begin_options.h
    convert/convert.h)
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ferry/${folder})
endforeach()
install(EXPORT ferryTargets NAMESPACE ferry:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
# A component of its own: who does without MPI need not have it.
if(FERRY_MPI)
  install(TARGETS ferry_mpi EXPORT ferryMpiTargets
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(FILES ckpt/group/mpi/mpi_group.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ferry/ckpt/group/mpi)
  install(EXPORT ferryMpiTargets NAMESPACE ferry:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
endif()
configure_package_config_file(cmake/ferryConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/ferryConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ferryConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ferryConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/ferryConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/ferry)
# Presets of `ferry launch`, to read and to begin from; the program carries them with it.
file(GLOB launch_presets CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/launch/presets/*.yaml)
install(FILES ${launch_presets} DESTINATION ${CMAKE_INSTALL_DATADIR}/ferry/launch)
