// What the kernels of products on Hopper share, for every form of records: operands, copies, products, and escapes in
// registers.
#pragma once
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "../include/ptx.cuh"
#include "../include/record_formats.cuh"
#include "../include/record_order.cuh"
#include "../include/record_slots.cuh"

namespace w12 {

constexpr int kRecordBytes = 4 * kRecordWords;
constexpr int kRowBytes = 2 * kRecordColumns;  // of x, in one record's columns
constexpr int kSharedBytes = 228 * 1024;       // of a multiprocessor; 1,024 of them go with every block
constexpr uint32_t kAll = 0xFFFFFFFFu;

struct Arguments {
  const uint4* records;
  const uint8_t* bases;     // of W12 and its view, as the two below
  const uint2* slots;       // record_slots.cuh
  const uint32_t* escapes;  // all of them
  const __nv_bfloat16* x;
  const __nv_bfloat16* bias;  // of every column of y, or null
  __nv_bfloat16* y;
  float4* partials;
  uint64_t* flags;
  uint64_t mark;
  int n, k, m, k_tiles, row_tiles;
  RecordOrder order;
  int each, longer;  // of a stream: records of a block, and how many first blocks have one more
  const float* scales;  // of integers; n of them

  __device__ __forceinline__ int start(int block) const { return each * block + min(block, longer); }
};

// Behind a volatile move: otherwise it is computed again at every use, from a special register that takes long to read.
__device__ __forceinline__ uint32_t shared_address(const void* p) {
  uint32_t address;
  asm volatile("mov.u32 %0, %1;" : "=r"(address) : "r"(ptx::shared_address(p)));
  return address;
}
// Known to be the same in all lanes.
__device__ __forceinline__ int warp_index() { return __shfl_sync(kAll, int(threadIdx.x) >> 5, 0); }

// Weights are read once: they need no place in L1.
__device__ __forceinline__ uint4 load_weights(const uint4* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ __forceinline__ uint2 load_weights(const uint2* p) {
  uint2 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}

// Where a lane's words are (record_formats.cuh).
struct GlobalWords {
  const uint4* at;
  __device__ __forceinline__ uint4 read16(int bytes) const { return load_weights(at + bytes / 16); }
  __device__ __forceinline__ uint2 read8(int bytes) const { return load_weights(reinterpret_cast<const uint2*>(at) + bytes / 8); }
};

// What a thread knows of rows n and n + 8 of W.
__device__ __forceinline__ void load_row(formats::BasePairs& row, const Arguments& args, int n) { row.load(args.bases + n); }
__device__ __forceinline__ void load_row(formats::Scales& row, const Arguments& args, int n) { row.load(args.scales, n, args.n); }
// The same of another lane; all lanes ask. Nothing of it is needed for results of W12.
__device__ __forceinline__ formats::BasePairs of(const formats::BasePairs& row, int) { return row; }
__device__ __forceinline__ formats::Scales of(const formats::Scales& row, int lane) {
  return {__shfl_sync(kAll, row.low, lane), __shfl_sync(kAll, row.high, lane)};
}

// B of steps 2 half and 2 half + 1 from 8 rows of x, 128 bytes a row, 16-byte pieces exchanged as the 128-byte swizzle of
// tensor maps does it.
__device__ __forceinline__ void read_x(uint32_t (&b)[4], uint32_t rows, int lane, int half) {
  ptx::read_fragments(b, rows + 128 * (lane & 7) + (((4 * half + (lane >> 3)) ^ (lane & 7)) << 4));
}

// All four steps of a record: rows g and g + 8 of 16, 64 columns.
template <class Format>
__device__ __forceinline__ void decode_record(uint32_t (&a)[4][4], const typename Format::Words& words, const typename Format::Row& row) {
#pragma unroll
  for (int s = 0; s < 4; ++s) Format::fragment(words, s, row, a[s]);
}

__device__ __forceinline__ uint2 load_slot(const uint2* from) {
  uint2 v;
  asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
  return v;
}

// The escapes of 32 records of a warp, one a lane.
struct Slots {
  uint2 words;
  uint32_t has;

  __device__ __forceinline__ void look(uint2 found, const Arguments& args) {
    words = found;
    has = __ballot_sync(kAll, words.x != kNoEscape);
    // A list would otherwise come from the memory when its record's turn has come.
    if (list_length(words.x)) asm volatile("prefetch.global.L2 [%0];" ::"l"(args.escapes + words.y));
  }
  __device__ __forceinline__ bool any(int i) const { return has & 1u << (i & 31); }
  __device__ __forceinline__ uint2 of(int i) const {
    return make_uint2(__shfl_sync(kAll, words.x, i & 31), __shfl_sync(kAll, words.y, i & 31));
  }
};

constexpr int kPatchBytes = 2048;  // a warp's room for patch()

__device__ __forceinline__ void put_escape(uint32_t entry, uint32_t room) {
  const uint32_t to = room + 512 * (entry >> 19 & 3) + 16 * (entry >> 21 & 31) + 2 * (entry >> 16 & 7);
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(uint16_t(entry)) : "memory");
}

// Not inlined: a load where it is called would make every patch wait for the weights that are on their way (there are six
// scoreboards).
static __device__ __noinline__ void put_list(uint2 word, const uint32_t* escapes, uint32_t room) {
  each_escape<32>(word.x, word.y, escapes, threadIdx.x & 31, [&](uint32_t entry) { put_escape(entry, room); });
}

// The escapes of a warp's 16 rows of a record over the registers decoded: by way of shared memory, since registers have
// no indices. There is one at least.
__device__ __forceinline__ void patch(uint32_t (&a)[4][4], uint2 word, const Arguments& args, int lane, uint32_t room) {
#pragma unroll
  for (int s = 0; s < 4; ++s) ptx::write16(room + 512 * s + 16 * lane, make_uint4(a[s][0], a[s][1], a[s][2], a[s][3]));
  __syncwarp();
  if (list_length(word.x)) {
    put_list(word, args.escapes, room);
  } else {
    const uint32_t entry = lane ? word.y : word.x;
    if (lane < 2 && entry != kNoEscape) put_escape(entry, room);
  }
  __syncwarp();
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    const uint4 v = ptx::read16(room + 512 * s + 16 * lane);
    a[s][0] = v.x, a[s][1] = v.y, a[s][2] = v.z, a[s][3] = v.w;
  }
  __syncwarp();
}

// What is added to a column of y.
__device__ __forceinline__ float bias_of(const Arguments& args, int n) {
  return args.bias && n < args.n ? __bfloat162float(args.bias[n]) : 0.0f;
}

// One number of y.
__device__ __forceinline__ void put(const Arguments& args, int n, int m, float sum) {
  if (n < args.n && m < args.m) args.y[int64_t(m) * args.n + n] = __float2bfloat16_rn(sum);
}

// Four sums to another block of the cluster; its barrier counts their 16 bytes when they are there.
__device__ __forceinline__ void send(uint32_t to, uint32_t barrier, int rank, const float (&v)[4]) {
  asm volatile(
      "{\n.reg .b32 there, signal;\n"
      "mapa.shared::cluster.u32 there, %0, %2;\nmapa.shared::cluster.u32 signal, %1, %2;\n"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [there], {%3,%4,%5,%6}, [signal];\n}" ::"r"(to), "r"(barrier),
      "r"(rank), "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]) : "memory");
}
// Begins to wait until all blocks of the cluster have made their barriers (and ends it). Relaxed: who makes a barrier has a fence
// for it, and a releasing arrival would wait for all loads on their way.
__device__ __forceinline__ void cluster_begins() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_has_begun() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

}  // namespace w12
