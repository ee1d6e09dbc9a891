# FERRY_PORTABLE: what runs on any Linux with glibc 2.28 or later (the rule of manylinux_2_28) and needs nothing
# of the machine but the C library: the program `ferry_portable`, and the module for Python, if it is built.
#
# They consist of the same objects as everything else. They are only linked otherwise: with archives of the
# other libraries, with libstdc++'s, and with stand-ins for the C library that have what 2.27 had
# (portable/libc_stubs.sh); portable/newer_libc.c has what the objects need besides. What is missing there is an
# undefined symbol. 2.27 and not 2.28, because there are machines with it to try the result on.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$" OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  message(FATAL_ERROR "FERRY_PORTABLE is for GCC on x86-64.")
endif()
enable_language(C ASM)
find_package(OpenMP REQUIRED COMPONENTS CXX)
set(here ${PROJECT_SOURCE_DIR}/cmake/portable)
set(stubs ${PROJECT_BINARY_DIR}/portable/libc)
set(stub_libraries libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 ld-linux-x86-64.so.2)
list(TRANSFORM stub_libraries PREPEND ${stubs}/)
list(TRANSFORM stub_libraries PREPEND -Wl, OUTPUT_VARIABLE stub_arguments)  # CMake would search for them under other names
add_custom_command(OUTPUT ${stub_libraries} DEPENDS ${here}/libc_stubs.sh
                   COMMAND ${here}/libc_stubs.sh ${stubs} 2.27 ${CMAKE_C_COMPILER} VERBATIM)
add_custom_target(ferry_libc_stubs DEPENDS ${stub_libraries})

# Archives: Debian's, and ISA-L's, which tools/static_isal.sh makes.
set(archives)
foreach(name zstd lzma xxhash isal nettle yaml pcre2-8 utf8proc blis)
  find_library(FERRY_STATIC_${name} lib${name}.a HINTS ${PROJECT_SOURCE_DIR}/build/static PATH_SUFFIXES blis-openmp REQUIRED)
  list(APPEND archives ${FERRY_STATIC_${name}})
endforeach()
foreach(name crti.o crtbeginS.o crtendS.o crtn.o libgomp.a libstdc++.a libgcc.a libgcc_eh.a libc_nonshared.a)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${name} OUTPUT_VARIABLE file OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT IS_ABSOLUTE ${file})
    message(FATAL_ERROR "${CMAKE_CXX_COMPILER} has no ${name}.")
  endif()
  set(file_${name} ${file})
endforeach()

# Sources of the program that are others here: without MPI and GPUs, and with products by BLIS.
find_path(FERRY_BLIS_INCLUDE blis.h PATH_SUFFIXES blis-openmp REQUIRED)
add_library(ferry_portable_parts OBJECT ckpt/group/mpi/launcher.cpp ckpt/group/mpi/without_mpi.cpp trainer/communicator/mpi/without_mpi.cpp
                                        trainer/gpu/without_gpu.cpp kernels/cpu/products/blis_products.cpp)
ferry_compile_options(ferry_portable_parts)
target_include_directories(ferry_portable_parts SYSTEM PRIVATE ${FERRY_BLIS_INCLUDE})
target_link_libraries(ferry_portable_parts PRIVATE OpenMP::OpenMP_CXX)
add_library(ferry_portable_libc OBJECT ${here}/newer_libc.c ${here}/fmt.cpp ${here}/xxhash.c ${here}/blis_settings.c)
target_include_directories(ferry_portable_libc SYSTEM PRIVATE ${FERRY_BLIS_INCLUDE})
set_target_properties(ferry_portable_libc PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_compile_options(ferry_portable_libc PRIVATE -ffunction-sections $<$<COMPILE_LANGUAGE:CXX>:-fkeep-inline-functions>)

# ferry_link_portably(TARGET FERRY_LIBRARIES...)
function(ferry_link_portably target)
  set(libraries)
  foreach(library IN LISTS ARGN)
    list(APPEND libraries $<TARGET_FILE:${library}>)
    add_dependencies(${target} ${library})
  endforeach()
  add_dependencies(${target} ferry_libc_stubs)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:ferry_portable_libc>)
  target_link_options(${target} PRIVATE -nostartfiles -nodefaultlibs -Wl,--gc-sections -Wl,-z,relro -Wl,--build-id)
  target_link_libraries(${target} PRIVATE ${file_crti.o} ${file_crtbeginS.o} -Wl,--start-group ${libraries} ${archives} ${file_libgomp.a} ${file_libstdc++.a} ${file_libgcc.a}
                                          ${file_libgcc_eh.a} -Wl,--end-group -Wl,--no-as-needed ${stub_arguments}
                                          ${file_libc_nonshared.a} ${file_crtendS.o} ${file_crtn.o})
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${stub_libraries}")
endfunction()

add_executable(ferry_portable $<TARGET_OBJECTS:ferry_tool> $<TARGET_OBJECTS:ferry_portable_parts> ${here}/start.S)
set_target_properties(ferry_portable PROPERTIES OUTPUT_NAME ferry RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/portable/bin POSITION_INDEPENDENT_CODE ON
                                                LINKER_LANGUAGE CXX)
target_link_options(ferry_portable PRIVATE -pie)
ferry_link_portably(ferry_portable ferry_tools ferry_estimate ferry_trainer ferry_ops ferry_convert ferry_text ferry_kernels ferry_ckpt)

# Licences of what it consists of, as Debian has them, in a folder. That of libgomp1 is that of libstdc++, too.
set(FERRY_PORTABLE_LICENCES ${PROJECT_BINARY_DIR}/portable/libraries)
foreach(package libblis-openmp-dev libcli11-dev libfmt-dev libisal-dev liblzma-dev libpcre2-dev libutf8proc-dev libxxhash-dev libyaml-dev libzstd-dev
                nettle-dev nlohmann-json3-dev libgomp1)
  configure_file(/usr/share/doc/${package}/copyright ${FERRY_PORTABLE_LICENCES}/${package}.copyright COPYONLY)
endforeach()
install(TARGETS ferry_portable RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT portable)
install(DIRECTORY ${PROJECT_BINARY_DIR}/share/ DESTINATION ${CMAKE_INSTALL_DATAROOTDIR} COMPONENT portable)
install(DIRECTORY ${FERRY_PORTABLE_LICENCES} DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT portable)
