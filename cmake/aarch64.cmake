# Cross build for 64-bit ARM (NEON): Debian's compiler, and its arm64 libraries as tools/aarch64.sh unpacks them.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(RIDGELINE_SYSROOT "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-sysroot" CACHE PATH "Debian's arm64 packages, unpacked")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RIDGELINE_SYSROOT)
set(CMAKE_FIND_ROOT_PATH "${RIDGELINE_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)  # protoc runs here
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE BOTH)   # what is header-only serves both
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE BOTH)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-rpath-link,${RIDGELINE_SYSROOT}/usr/lib/aarch64-linux-gnu:${RIDGELINE_SYSROOT}/lib/aarch64-linux-gnu")
