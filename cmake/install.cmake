# `cmake --install build/release --prefix DIR` makes a folder that can be moved, and that runs where nothing is
# installed: bin/quire, the guide in share/quire/models, the manual page, completions, and in lib/ every shared library but
# those of the C library, which belong to the host (it must be as new as the one built with).
# `cpack -G TGZ` and `cpack -G DEB`, run in the build folder, make packages: the .tar.gz is that folder; the .deb leaves
# the libraries to the packages that it depends on.

# DT_RPATH and not DT_RUNPATH: only the former also serves the libraries that libraries need, so that the copies in
# lib/ stay as their makers built them. The build folder's quire has the same path, which leads nowhere there.
target_link_options(quire PRIVATE -Wl,--disable-new-dtags -Wl,--as-needed)
set_target_properties(quire PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)

set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME program)
install(TARGETS quire
  RUNTIME_DEPENDENCY_SET quire_libraries
  RUNTIME DESTINATION bin)
# libcuda is the driver's and comes with it.
install(RUNTIME_DEPENDENCY_SET quire_libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|mvec)\\.so" "^libcuda\\.so"
  DIRECTORIES /usr/lib /usr/lib64
  LIBRARY DESTINATION lib COMPONENT libraries)
install(SCRIPT cmake/library_licences.cmake COMPONENT libraries)

# The published files of the checkpoint; what made it (train/) stays in the source tree.
file(GLOB guide_files CONFIGURE_DEPENDS models/guide/*.json models/guide/*.jinja models/guide/*.model
  models/guide/*.safetensors)
install(FILES ${guide_files} DESTINATION share/quire/models/guide)
file(GLOB draft_files CONFIGURE_DEPENDS models/guide/draft/*.json models/guide/draft/*.safetensors)
install(FILES ${draft_files} DESTINATION share/quire/models/guide/draft)

# Documents. What they link to in the source tree is not installed, so such a link becomes its text; pictures go along.
include(cmake/installed_document.cmake)
quire_install_document(README.md share/doc/quire)
quire_install_document(models/guide/README.md share/quire/models/guide)
install(FILES LICENSE DESTINATION share/doc/quire)
install(FILES LICENSE DESTINATION share/doc/quire RENAME copyright) # the name that Debian looks for

# The executable writes its own manual page and completions from its tables of flags.
set(about ${CMAKE_BINARY_DIR}/about)
add_custom_command(OUTPUT ${about}/quire.1 ${about}/quire.bash ${about}/_quire ${about}/quire.fish
  COMMAND ${CMAKE_COMMAND} -E make_directory ${about}
  COMMAND quire --print-man > ${about}/quire.1
  COMMAND quire --print-completion bash > ${about}/quire.bash
  COMMAND quire --print-completion zsh > ${about}/_quire
  COMMAND quire --print-completion fish > ${about}/quire.fish
  DEPENDS quire VERBATIM)
add_custom_target(about ALL DEPENDS ${about}/quire.1)
install(FILES ${about}/quire.1 DESTINATION share/man/man1)
install(FILES ${about}/quire.bash DESTINATION share/bash-completion/completions RENAME quire)
install(FILES ${about}/_quire DESTINATION share/zsh/vendor-completions)
install(FILES ${about}/quire.fish DESTINATION share/fish/vendor_completions.d)

# For systemd, and examples for containers.
set(deploy runtime/serve/deploy)
install(FILES ${deploy}/quire.service ${deploy}/quire.socket DESTINATION lib/systemd/system)
install(FILES ${deploy}/Containerfile ${deploy}/serve.yaml ${deploy}/generate.yaml DESTINATION share/doc/quire/deploy)

# The CUDA runtime is linked statically, so its licence comes with the executable. Where it lies depends on how the toolkit
# was installed.
if(QUIRE_HAVE_CUDA)
  file(GLOB cuda_licences
    ${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT}/dist-info/nvidia_cuda_runtime-*/licenses/*
    ${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT}/EULA.txt
    /usr/share/doc/cuda-cudart-dev-*/copyright
    /usr/share/doc/nvidia-cuda-dev/copyright)
  if(cuda_licences)
    list(GET cuda_licences 0 cuda_licence)
    install(FILES ${cuda_licence} DESTINATION share/doc/quire/libraries RENAME nvidia-cuda-runtime.txt)
  else()
    message(STATUS "The licence of the CUDA runtime was not found in ${CMAKE_CUDA_COMPILER_TOOLKIT_ROOT}: add it before "
      "you pass on what is installed")
  endif()
endif()

# Packages. Both kinds of build have the same commands, so a machine has one of them.
set(CPACK_PACKAGE_NAME quire)
if(QUIRE_HAVE_CUDA)
  set(CPACK_PACKAGE_NAME quire-cuda)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_PROVIDES quire)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONFLICTS quire)
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_REPLACES quire)
  # From NVIDIA's repository; without one of them the package installs all the same, and quire computes on the CPU.
  set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "libcublas-13-0 | libcublas-12-9 | libcublas-12-8")
endif()
set(CPACK_PACKAGE_VENDOR quire)
set(CPACK_PACKAGE_CONTACT "the quire developers <quire@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "LLM runtime with a paged KV cache: chat, batches of prompts, memory profiles")
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGE_FILE_NAME ${CPACK_PACKAGE_NAME}-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/cmake/package.cmake)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME ${CPACK_PACKAGE_NAME})
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
include(CPack)

if(TARGET test_install)
  add_dependencies(test_install about)
endif()
