// What the kernels of the W12 product on Hopper share: operands, copies, products, and escapes in registers.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "../include/ptx.cuh"
#include "../include/w12_decode.cuh"

namespace w12 {

constexpr int kWarpsOfRecord = 8;  // of 16 rows each
constexpr int kRecordBytes = 4 * kRecordWords, kPlaneBytes = 4 * kPlaneWords;
constexpr int kRowBytes = 2 * kRecordColumns;  // of x, in one record's columns
constexpr uint32_t kNone = 0xFFFFFFFFu, kSeveral = 0xFFFFFFFEu, kAll = 0xFFFFFFFFu;

struct Arguments {
  const uint4* records;
  const uint8_t* bases;
  const uint32_t* slots;    // for each warp of each record its escape, kNone, or kSeveral
  const uint32_t* escapes;  // all of them, read where a warp has several
  const uint32_t* starts;
  const __nv_bfloat16* x;
  __nv_bfloat16* y;
  float* partials;
  int* flags;
  int n, k, m, k_tiles, row_tiles;
};

// Behind a volatile move: otherwise it is computed again at every use, from a special register that takes long to read.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  uint32_t address;
  asm volatile("mov.u32 %0, %1;" : "=r"(address) : "r"(ptx::shared_address(p)));
  return address;
}
// Units of work in equal stretches for the blocks of the grid; what is left over makes the first ones longer.
struct Shares {
  int each, longer;
  __device__ __forceinline__ explicit Shares(int units) : each(units / int(gridDim.x)), longer(units - each * int(gridDim.x)) {}
  __device__ __forceinline__ int start(int block) const { return each * block + min(block, longer); }
};

// Known to be the same in all lanes.
__device__ __forceinline__ int warp_index() { return __shfl_sync(kAll, int(threadIdx.x) >> 5, 0); }

__device__ __forceinline__ void write16(uint32_t to, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("st.shared.v4.u32 [%0], {%1,%2,%3,%4};" ::"r"(to), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}

// Weights are read once: they need no place in L1.
__device__ __forceinline__ uint4 load_weights(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// B of steps 2 half and 2 half + 1 from 8 rows of x, 128 bytes a row, 16-byte pieces exchanged as the 128-byte swizzle of
// tensor maps does it.
__device__ __forceinline__ void read_x(uint32_t (&b)[4], uint32_t rows, int lane, int half) {
  ptx::read_fragments(b, rows + 128 * (lane & 7) + (((4 * half + (lane >> 3)) ^ (lane & 7)) << 4));
}

__device__ __forceinline__ uint32_t word_of(const uint4& v, int s) { return s == 0 ? v.x : s == 1 ? v.y : s == 2 ? v.z : v.w; }

// All four steps of a record: rows g and g + 8 of 16, 64 columns.
__device__ __forceinline__ void decode_record(uint32_t (&a)[4][4], const uint4 (&planes)[3], uint32_t low, uint32_t high) {
#pragma unroll
  for (int s = 0; s < 4; ++s)
    decode_fragment(word_of(planes[0], s), word_of(planes[1], s), word_of(planes[2], s), low, high, a[s]);
}

// Brings a record's list of escapes near, if its warp will look there: both reads would otherwise wait for the memory.
class Nearer {
 public:
  __device__ __forceinline__ void look(const Arguments& args, uint32_t word, int64_t record) {
    first_ = word == kSeveral ? __ldg(args.starts + record) : kNone;
    if (word == kSeveral) asm volatile("prefetch.global.L2 [%0];" ::"l"(args.starts + record + 1));
  }
  __device__ __forceinline__ void bring(const Arguments& args) const {
    if (first_ != kNone) asm volatile("prefetch.global.L2 [%0];" ::"l"(args.escapes + first_));
  }

 private:
  uint32_t first_;
};

// Escapes of one warp's 16 rows: the slot words of 32 of its records at a time, one a lane, the next 32 on their way.
class Slots {
 public:
  // record: the first; those after it follow.
  __device__ __forceinline__ Slots(const Arguments& args, int64_t record, int warp, int count, int lane)
      : args_(args), from_(args.slots + (record + lane) * kWarpsOfRecord + warp), record_(record + lane), left_(count - lane) {
    after_ = next();
  }
  // Before record i, i counting up from 0.
  __device__ __forceinline__ void advance(int i) {
    if ((i & 29) == 0) {
      if ((i & 31) == 0) {
        now_ = after_;
        after_ = next();
        has_ = __ballot_sync(kAll, now_ != kNone);
        nearer_.look(args_, now_, record_ + i);
      } else {
        nearer_.bring(args_);
      }
    }
  }
  __device__ __forceinline__ bool has_escapes(int i) const { return has_ & 1u << (i & 31); }
  __device__ __forceinline__ uint32_t word(int i) const { return __shfl_sync(kAll, now_, i & 31); }

 private:
  __device__ __forceinline__ uint32_t next() {
    const uint32_t word = left_ > 0 ? __ldg(from_) : kNone;
    left_ -= 32;
    from_ += 32 * kWarpsOfRecord;
    return word;
  }
  const Arguments& args_;
  const uint32_t* from_;
  int64_t record_;
  int left_;
  uint32_t now_, after_, has_;
  Nearer nearer_;
};

constexpr int kPatchBytes = 2048;  // a warp's room for patch()

__device__ __forceinline__ void put_escape(uint32_t entry, uint32_t room) {
  const uint32_t to = room + 512 * (entry >> 19 & 3) + 16 * (entry >> 21 & 31) + 2 * (entry >> 16 & 7);
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(uint16_t(entry)) : "memory");
}

// A long list of a record's escapes, first to last, to a warp's weights in shared memory, 32 at a time, so that a pruned
// block costs what its list is long. They stand in the order of their places, so a warp's are neighbours.
static __device__ __noinline__ void put_many(const uint32_t* escapes, uint32_t first, uint32_t last, int warp, uint32_t room) {
  const int lane = threadIdx.x & 31;
  while (last - first > 64) {  // to the last of 32 probes that lies before the warp's
    const uint32_t width = (last - first) / 32, before = __ballot_sync(kAll, int(escapes[first + lane * width] >> 26) < warp);
    if (before <= 1) break;
    first += (31 - __clz(before)) * width;
  }
  for (bool is_past = false; first < last && !is_past; first += 32) {
    const bool is_entry = first + lane < last;
    const uint32_t entry = is_entry ? escapes[first + lane] : kNone;
    const int owner = int(entry >> 26);
    if (is_entry && owner == warp) put_escape(entry, room);
    is_past = __any_sync(kAll, is_entry && owner > warp);
  }
}

// The escapes of a warp's 16 rows of a record over the registers decoded: by way of shared memory, since registers have
// no indices. word is not kNone.
__device__ __forceinline__ void patch(uint32_t (&a)[4][4], uint32_t word, const Arguments& args, int64_t record, int warp, int lane, uint32_t room) {
#pragma unroll
  for (int s = 0; s < 4; ++s) write16(room + 512 * s + 16 * lane, a[s][0], a[s][1], a[s][2], a[s][3]);
  __syncwarp();
  if (word == kSeveral) {
    const uint32_t first = __ldg(args.starts + record), last = __ldg(args.starts + record + 1);
    if (last - first > 32) {
      put_many(args.escapes, first, last, warp, room);
    } else if (lane < last - first) {
      word = __ldg(args.escapes + first + lane);
      if (int(word >> 26) == warp) put_escape(word, room);
    }
  } else if (lane == 0) {
    put_escape(word, room);
  }
  __syncwarp();
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const uint4 v = ptx::read16(room + 512 * s + 16 * lane);
    a[s][0] = v.x, a[s][1] = v.y, a[s][2] = v.z, a[s][3] = v.w;
  }
  __syncwarp();
}

}  // namespace w12
