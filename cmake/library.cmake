# The installed product: libisthmus (shared and static), its header, pkg-config and CMake package files. The shared
# library exports the functions that include/isthmus.h declares and nothing else; the list is read from the header.
include(CMakePackageConfigHelpers)

ist_view(api base device core graph variants pipeline)
ist_view(probe base device)
set(IST_HEADER ${PROJECT_SOURCE_DIR}/include/isthmus.h)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${IST_HEADER})
file(STRINGS ${IST_HEADER} declarations REGEX "^[a-z].*[ *]ist_[a-z_]+\\(")
set(exports "{\n  global:\n")
foreach(d ${declarations})
  string(REGEX REPLACE "^[^(]*[ *](ist_[a-z_]+)\\(.*" "\\1" d "${d}")
  string(APPEND exports "    ${d};\n")
endforeach()
string(APPEND exports "  local: *;\n};\n")
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/isthmus.map CONTENT "${exports}" @ONLY)

add_library(ist_api OBJECT ${PROJECT_SOURCE_DIR}/src/api.c ${PROJECT_SOURCE_DIR}/src/defaults.c)
target_include_directories(ist_api PRIVATE ${PROJECT_BINARY_DIR}/view/api ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(ist_api PRIVATE OpenCL::OpenCL)

foreach(t isthmus isthmus_static)
  if(t STREQUAL "isthmus")
    add_library(isthmus SHARED $<TARGET_OBJECTS:ist_api> ${IST_OBJECTS})
    set_target_properties(isthmus PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
      LINK_DEPENDS ${PROJECT_BINARY_DIR}/isthmus.map)
    target_link_options(isthmus PRIVATE -Wl,--version-script=${PROJECT_BINARY_DIR}/isthmus.map)
    if(NOT ISTHMUS_SANITIZE)
      target_link_options(isthmus PRIVATE -Wl,--no-undefined)
    endif()
  else()
    add_library(isthmus_static STATIC $<TARGET_OBJECTS:ist_api> ${IST_OBJECTS})
    set_target_properties(isthmus_static PROPERTIES OUTPUT_NAME isthmus)
  endif()
  target_include_directories(${t} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(${t} PRIVATE OpenCL::OpenCL PkgConfig::JANSSON PkgConfig::LIBZIP Threads::Threads ${CMAKE_DL_LIBS} m)
endforeach()

# The process in which the library runs what a driver may not survive (src/device/probe.h). Its folder has the number of
# the library's SONAME, so that libraries of different ones can be installed side by side.
add_executable(isthmus_probe ${PROJECT_SOURCE_DIR}/src/isthmus_probe.c)
set_target_properties(isthmus_probe PROPERTIES OUTPUT_NAME isthmus-probe RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
target_include_directories(isthmus_probe PRIVATE ${PROJECT_BINARY_DIR}/view/probe ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(isthmus_probe PRIVATE ist_device)
add_dependencies(isthmus isthmus_probe)
add_dependencies(isthmus_static isthmus_probe)
install(TARGETS isthmus_probe RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/isthmus/${PROJECT_VERSION_MAJOR})

install(TARGETS isthmus isthmus_static EXPORT isthmusTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES ${IST_HEADER} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT isthmusTargets NAMESPACE isthmus:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/isthmus)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/isthmusConfig.cmake.in
  ${PROJECT_BINARY_DIR}/isthmusConfig.cmake INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/isthmus)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/isthmusConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/isthmusConfig.cmake ${PROJECT_BINARY_DIR}/isthmusConfigVersion.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/isthmus)
# The prefix is found from where the file lies, so that an installed tree can be moved.
file(RELATIVE_PATH IST_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/isthmus.pc.in ${PROJECT_BINARY_DIR}/isthmus.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/isthmus.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
