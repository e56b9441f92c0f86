# quire_install_document(FILE FOLDER) installs a copy of a Markdown file whose links lead nowhere but to what is installed:
# a link to another file of the source tree becomes its text, and a picture is installed beside the document. Links with a
# scheme (https:) and to places in the document itself (#) stay.
function(quire_install_document file folder)
  get_filename_component(from ${CMAKE_SOURCE_DIR}/${file} DIRECTORY)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${file})
  file(READ ${CMAKE_SOURCE_DIR}/${file} text)
  string(REGEX MATCHALL "!\\[[^]]*\\]\\([^):#]+\\)" pictures "${text}")
  foreach(picture IN LISTS pictures)
    string(REGEX REPLACE "^.*\\((.*)\\)$" "\\1" path "${picture}")
    get_filename_component(sub "${path}" DIRECTORY)
    install(FILES "${from}/${path}" DESTINATION "${folder}/${sub}")
  endforeach()
  string(REGEX REPLACE "(^|[^!])\\[([^]]*)\\]\\([^):#]+(#[^):]*)?\\)" "\\1\\2" text "${text}")
  file(WRITE ${CMAKE_BINARY_DIR}/installed/${file} "${text}")
  install(FILES ${CMAKE_BINARY_DIR}/installed/${file} DESTINATION ${folder})
endfunction()
