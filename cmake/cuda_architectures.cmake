# What the CUDA kernels are compiled for, unless -DCMAKE_CUDA_ARCHITECTURES=... says it. In this order:
#   the environment variable CUDAARCHS, which is CMake's own;
#   the GPUs of this machine, as nvidia-smi lists them;
#   without a GPU, every kind that quire has kernels for (or QUIRE_ARCHITECTURES_WITHOUT_GPU).
# CMakeLists.txt includes this file; `cmake -P cmake/cuda_architectures.cmake` prints the list, which is empty if every
# GPU here is too old.

# From a compute capability as in "9.0" to an architecture, or "" for one that is too old. CMake compiles machine code
# and PTX for a plain number, and a newer GPU than any listed runs the PTX of the last one; 90a is Hopper alone.
function(quire_architecture_of capability out)
  set(${out} "" PARENT_SCOPE)
  if(NOT capability MATCHES "^([0-9]+)\\.([0-9])$" OR CMAKE_MATCH_1 LESS 8)
    return()
  elseif(CMAKE_MATCH_1 EQUAL 8)
    set(${out} ${CMAKE_MATCH_1}${CMAKE_MATCH_2} PARENT_SCOPE)
  elseif(CMAKE_MATCH_1 EQUAL 9)
    set(${out} 90a PARENT_SCOPE)
  elseif(CMAKE_MATCH_1 LESS 12)
    set(${out} 100 PARENT_SCOPE)
  else()
    set(${out} 120 PARENT_SCOPE)
  endif()
endfunction()

# The compute capabilities of the GPUs here; empty without a GPU or a driver that works.
function(quire_compute_capabilities out)
  execute_process(COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
    RESULT_VARIABLE result OUTPUT_VARIABLE answer ERROR_QUIET TIMEOUT 60)
  set(capabilities "")
  if(result EQUAL 0)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" capabilities "${answer}")
  endif()
  set(${out} "${capabilities}" PARENT_SCOPE)
endfunction()

function(quire_cuda_architectures out)
  set(architectures "$ENV{CUDAARCHS}")
  if(NOT architectures)
    quire_compute_capabilities(capabilities)
    foreach(capability IN LISTS capabilities)
      quire_architecture_of(${capability} architecture)
      list(APPEND architectures ${architecture})
    endforeach()
    list(REMOVE_DUPLICATES architectures)
    list(SORT architectures COMPARE NATURAL)
    if(NOT capabilities)
      set(architectures 80 86 89 90a 100 120)
      if(QUIRE_ARCHITECTURES_WITHOUT_GPU)
        set(architectures ${QUIRE_ARCHITECTURES_WITHOUT_GPU})
      endif()
    endif()
  endif()
  set(${out} "${architectures}" PARENT_SCOPE)
endfunction()

if(CMAKE_SCRIPT_MODE_FILE STREQUAL CMAKE_CURRENT_LIST_FILE)
  quire_cuda_architectures(architectures)
  execute_process(COMMAND ${CMAKE_COMMAND} -E echo "${architectures}")
endif()
