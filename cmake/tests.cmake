# Every tests/LAYER_IDEA.c becomes an executable of that name, linked to the library of its layer and registered with
# ctest under the label LAYER. A new file is picked up by itself; one that does not compile stops only its own target.
#
# A test that defines __wrap_NAME gets the linker option --wrap=NAME: calls of NAME from the library go to the test's
# function, which reaches the real one as __real_NAME. That is how failures are injected.
#
# Compile definitions: IST_GOLDEN_DIR (tests/golden), IST_SOURCE_DIR, IST_BUILD_DIR and, for cli_ tests, IST_CLI (path
# of the command line program, the target isthmus_cli). Tests run one at a time where they use a device: PoCL takes all
# cores by itself. Kernels that PoCL compiled are kept in one folder of the build for all tests.
pkg_check_modules(CRITERION REQUIRED IMPORTED_TARGET criterion)

set(IST_TEST_DEVICE_LAYERS device core op model pipeline cli api)
set(IST_TEST_LIB_base ist_base)
set(IST_TEST_LIB_device ist_device)
set(IST_TEST_LIB_core ist_core)
set(IST_TEST_LIB_weights ist_models)
set(IST_TEST_LIB_graph ist_graph)
set(IST_TEST_LIB_op ist_variants)
set(IST_TEST_LIB_model ist_models)
set(IST_TEST_LIB_pipeline isthmus_static)
set(IST_TEST_LIB_io ist_io)
set(IST_TEST_LIB_audit ist_audit)
set(IST_TEST_LIB_live ist_live)
set(IST_TEST_LIB_api isthmus_static)
set(IST_TEST_LIB_cli ist_io)

ist_view(tests audit)
function(ist_test_common target)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include
    ${PROJECT_SOURCE_DIR}/tests ${PROJECT_BINARY_DIR}/view/tests)
  target_compile_options(${target} PRIVATE -Wno-missing-field-initializers) # of a filter's recipe, which only graphs have
  target_compile_definitions(${target} PRIVATE IST_GOLDEN_DIR="${PROJECT_SOURCE_DIR}/tests/golden"
    IST_SOURCE_DIR="${PROJECT_SOURCE_DIR}" IST_BUILD_DIR="${PROJECT_BINARY_DIR}")
endfunction()

# Machines that are not built (ISTHMUS_MACHINES) and whose headers a test includes, itself or through headers of
# tests/support: what such a test calls is not there to link. Tests that only ask for a machine's variant by its name
# are built, and look whether the table has it.
function(ist_test_lacks file out)
  set(lacks)
  set(seen)
  set(files ${file})
  while(files)
    list(POP_FRONT files next)
    if(next IN_LIST seen OR NOT EXISTS ${next})
      continue()
    endif()
    list(APPEND seen ${next})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${next})
    file(STRINGS ${next} includes REGEX "^#include \"(variants/[a-z]+/|support/)")
    foreach(include ${includes})
      if(include MATCHES "\"(support/[a-z_0-9]+\\.h)\"")
        list(APPEND files ${PROJECT_SOURCE_DIR}/tests/${CMAKE_MATCH_1})
      elseif(include MATCHES "\"variants/([a-z]+)/" AND CMAKE_MATCH_1 IN_LIST IST_OTHER_MACHINES)
        list(APPEND lacks ${CMAKE_MATCH_1})
      endif()
    endforeach()
  endwhile()
  list(REMOVE_DUPLICATES lacks)
  set(${out} ${lacks} PARENT_SCOPE)
endfunction()

# What tests share: the scalar references, synthetic checkpoints, checkers.
file(GLOB support CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/*.c ${PROJECT_SOURCE_DIR}/tests/ref*.c
  ${PROJECT_SOURCE_DIR}/tests/synth.c)
set(IST_SUPPORT)
foreach(file ${support})
  ist_test_lacks(${file} lacks)
  if(NOT lacks)
    list(APPEND IST_SUPPORT ${file})
  endif()
endforeach()
add_library(ist_test_support STATIC ${IST_SUPPORT})
ist_test_common(ist_test_support)
target_link_libraries(ist_test_support PRIVATE PkgConfig::CRITERION OpenCL::OpenCL PkgConfig::JANSSON)

# make_checkpoint MODEL SEED CLASSES OUT: the checkpoints that tests, benchmarks and the demo use.
add_executable(make_checkpoint tests/make_checkpoint.c tests/synth.c) # without Criterion: tests start it
set_target_properties(make_checkpoint PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
ist_test_common(make_checkpoint)
target_link_libraries(make_checkpoint PRIVATE ist_models m)

# Programs with planted faults for cli_audit: debug information tells the lines.
add_custom_target(isthmus_audited)
file(GLOB audited CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/audit/*.c)
foreach(file ${audited})
  get_filename_component(name ${file} NAME_WE)
  add_executable(audit_${name}_program EXCLUDE_FROM_ALL ${file})
  set_target_properties(audit_${name}_program PROPERTIES OUTPUT_NAME audit_${name}
    RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/audit)
  target_compile_options(audit_${name}_program PRIVATE -g -O1)
  target_link_libraries(audit_${name}_program PRIVATE OpenCL::OpenCL Threads::Threads ${CMAKE_DL_LIBS})
  add_dependencies(isthmus_audited audit_${name}_program)
endforeach()
add_library(audit_waiting_driver MODULE EXCLUDE_FROM_ALL tests/audit/driver/waiting.c)
set_target_properties(audit_waiting_driver PROPERTIES PREFIX "" OUTPUT_NAME waiting_driver
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/audit)
add_dependencies(isthmus_audited audit_waiting_driver)

# Tests find isthmus-probe and the audit's layer beside them; isthmus-probe-deadly does not survive some probes.
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
file(CREATE_LINK ../isthmus-probe ${PROJECT_BINARY_DIR}/tests/isthmus-probe SYMBOLIC)
file(CREATE_LINK ../isthmus-audit-layer.so ${PROJECT_BINARY_DIR}/tests/isthmus-audit-layer.so SYMBOLIC)
add_executable(isthmus_probe_deadly ${PROJECT_SOURCE_DIR}/src/isthmus_probe.c tests/probe/deadly.c)
set_target_properties(isthmus_probe_deadly PROPERTIES OUTPUT_NAME isthmus-probe-deadly
  RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
ist_test_common(isthmus_probe_deadly)
target_link_libraries(isthmus_probe_deadly PRIVATE ist_device)
target_link_options(isthmus_probe_deadly PRIVATE -Wl,--wrap=ist_enqueue -Wl,--wrap=ist_programs_join_at
  -Wl,--wrap=ist_probe_find)

set(IST_IO_FORMATS)
if(TARGET ist_io)
  get_target_property(IST_IO_FORMATS ist_io COMPILE_DEFINITIONS)
endif()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/pocl-cache)
file(GLOB IST_TESTS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*_*.c)
foreach(file ${IST_TESTS})
  get_filename_component(name ${file} NAME_WE)
  string(REGEX REPLACE "_.*" "" layer ${name})
  if(NOT DEFINED IST_TEST_LIB_${layer} OR NOT TARGET ${IST_TEST_LIB_${layer}})
    continue()
  endif()
  if(layer IN_LIST IST_TEST_DEVICE_LAYERS AND NOT ISTHMUS_DEVICE_TESTS)
    continue()
  endif()
  ist_test_lacks(${file} lacks)
  if(lacks)
    list(JOIN lacks " and " lacks)
    message(STATUS "tests/${name} left out: it includes headers of ${lacks}, not in ISTHMUS_MACHINES")
    continue()
  endif()
  file(STRINGS ${file} speaks REGEX "support/igtl_peer.h|live/igtl.h")
  if(speaks AND NOT (OPENIGTLINK_INCLUDE AND OPENIGTLINK_LIBRARY))
    message(STATUS "tests/${name} left out: OpenIGTLink was not found")
    continue()
  endif()
  # formats of optional libraries (cmake/formats.cmake) are written by these; they come with ist_io
  set(lacks)
  foreach(format "TIFF=<tiffio.h>" "WEBP=<webp/" "VIDEO=<libavformat/" "JPEG2000=<openjpeg.h>")
    string(REGEX REPLACE "=.*" "" macro ${format})
    string(REGEX REPLACE ".*=" "" header ${format})
    file(STRINGS ${file} writes REGEX "^#include ${header}")
    if(writes AND NOT "${IST_IO_FORMATS}" MATCHES "ISTHMUS_${macro}=")
      list(APPEND lacks ${macro})
    endif()
  endforeach()
  if(lacks)
    message(STATUS "tests/${name} left out: ${lacks} images are not built")
    continue()
  endif()
  add_executable(${name} ${file})
  if(speaks)
    target_include_directories(${name} SYSTEM PRIVATE ${OPENIGTLINK_INCLUDE}/openigtlink)
    target_link_libraries(${name} PRIVATE ${OPENIGTLINK_LIBRARY})
  endif()
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  ist_test_common(${name})
  if(layer MATCHES "^(weights|op|model|pipeline|api)$")
    target_link_libraries(${name} PRIVATE ist_test_support)
  endif()
  target_link_libraries(${name} PRIVATE ${IST_TEST_LIB_${layer}})
  if(layer STREQUAL "op")
    target_link_libraries(${name} PRIVATE ist_models ist_weights)
  elseif(layer STREQUAL "model")
    target_link_libraries(${name} PRIVATE ist_variants)
  elseif(layer STREQUAL "cli" AND TARGET isthmus_cli)
    add_dependencies(${name} isthmus_cli isthmus_example)
    target_compile_definitions(${name} PRIVATE IST_CLI="$<TARGET_FILE:isthmus_cli>")
  endif()
  file(STRINGS ${file} table REGEX "^#include \"variants/variant.h\"")
  if(layer STREQUAL "cli" AND table) # asks it what the program may choose from
    target_link_libraries(${name} PRIVATE ist_variants)
  endif()
  if(name MATCHES "^pipeline_(everything|tiles)$") # reads the demo's frames
    target_link_libraries(${name} PRIVATE ist_io)
  endif()
  if(name MATCHES "^cli_(audit|faults)$")
    add_dependencies(${name} isthmus_audited isthmus_audit)
  endif()
  if(name STREQUAL "cli_faults")
    if(NOT TARGET isthmus_faulty)
      continue()
    endif()
    add_dependencies(${name} isthmus_faulty isthmus_faulty_fake)
  endif()
  if(name STREQUAL "cli_serve")
    if(NOT TARGET isthmus_faulty_fake)
      continue()
    endif()
    add_dependencies(${name} isthmus_faulty_fake)
  endif()
  if(layer IN_LIST IST_TEST_DEVICE_LAYERS)
    add_dependencies(${name} isthmus_probe)
  endif()
  if(name STREQUAL "device_apart")
    add_dependencies(${name} isthmus_probe_deadly)
  endif()
  if(layer STREQUAL "cli" AND TARGET isthmus_fake)
    add_dependencies(${name} isthmus_fake isthmus_probe_deadly make_checkpoint) # the program over a double of the engine
  endif()
  target_link_libraries(${name} PRIVATE PkgConfig::CRITERION PkgConfig::JANSSON Threads::Threads m)

  file(STRINGS ${file} wraps REGEX "__wrap_[A-Za-z0-9_]+\\(|support/[a-z_]+.h")
  if(wraps MATCHES "support/faults.h")
    list(APPEND wraps "support/host_memory.h")
  endif()
  if(wraps MATCHES "support/each_variant.h")
    list(APPEND wraps "support/hidden_caps.h")
  endif()
  foreach(header chosen_variant faults hidden_caps host_memory)
    if(wraps MATCHES "support/${header}.h")
      file(STRINGS ${PROJECT_SOURCE_DIR}/tests/support/${header}.h more REGEX "^FAULT_|^[a-z].*__wrap_[a-z]")
      list(APPEND wraps ${more})
      set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/support/${header}.h)
    endif()
  endforeach()
  if(wraps MATCHES "__wrap_")
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    string(REGEX REPLACE "FAULT_[A-Z]+\\(([a-z_]+, )?(cl[A-Z])" "__wrap_\\2" wraps "${wraps}")
    string(REGEX MATCHALL "__wrap_[A-Za-z0-9_]+" wraps "${wraps}")
    list(REMOVE_DUPLICATES wraps)
    list(TRANSFORM wraps REPLACE "__wrap_" "-Wl,--wrap=")
    target_link_options(${name} PRIVATE ${wraps})
  endif()

  set(jobs)
  if(layer IN_LIST IST_TEST_DEVICE_LAYERS)
    set(jobs --jobs 1)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${jobs})
  set_tests_properties(${name} PROPERTIES LABELS ${layer} TIMEOUT 900
    ENVIRONMENT "POCL_CACHE_DIR=${PROJECT_BINARY_DIR}/pocl-cache;ISTHMUS_CACHE_DIR=${PROJECT_BINARY_DIR}/kernel-cache")
  if(name STREQUAL "cli_audit") # tells waiting from working
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
  # Operators whose tensors can be stored as half (op_conv_mma's and others' always are, op_conv_bf16's and op_conv_amx's never), again in half: label "half".
  if(layer STREQUAL "op" AND NOT name MATCHES "^op_(act|assign|conv_amx|conv_bf16|conv_matrix|conv_mma|match|detect|token|topk|mask|mask_picks|everything|regions|image|sample_window|tiles|nms|two_way_read)$")
    add_test(NAME ${name}_half COMMAND ${name} ${jobs})
    get_test_property(${name} ENVIRONMENT environment)
    set_tests_properties(${name}_half PROPERTIES LABELS half TIMEOUT 900
      ENVIRONMENT "${environment};ISTHMUS_HALF=1")
  endif()
endforeach()

# The installed tree as a stranger uses it. Sanitized libraries need a sanitized user, so not there.
if(TARGET isthmus AND ISTHMUS_DEVICE_TESTS AND NOT ISTHMUS_SANITIZE)
  add_test(NAME install COMMAND sh ${PROJECT_SOURCE_DIR}/tests/install.sh ${PROJECT_BINARY_DIR})
  set_tests_properties(install PROPERTIES LABELS install TIMEOUT 900
    ENVIRONMENT "POCL_CACHE_DIR=${PROJECT_BINARY_DIR}/pocl-cache;ISTHMUS_CACHE_DIR=${PROJECT_BINARY_DIR}/kernel-cache")
endif()

# Scripts that install packages ask first.
add_test(NAME asks COMMAND sh ${PROJECT_SOURCE_DIR}/tests/asks.sh)
set_tests_properties(asks PROPERTIES LABELS install TIMEOUT 60)

# The page of `segment --serve` in a browser, where there is one.
find_program(IST_PYTHON python3)
if(TARGET isthmus_cli AND IST_PYTHON AND ISTHMUS_DEVICE_TESTS AND NOT ISTHMUS_SANITIZE)
  add_test(NAME page COMMAND ${IST_PYTHON} ${PROJECT_SOURCE_DIR}/tests/page.py ${PROJECT_BINARY_DIR})
  set_tests_properties(page PROPERTIES LABELS page TIMEOUT 300 SKIP_RETURN_CODE 77
    ENVIRONMENT "POCL_CACHE_DIR=${PROJECT_BINARY_DIR}/pocl-cache;ISTHMUS_CACHE_DIR=${PROJECT_BINARY_DIR}/kernel-cache")
endif()

# The page of `report`, likewise.
if(TARGET isthmus_fake AND IST_PYTHON AND NOT ISTHMUS_SANITIZE)
  add_test(NAME report COMMAND ${IST_PYTHON} ${PROJECT_SOURCE_DIR}/tests/report.py ${PROJECT_BINARY_DIR})
  set_tests_properties(report PROPERTIES LABELS page TIMEOUT 300 SKIP_RETURN_CODE 77)
endif()

# docs/variants.md is printed by a program, from the table of kernel variants.
add_executable(variants_page tests/variants_page.c)
set_target_properties(variants_page PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
ist_test_common(variants_page)
target_link_libraries(variants_page PRIVATE ist_variants)
add_test(NAME variants_page_in_step COMMAND sh ${PROJECT_SOURCE_DIR}/tests/variants_page.sh $<TARGET_FILE:variants_page>
  ${PROJECT_SOURCE_DIR}/docs/variants.md "${IST_OTHER_MACHINES}")
set_tests_properties(variants_page_in_step PROPERTIES LABELS docs SKIP_RETURN_CODE 77)
