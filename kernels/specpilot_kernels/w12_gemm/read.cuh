// The bare read of the records: what no product can be faster than.
#pragma once
#include "ring.cuh"

namespace w12 {

// By plain loads, as the product of few rows reads, nothing decoded.
template <int PREFETCH>
__global__ void __launch_bounds__(256) w12_read(const uint4* records, int64_t num_records, uint32_t* sink) {
  const int64_t step = gridDim.x;
  uint32_t seen = 0;
  for (int64_t record = blockIdx.x; record < num_records; record += step * PREFETCH) {
    uint4 v[PREFETCH][3];
#pragma unroll
    for (int i = 0; i < PREFETCH; ++i)
#pragma unroll
      for (int plane = 0; plane < 3; ++plane)
        if (record + i * step < num_records)
          v[i][plane] = load_weights(records + (record + i * step) * (kRecordWords / 4) + plane * (kPlaneWords / 4) + threadIdx.x);
#pragma unroll
    for (int i = 0; i < PREFETCH; ++i)
#pragma unroll
      for (int plane = 0; plane < 3; ++plane)
        if (record + i * step < num_records) seen ^= v[i][plane].x ^ v[i][plane].y ^ v[i][plane].z ^ v[i][plane].w;
  }
  if (seen == 0x12345678u) sink[0] = seen;
}

// By the ring's bulk copies; every block a stretch of records.
template <int STAGES>
__global__ void __launch_bounds__(288) w12_read_ring(const uint4* records, int64_t num_records, uint32_t* sink) {
  extern __shared__ __align__(1024) unsigned char shared[];
  __shared__ uint64_t barriers[2 * STAGES];
  const uint32_t ring = shared_address(shared), full = shared_address(barriers), empty = full + 8 * STAGES;
  const int64_t begin = num_records * blockIdx.x / gridDim.x;
  const int count = int(num_records * (blockIdx.x + 1) / gridDim.x - begin), lane = threadIdx.x & 31;
  start_barriers<STAGES>(full, 32 * kRecordWarps, 288, threadIdx.x >= 256);
  uint32_t seen = 0;
  for (int i = 0, stage = 0, parity = 0; i < count; ++i) {
    const uint32_t at = ring + stage * kRecordBytes;
    if (threadIdx.x >= 256) {
      if (lane) return;
      ptx::barrier_wait(empty + 8 * stage, parity ^ 1);
      ptx::barrier_expect(full + 8 * stage, kRecordBytes);
      ptx::bulk_copy(at, records + (begin + i) * (kRecordWords / 4), kRecordBytes, full + 8 * stage);
    } else {
      ptx::barrier_wait(full + 8 * stage, parity);
#pragma unroll
      for (int plane = 0; plane < 3; ++plane) {
        const uint4 v = ptx::read16(at + plane * 4 * kPlaneWords + 16 * threadIdx.x);
        seen ^= v.x ^ v.y ^ v.z ^ v.w;
      }
      ptx::barrier_arrive_for_copy(empty + 8 * stage);
    }
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  if (seen == 0x12345678u) sink[0] = seen;
}

}  // namespace w12
