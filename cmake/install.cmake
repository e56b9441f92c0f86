# `cmake --install build/release --prefix DIR` makes a folder that can be moved, and that runs where nothing is
# installed: bin/quire, the guide in share/quire/models, and in lib/ every shared library but those of the C library,
# which belong to the host (it must be as new as the one built with).

# DT_RPATH and not DT_RUNPATH: only the former also serves the libraries that libraries need, so that the copies in
# lib/ stay as their makers built them. The build folder's quire has the same path, which leads nowhere there.
target_link_options(quire PRIVATE -Wl,--disable-new-dtags -Wl,--as-needed)
set_target_properties(quire PROPERTIES INSTALL_RPATH "$ORIGIN/../lib" BUILD_WITH_INSTALL_RPATH ON)

install(TARGETS quire
  RUNTIME_DEPENDENCY_SET quire_libraries
  RUNTIME DESTINATION bin)
# libcuda is the driver's and comes with it.
install(RUNTIME_DEPENDENCY_SET quire_libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|mvec)\\.so" "^libcuda\\.so"
  DIRECTORIES /usr/lib /usr/lib64
  LIBRARY DESTINATION lib)

# The published files of the checkpoint; what made it (train/) stays in the source tree.
file(GLOB guide_files CONFIGURE_DEPENDS models/guide/*.json models/guide/*.jinja models/guide/*.model
  models/guide/*.safetensors models/guide/README.md)
install(FILES ${guide_files} DESTINATION share/quire/models/guide)
install(FILES README.md LICENSE DESTINATION share/doc/quire)
