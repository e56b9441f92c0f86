# Checks the rule of ARCHITECTURE.md that a folder includes only itself and what stands below it.
#
# usage: cmake -DSOURCE_DIR=... -P check_includes.cmake
#
# allowed_FOLDER lists the folders that the files of FOLDER may include. A file obeys the rule of the longest FOLDER that
# its path begins with; so does what it includes: to include kernels/cpu/ a folder must name kernels/cpu, not kernels.
# NAME_state.h says what a struct is made of which other folders know by its functions: only its own folder includes it. So
# it is with the files in `private`.
cmake_minimum_required(VERSION 3.25)

set(folders base kernels kernels/cpu kernels/cuda tokenizer tokenizer/grammar tokenizer/jinja model
    model/checkpoint model/families model/quantization scheduler runtime/engine runtime/prompts runtime)
set(private model/checkpoint/safetensors.h)
set(allowed_base base)
set(allowed_kernels base kernels kernels/cpu kernels/cuda)
set(allowed_kernels/cpu base kernels kernels/cpu)
set(allowed_kernels/cuda base kernels kernels/cuda)
set(allowed_tokenizer base tokenizer tokenizer/jinja)
set(allowed_tokenizer/grammar base tokenizer tokenizer/grammar)
set(allowed_tokenizer/jinja base tokenizer/jinja)
set(allowed_model base kernels model model/checkpoint model/families model/quantization)
set(allowed_model/checkpoint base kernels model model/checkpoint)
set(allowed_model/families base kernels model model/families)
set(allowed_model/quantization base kernels model model/quantization)
set(allowed_scheduler base scheduler)
set(allowed_runtime/engine base kernels tokenizer tokenizer/grammar model model/checkpoint scheduler runtime/engine)
set(allowed_runtime/prompts base kernels tokenizer tokenizer/grammar model scheduler runtime/engine runtime/prompts)
set(allowed_runtime base kernels tokenizer tokenizer/grammar model model/checkpoint scheduler runtime runtime/engine runtime/prompts)

# The longest of the folders that `path` lies in; "" if it lies in none.
function(folder_of path out)
  set(best "")
  string(LENGTH "${best}" best_length)
  foreach(folder ${folders})
    string(FIND "${path}" "${folder}/" at)
    string(LENGTH "${folder}" length)
    if(at EQUAL 0 AND length GREATER best_length)
      set(best ${folder})
      set(best_length ${length})
    endif()
  endforeach()
  set(${out} "${best}" PARENT_SCOPE)
endfunction()

# Adds the file's wrong includes to the list `failures`.
function(check_file file)
  folder_of(${file} folder)
  get_filename_component(directory ${file} DIRECTORY)
  file(STRINGS ${SOURCE_DIR}/${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*\"")
  foreach(line ${lines})
    string(REGEX REPLACE "^[^\"]*\"([^\"]*)\".*$" "\\1" included "${line}")
    folder_of("${included}" other)
    get_filename_component(other_directory "${included}" DIRECTORY)
    if(NOT other IN_LIST allowed_${folder} OR ((included MATCHES "_state\\.h$" OR included IN_LIST private)
       AND NOT directory STREQUAL other_directory))
      list(APPEND failures "${file} includes \"${included}\"")
    endif()
  endforeach()
  set(failures "${failures}" PARENT_SCOPE)
endfunction()

set(failures "")
set(num_files 0)
foreach(top base kernels tokenizer model scheduler runtime)
  file(GLOB_RECURSE files RELATIVE ${SOURCE_DIR} ${SOURCE_DIR}/${top}/*)
  list(FILTER files INCLUDE REGEX "\\.(c|h|cpp|hpp|cu|cuh)$")
  foreach(file ${files})
    check_file(${file})
    math(EXPR num_files "${num_files} + 1")
  endforeach()
endforeach()
if(num_files EQUAL 0)
  message(FATAL_ERROR "there are no sources in ${SOURCE_DIR}")
endif()
foreach(failure ${failures})
  message("${failure}")
endforeach()
if(failures)
  message(FATAL_ERROR "a folder may include only itself and what stands below it, and no other folder's NAME_state.h "
    "(ARCHITECTURE.md)")
endif()
message("${num_files} files: no folder includes one above it")
