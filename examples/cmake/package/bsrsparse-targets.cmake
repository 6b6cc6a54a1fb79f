# The targets, from the headers in BSRSPARSE_HEADERS. bsrsparse::headers: the include folder alone, for a program that has the
# implementation in a file of its own. bsrsparse::cpu: the library, compiled in your project with its flags, in C or else in C++,
# with OpenMP where it is found (BSRSPARSE_OPENMP=OFF: without). bsrsparse::cuda: both backends, where your project has the
# language CUDA; name the architecture, CMAKE_CUDA_ARCHITECTURES=90a for an H100 (CMake 3.18). Build switches go to the targets
# bsrsparse_cpu, bsrsparse_cuda: target_compile_definitions(bsrsparse_cpu PRIVATE BSRSPARSE_ONLY_PRODUCT).
if(TARGET bsrsparse::headers)
    return()
endif()
option(BSRSPARSE_OPENMP "bsrsparse's CPU backend runs on OpenMP's threads" ON)

add_library(bsrsparse_headers INTERFACE)
target_include_directories(bsrsparse_headers SYSTEM INTERFACE "${BSRSPARSE_HEADERS}")
if(UNIX)
    target_link_libraries(bsrsparse_headers INTERFACE m)
endif()
add_library(bsrsparse::headers ALIAS bsrsparse_headers)

# A library whose one source is the implementation, built only if something links with it.
function(bsrsparse_library name suffix language)
    set(source "${CMAKE_CURRENT_BINARY_DIR}/bsrsparse/${name}.${suffix}")
    if(NOT EXISTS "${source}")
        file(WRITE "${source}" "#define BSRSPARSE_IMPLEMENTATION\n#include \"bsrsparse.h\"\n")
    endif()
    add_library(bsrsparse_${name} STATIC EXCLUDE_FROM_ALL "${source}")
    target_link_libraries(bsrsparse_${name} PUBLIC bsrsparse_headers)
    set_target_properties(bsrsparse_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON LINKER_LANGUAGE ${language})
    if(NOT MSVC) # a project that names no build type would get it unoptimised, many times slower
        target_compile_options(bsrsparse_${name} PRIVATE "$<$<CONFIG:>:-O2>")
    endif()
    add_library(bsrsparse::${name} ALIAS bsrsparse_${name})
endfunction()

get_property(bsrsparse_languages GLOBAL PROPERTY ENABLED_LANGUAGES)
if("C" IN_LIST bsrsparse_languages)
    bsrsparse_library(cpu c C)
    target_compile_features(bsrsparse_cpu PRIVATE c_std_99)
elseif("CXX" IN_LIST bsrsparse_languages)
    bsrsparse_library(cpu cpp CXX)
    target_compile_features(bsrsparse_cpu PRIVATE cxx_std_11)
endif()
if(TARGET bsrsparse_cpu AND BSRSPARSE_OPENMP)
    find_package(OpenMP QUIET)
    get_target_property(bsrsparse_language bsrsparse_cpu LINKER_LANGUAGE)
    if(OpenMP_${bsrsparse_language}_FOUND) # not its target, which other folders of the project would not see
        separate_arguments(bsrsparse_flags UNIX_COMMAND "${OpenMP_${bsrsparse_language}_FLAGS}")
        target_compile_options(bsrsparse_cpu PRIVATE ${bsrsparse_flags})
        target_link_libraries(bsrsparse_cpu PUBLIC ${OpenMP_${bsrsparse_language}_LIBRARIES})
    endif()
endif()
if("CUDA" IN_LIST bsrsparse_languages)
    bsrsparse_library(cuda cu CUDA)
    target_compile_features(bsrsparse_cuda PRIVATE cuda_std_17)
endif()
