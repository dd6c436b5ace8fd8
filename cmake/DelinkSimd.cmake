# The instruction sets that CPU kernels are built for: DELINK_SIMD_BUILT, of
# baseline, avx2, avx512, avx512bf16, amx.
#
#   DELINK_SIMD_TARGETS
#       ON: all. OFF: baseline, which every processor of the architecture has.
#       NATIVE: baseline and what the program would choose on this machine

set(DELINK_SIMD_TARGETS ON CACHE STRING
  "CPU kernels for AVX2, AVX-512 and AMX too: ON, OFF, or NATIVE, which has those for this machine's processor alone")

# Sets `result` to what the program would choose on this machine.
function(delink_native_simd result)
  file(READ /proc/cpuinfo processor)
  set(native)
  if(processor MATCHES " avx512_bf16")
    set(native avx512bf16)
    if(processor MATCHES " amx_bf16")
      list(APPEND native amx)
    endif()
  elseif(processor MATCHES " avx512bw.* avx512vl")
    set(native avx512)
  elseif(processor MATCHES " avx2")
    set(native avx2)
  endif()
  message(STATUS "kernels for this processor alone: ${native}")
  set(${result} ${native} PARENT_SCOPE)
endfunction()

set(DELINK_SIMD_BUILT)
if(DELINK_SIMD_TARGETS AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(DELINK_SIMD_BUILT avx2 avx512 avx512bf16 amx)
  if(DELINK_SIMD_TARGETS STREQUAL "NATIVE")
    delink_native_simd(DELINK_SIMD_BUILT)
  endif()
endif()
list(PREPEND DELINK_SIMD_BUILT baseline)
