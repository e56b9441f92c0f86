# What `quire --version` says of the build: the commit (that of the last run of CMake; nothing outside a clone), the kind
# of build, the compiler, and the versions of the libraries.
set(commit "")
if(EXISTS ${CMAKE_SOURCE_DIR}/.git)
  execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} rev-parse --short=12 HEAD
    RESULT_VARIABLE result OUTPUT_VARIABLE answer ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(result EQUAL 0)
    set(commit ", commit ${answer}")
  endif()
endif()
set(build "${CMAKE_BUILD_TYPE}, ${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}")
if(QUIRE_SANITIZE)
  string(APPEND build ", sanitizers ${QUIRE_SANITIZE}")
endif()

# Every library that pkg-config found for this project, under its name there, and SentencePiece, which some packages
# leave out of pkg-config: then its version is that of the package, or unknown.
pkg_check_modules(SENTENCEPIECE_VERSION_OF QUIET sentencepiece)
set(libraries "")
if(NOT SENTENCEPIECE_VERSION_OF_FOUND)
  execute_process(COMMAND dpkg-query -W -f "\${source:Upstream-Version}" libsentencepiece-dev
    OUTPUT_VARIABLE answer ERROR_QUIET)
  if(NOT answer)
    set(answer "of unknown version")
  endif()
  list(APPEND libraries "sentencepiece ${answer}")
endif()
get_cmake_property(variables CACHE_VARIABLES)
foreach(variable IN LISTS variables)
  string(REGEX REPLACE "_MODULE_NAME$" "" prefix ${variable})
  if(NOT prefix STREQUAL variable AND ${prefix}_FOUND AND NOT prefix STREQUAL "CMOCKA")
    list(APPEND libraries "${${variable}} ${${prefix}_VERSION}")
  endif()
endforeach()
list(SORT libraries)
string(REPLACE ";" ", " libraries "${libraries}")
set_source_files_properties(runtime/version.c PROPERTIES COMPILE_DEFINITIONS
  "QUIRE_COMMIT=\"${commit}\";QUIRE_BUILD=\"${build}\";QUIRE_LIBRARIES=\"${libraries}\"")
