# `cmake --install` gives bin/ridgeline, the library, the public headers, and below include/ridgeline/internal the headers
# that extend.h shows to those who add operators or kernels. find_package(Ridgeline) gives Ridgeline::ridgeline.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Ridgeline)
install(TARGETS ridgeline EXPORT RidgelineTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ridgeline_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/ridgeline DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${OPS_HEADER} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ridgeline)
install(DIRECTORY src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ridgeline/internal FILES_MATCHING PATTERN "*.h"
  PATTERN "cli" EXCLUDE)
install(DIRECTORY share/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/ridgeline FILES_MATCHING PATTERN "*.json")
install(EXPORT RidgelineTargets NAMESPACE Ridgeline:: DESTINATION ${package_dir})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(cmake/RidgelineConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/RidgelineConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/RidgelineConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/RidgelineConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/RidgelineConfigVersion.cmake
  DESTINATION ${package_dir})
