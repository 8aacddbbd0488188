// The vector targets that the CPU kernels are compiled for. Include this before any header of Highway: it decides which
// targets exist (AVX2, AVX-512 with F/BW/DQ/VL/CD, NEON on 64-bit ARM, and one scalar baseline), so that every file
// builds the same list.
//
// A file with vector code reads:
//   #include "kernels/cpu/simd.h"
//   #undef HWY_TARGET_INCLUDE
//   #define HWY_TARGET_INCLUDE "kernels/cpu/<family>/<file>.cpp"
//   #include <hwy/foreach_target.h>
//   #include <hwy/highway.h>
//   HWY_BEFORE_NAMESPACE();
//   namespace ridgeline::cpu { namespace { namespace HWY_NAMESPACE { ... } } }
//   HWY_AFTER_NAMESPACE();
//   #if HWY_ONCE  (HWY_EXPORT, HWY_DYNAMIC_DISPATCH)  #endif
// Per-target code takes plain pointers and sits in an unnamed namespace: an inline function of a library, compiled once
// with AVX-512 and kept by the linker for all, would crash older machines.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

#include <string>
#include <string_view>

namespace ridgeline::cpu {

enum class Isa { kScalar, kAvx2, kAvx512, kNeon };

/// What the kernels use from now on: the best that this machine has, or the lower level set by `limit_isa`.
Isa active_isa();
const char* name(Isa isa);

/// Restricts every dispatch of this process. `level` is scalar, avx2, avx512, vnni (with dot
/// products, without AMX), neon or native; a level that the machine lacks
/// gives the best below it. Throws Error{kUsage} on another word. Not to be called while kernels run, nor between
/// packing and use.
void limit_isa(const std::string& level);

/// Does the machine have it, and does the limit allow it? "avx512_vnni", "amx_int8", as Cpu::isa names them.
bool has_feature(std::string_view feature);

/// Honours the environment's RIDGELINE_ISA; called once by the program before anything is planned.
void limit_isa_from_environment();

}  // namespace ridgeline::cpu
