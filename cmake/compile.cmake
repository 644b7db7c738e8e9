# How all of it is compiled.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()
add_compile_options(-Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes> -Wvla)
add_compile_definitions(_POSIX_C_SOURCE=200809L CL_TARGET_OPENCL_VERSION=300)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-format-truncation) # sentences and names are cut on purpose; depends on the optimiser
endif()
if(ISTHMUS_WERROR)
  add_compile_options(-Werror)
  if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-error=maybe-uninitialized) # gcc 14 does not follow a status to the value it guards
  endif()
endif()
if(ISTHMUS_SANITIZE)
  add_compile_options(-fsanitize=${ISTHMUS_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${ISTHMUS_SANITIZE})
endif()
set(ISTHMUS_DATE "November 26, 2026") # of the version, for man pages
