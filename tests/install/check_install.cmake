# Installs the build into a folder of its own, builds the consumer and the example against it and runs all programs.
#   cmake -D BUILD=... -D SOURCE=... -D EXAMPLES=... -D WORK=... -D FIXTURE=... -D CXX=... [-D FLAGS=...] -P check_install.cmake
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
function(build_outside source folder)
  step(${CMAKE_COMMAND} -S ${source} -B ${folder} -G Ninja -D CMAKE_PREFIX_PATH=${WORK}/prefix
       -D CMAKE_BUILD_TYPE=Release -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_CXX_FLAGS=${FLAGS})
  step(${CMAKE_COMMAND} --build ${folder})
endfunction()
build_outside(${SOURCE} ${WORK}/build)
step(${WORK}/build/consumer ${FIXTURE})
# Saves with two ranks, resumes with three.
build_outside(${EXAMPLES}/async_save ${WORK}/async_save)
step(${WORK}/async_save/async_save ${WORK}/run 10 2)
step(${WORK}/async_save/async_save ${WORK}/run 5 3)
step(${WORK}/prefix/bin/ferry verify ${WORK}/run)
step(${WORK}/prefix/bin/ferry inspect ${FIXTURE})
