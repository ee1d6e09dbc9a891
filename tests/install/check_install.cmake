# Installs the build into a folder of its own, builds the consumer against it and runs both programs.
#   cmake -D BUILD=... -D SOURCE=... -D WORK=... -D FIXTURE=... -D CXX=... [-D FLAGS=...] -P check_install.cmake
file(REMOVE_RECURSE ${WORK})
function(step)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE code OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT code EQUAL 0)
    string(JOIN " " command ${ARGV})
    message(FATAL_ERROR "${command}: exit ${code}\n${output}")
  endif()
  message(STATUS "${output}")
endfunction()

step(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
step(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G Ninja -D CMAKE_PREFIX_PATH=${WORK}/prefix
     -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_CXX_FLAGS=${FLAGS})
step(${CMAKE_COMMAND} --build ${WORK}/build)
step(${WORK}/build/consumer ${FIXTURE})
step(${WORK}/prefix/bin/ferry inspect ${FIXTURE})
