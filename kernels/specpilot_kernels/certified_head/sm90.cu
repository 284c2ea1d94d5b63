// The certified LM head on Hopper: greedy ids of 1 to 32 rows from an INT8 screen of the head, provably those of the full
// head, which is W12 (bounds.py has the proof). All on the device, in one order of launches, so a graph can hold it:
//
//   begin    lengths of the rows of x, rounded up; everything else to its start
//   screen   INT8 product; of every number its upper bound (BF16) is kept, and of every row the largest lower bound
//   select   which rows of the head may be the largest: their list; too many, or a number that is none, set a flag
//   rescore  exact numbers of the listed rows, by the full head's own sums; the largest as a key
//   full     the full head, where the flag is set; else its blocks end at once
//   finish   ids from keys
//
// The full head is record_gemm with W12 records and one part of K: a number of y is one chain of mma.sync, K ascending.
// rescore runs the same chain with 8 listed rows side by side, whose bits do not depend on their neighbours.
#include "../include/record_gemm.cuh"

namespace {
using record_gemm::Arguments;
constexpr int kMostRows = 32;

// Order of floats as order of unsigned numbers; NaN with a positive sign is the largest.
__device__ __forceinline__ uint32_t ordered(float v) {
  const uint32_t bits = __float_as_uint(v);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// Largest BF16 logit, of equals the lowest id; NaN above all.
__device__ __forceinline__ unsigned long long key_of(float sum, int n) {
  const float logit = __bfloat162float(__float2bfloat16_rn(sum));
  return uint64_t(ordered(isnan(logit) ? __uint_as_float(0x7FFFFFFFu) : logit == 0.0f ? 0.0f : logit)) << 32 | uint32_t(~n);
}

__device__ __forceinline__ float unordered(uint32_t v) { return __uint_as_float(v & 0x80000000u ? v & 0x7FFFFFFFu : ~v); }

struct State {
  unsigned long long keys[kMostRows];
  uint32_t lower[kMostRows];  // ordered, of BF16 numbers
  float lengths[kMostRows];
  int count, is_full;
};

// One block, a warp for each row of x; k is a multiple of 8.
__global__ void __launch_bounds__(32 * kMostRows) begin(State* state, const __nv_bfloat16* x, int k, float largest_norm, int m) {
  const int row = threadIdx.x >> 5, lane = threadIdx.x & 31;
  double sum = 0;
  if (row < m)
#pragma unroll 4
    for (int i = lane; i < k / 8; i += 32) {
      const uint4 v = reinterpret_cast<const uint4*>(x + int64_t(row) * k)[i];
      for (uint32_t word : {v.x, v.y, v.z, v.w}) {
        const double low = __uint_as_float(word << 16), high = __uint_as_float(word & 0xFFFF0000u);
        sum += low * low + high * high;
      }
    }
  for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
  const float length = __double2float_ru(sqrt(sum) * (1 + 0x1p-30));
  // No number of a sum exceeds the product of the norms: nothing overflows below this.
  const int is_full = __syncthreads_or(row < m && !(length * largest_norm < 0x1p126f));
  if (lane == 0) state->lengths[row] = length, state->keys[row] = 0, state->lower[row] = 0;
  if (threadIdx.x == 0) state->count = 0, state->is_full = is_full;
}

struct Screen {
  State* state;
  const float *scales, *bounds, *floors;
  __nv_bfloat16* upper;  // (M, padded columns)
  int pitch;
  __device__ __forceinline__ bool is_off() const { return false; }
  __device__ __forceinline__ void put(int, int, float, const Arguments&) const {}
  template <int N, int FRAGMENTS>
  __device__ __forceinline__ void put_all(int tile, int warp, int lane, const float (&sums)[FRAGMENTS][N / 8][4], const Arguments& args,
                                          unsigned char* shared) const {
    static_assert(FRAGMENTS == 1);
    __nv_bfloat16(*stage)[w12::kRecordRows + 8] = reinterpret_cast<__nv_bfloat16(*)[w12::kRecordRows + 8]>(shared);
    uint32_t* const best = reinterpret_cast<uint32_t*>(shared + sizeof(__nv_bfloat16) * N * (w12::kRecordRows + 8));
    asm volatile("bar.sync 1, %0;" ::"n"(record_gemm::kConsumers) : "memory");  // the ring has been read
    if (threadIdx.x < N) best[threadIdx.x] = 0;
    asm volatile("bar.sync 1, %0;" ::"n"(record_gemm::kConsumers) : "memory");
    const int inside[2] = {16 * warp + lane / 4, 16 * warp + lane / 4 + 8};
    float scale[2], bound[2], floor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int n = tile * w12::kRecordRows + inside[h];
      const bool is_row = n < args.n;
      scale[h] = is_row ? scales[n] : 0, bound[h] = is_row ? bounds[n] : 0, floor[h] = is_row ? floors[n] : 0;
    }
#pragma unroll
    for (int i = 0; i < N / 2; i += 1) {
      const int m = record_gemm::column_of(lane, i), h = i >> 1 & 1;
      if (m >= args.m) continue;
      const bool is_row = tile * w12::kRecordRows + inside[h] < args.n;
      const float d = sums[0][i / 4][i % 4], error = __fmaf_ru(bound[h], state->lengths[m], floor[h]);
      const float up = __fadd_ru(__fmul_ru(scale[h], d), error), low = __fsub_rd(__fmul_rd(scale[h], d), error);
      stage[m][inside[h]] = __float2bfloat16_rn(is_row ? up : -INFINITY);
      if (is_row) atomicMax(&best[m], ordered(isnan(low) ? __uint_as_float(0x7FFFFFFFu) : __bfloat162float(__float2bfloat16_rn(low))));
    }
    asm volatile("bar.sync 1, %0;" ::"n"(record_gemm::kConsumers) : "memory");
    if (int(threadIdx.x) < args.m && best[threadIdx.x] > state->lower[threadIdx.x]) atomicMax(&state->lower[threadIdx.x], best[threadIdx.x]);
    for (int i = threadIdx.x; i < args.m * (w12::kRecordRows / 8); i += record_gemm::kConsumers) {
      const int m = i / (w12::kRecordRows / 8), part = i % (w12::kRecordRows / 8);
      *reinterpret_cast<uint4*>(upper + int64_t(m) * pitch + tile * w12::kRecordRows + 8 * part) =
          *reinterpret_cast<const uint4*>(&stage[m][8 * part]);
    }
  }
};

__global__ void select(State* state, const __nv_bfloat16* upper, int pitch, int num_columns, int m, int* list, int capacity) {
  __shared__ float lower[kMostRows];
  if (int(threadIdx.x) < m) lower[threadIdx.x] = unordered(state->lower[threadIdx.x]);
  __syncthreads();
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  bool is_kept = false, is_bad = false;
  if (n < num_columns)
    for (int row = 0; row < m; ++row) {
      const float up = __bfloat162float(upper[int64_t(row) * pitch + n]);
      is_bad |= isnan(up);
      is_kept |= up >= lower[row];
    }
  // A lower bound that is infinite or none says nothing.
  if (blockIdx.x == 0 && int(threadIdx.x) < m) is_bad |= !(lower[threadIdx.x] < INFINITY);
  if (__any_sync(0xFFFFFFFFu, is_bad) && (threadIdx.x & 31) == 0) atomicOr(&state->is_full, 1);
  const uint32_t kept = __ballot_sync(0xFFFFFFFFu, is_kept);
  if (!kept) return;
  int first = 0;
  if ((threadIdx.x & 31) == 0) first = atomicAdd(&state->count, __popc(kept));
  first = __shfl_sync(0xFFFFFFFFu, first, 0) + __popc(kept & ((1u << (threadIdx.x & 31)) - 1));
  if (is_kept) {
    if (first < capacity) list[first] = n;
    else atomicOr(&state->is_full, 1);
  }
}

// A lane has 16 of its records on their way. x comes in chunks of 8 records' columns, two chunks ahead, so that it too is 16
// records ahead. The loop is not unrolled: few survivors wait for every instruction that is not in a cache.
constexpr int kAhead = 16, kRescoreWarps = 4, kChunkRecords = 8, kChunks = 3;
static_assert(kAhead == 2 * kChunkRecords);

// Put an escape into the lane and register it belongs to; a holds steps 2 HALF and 2 HALF + 1.
template <int HALF>
__device__ __forceinline__ void patch(uint32_t (&a)[2][4], uint32_t entry, int lane) {
  if (int(entry >> 21 & 31) != lane) return;
  const uint32_t place = entry >> 17 & 15;  // step, register
#pragma unroll
  for (int i = 0; i < 8; ++i)
    if (place == 8 * HALF + i) a[i / 4][i % 4] = w12::put_half(a[i / 4][i % 4], entry >> 16 & 1, entry & 0xFFFFu);
}

// Shared memory: what lanes read ahead, then the chunks of x. Rows of x are 16 bytes longer than their numbers, so that
// fragments have no bank conflicts.
struct alignas(16) Ahead {
  uint4 planes[3][32];
  uint2 slots[32];
};
template <int N>
struct Chunk {
  static constexpr int kPitch = kChunkRecords * w12::kRecordColumns + 8, kNumbers = N * kPitch;
  static constexpr int kBytes = int(sizeof(Ahead)) * kRescoreWarps * kAhead + kChunks * 2 * kNumbers;
};

template <int N>
__global__ void __launch_bounds__(32 * kRescoreWarps) rescore(const Arguments args, State* state, const __nv_bfloat16* x, int k, const int* list) {
  constexpr int kPitch = Chunk<N>::kPitch;
  extern __shared__ __align__(16) unsigned char shared[];
  if (state->is_full) return;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, count = state->count;
  if (int(blockIdx.x) * 8 * kRescoreWarps >= count) return;
  const int entry = (blockIdx.x * kRescoreWarps + warp) * 8 + lane / 4;
  const int n = list[min(entry, count - 1)];
  const int slice = n % w12::kRecordRows / 16, is_high = n >> 3 & 1;
  const int own_lane = 4 * (n & 7) + (lane & 3);
  const int row_tile = n / w12::kRecordRows;
  // All that the warp will read, on its way to the L2: three planes, of which four lanes read 64 bytes together.
  if ((lane & 3) < 3)
    for (int column = 0; column < args.k_tiles; ++column)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(args.records + args.order.record(row_tile, column) * (4 * w12::kRecordWords) + formats::W12::kWarpBytes * slice + formats::kWarpPlane * (lane & 3) + 16 * (own_lane & ~3)));
  formats::BasePairs rows;
  rows.load(args.bases + row_tile * w12::kRecordRows + 16 * slice + (n & 7));

  Ahead* const ring = reinterpret_cast<Ahead*>(shared) + warp * kAhead;
  __nv_bfloat16* const chunks = reinterpret_cast<__nv_bfloat16*>(shared + sizeof(Ahead) * kRescoreWarps * kAhead);
  const auto copy_record = [&](int column) {
    if (column >= args.k_tiles) return;
    Ahead& to = ring[column % kAhead];
    const int64_t record = args.order.record(row_tile, column);
    const unsigned char* const from = args.records + record * (4 * w12::kRecordWords) + formats::W12::kWarpBytes * slice + 16 * own_lane;
#pragma unroll
    for (int plane = 0; plane < 3; ++plane) ptx::copy16(ptx::shared_address(&to.planes[plane][lane]), from + formats::kWarpPlane * plane);
    ptx::copy8(ptx::shared_address(&to.slots[lane]), args.slots + record * record_gemm::kWarps + slice);
  };
  const auto copy_chunk = [&](int at) {
    if (at >= args.k_tiles) return;
    __nv_bfloat16* const chunk = chunks + at / kChunkRecords % kChunks * Chunk<N>::kNumbers;
#pragma unroll 4
    for (int i = threadIdx.x; i < N * kChunkRecords * 8; i += 32 * kRescoreWarps) {
      const int m = i / (kChunkRecords * 8), part = i % (kChunkRecords * 8), column = at * w12::kRecordColumns + 8 * part;
      __nv_bfloat16* const to = chunk + m * kPitch + 8 * part;
      if (m < args.m && column < k) ptx::copy16(ptx::shared_address(to), x + int64_t(m) * k + column);
      else *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
    }
  };
  // One group of copies a record; a chunk belongs to the group of the record two chunks before it.
  copy_chunk(0);
  copy_chunk(kChunkRecords);
  for (int column = 0; column < kAhead; ++column) {
    copy_record(column);
    ptx::commit_copies();
  }
  float sums[N / 8][4] = {};
#pragma unroll 1
  for (int column = 0; column < args.k_tiles; ++column) {
    ptx::await_copies<kAhead - 1>();
    const int r = column % kChunkRecords;
    if (r == 0) {
      __syncthreads();  // this chunk has arrived for all threads, and the one before it has been read
      copy_chunk(column + 2 * kChunkRecords);
    }
    const __nv_bfloat16* const chunk = chunks + column / kChunkRecords % kChunks * Chunk<N>::kNumbers;
    const Ahead& here = ring[column % kAhead];
    const uint4 plane_a = here.planes[0][lane], plane_e = here.planes[1][lane], plane_b = here.planes[2][lane];
    const uint2 slot = here.slots[lane];
    copy_record(column + kAhead);
    ptx::commit_copies();
    uint32_t a[2][2][4];
    w12::decode_fragment(plane_a.x, plane_e.x, plane_b.x, rows.low, rows.high, a[0][0]);
    w12::decode_fragment(plane_a.y, plane_e.y, plane_b.y, rows.low, rows.high, a[0][1]);
    w12::decode_fragment(plane_a.z, plane_e.z, plane_b.z, rows.low, rows.high, a[1][0]);
    w12::decode_fragment(plane_a.w, plane_e.w, plane_b.w, rows.low, rows.high, a[1][1]);
    // Lanes have records of their own, so each looks for its own escapes.
    if (slot.x != w12::kNoEscape)
      w12::each_escape<1>(slot.x, slot.y, args.escapes, 0, [&](uint32_t entry) {
        patch<0>(a[0], entry, own_lane);
        patch<1>(a[1], entry, own_lane);
      });
    __syncwarp();
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int tile = 0; tile < N / 8; ++tile) {
        uint32_t b[4];
        ptx::read_fragments(b, ptx::shared_address(chunk + (8 * tile + (lane & 7)) * kPitch + 64 * r + 32 * half + 8 * (lane >> 3)));
        ptx::warp_product(sums[tile], a[half][0], b[0], b[1]);
        ptx::warp_product(sums[tile], a[half][1], b[2], b[3]);
      }
  }
  if (entry >= count) return;
#pragma unroll
  for (int i = 0; i < N / 2; ++i) {
    const int m = record_gemm::column_of(lane, i);
    if ((i >> 1 & 1) == is_high && m < args.m) {
      const unsigned long long key = key_of(sums[i / 4][i % 4], n);
      if (key > state->keys[m]) atomicMax(&state->keys[m], key);
    }
  }
}

// The full head's largest numbers.
struct Argmax {
  State* state;
  bool is_asked;  // else only where the flag is set
  __device__ __forceinline__ bool is_off() const { return !is_asked && !state->is_full; }
  __device__ __forceinline__ void put(int, int, float, const Arguments&) const {}
  template <int N, int FRAGMENTS>
  __device__ __forceinline__ void put_all(int tile, int warp, int lane, const float (&sums)[FRAGMENTS][N / 8][4], const Arguments& args,
                                          unsigned char* shared) const {
    unsigned long long* const best = reinterpret_cast<unsigned long long*>(shared);
    asm volatile("bar.sync 1, %0;" ::"n"(record_gemm::kConsumers) : "memory");  // the ring has been read
    if (threadIdx.x < N) best[threadIdx.x] = 0;
    asm volatile("bar.sync 1, %0;" ::"n"(record_gemm::kConsumers) : "memory");
#pragma unroll
    for (int j = 0; j < N / 4; ++j) {  // columns of a lane
      unsigned long long key = 0;
#pragma unroll
      for (int f = 0; f < FRAGMENTS; ++f)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int i = 4 * (j / 2) + (j & 1) + 2 * h, n = record_gemm::row_of<FRAGMENTS>(tile, warp, lane, f, i);
          if (n < args.n) key = max(key, key_of(sums[f][i / 4][i % 4], n));
        }
#pragma unroll
      for (int step = 4; step < 32; step <<= 1) key = max(key, __shfl_xor_sync(0xFFFFFFFFu, key, step));
      if (lane < 4) atomicMax(&best[record_gemm::column_of(lane, 4 * (j / 2) + (j & 1))], key);
    }
    asm volatile("bar.sync 1, %0;" ::"n"(record_gemm::kConsumers) : "memory");
    if (int(threadIdx.x) < args.m && best[threadIdx.x] > state->keys[threadIdx.x]) atomicMax(&state->keys[threadIdx.x], best[threadIdx.x]);
  }
};

// counts: survivors, whether the full head ran.
__global__ void finish(State* state, int64_t* ids, int* counts, int m) {
  if (int(threadIdx.x) < m) ids[threadIdx.x] = int64_t(uint32_t(~uint32_t(state->keys[threadIdx.x])));
  if (threadIdx.x == 0) counts[0] = state->count, counts[1] = state->is_full;
}

template <int N>
cudaError_t run_full(const Arguments& args, State* state, bool is_asked, const void* x, int k, cudaStream_t s) {
  Argmax output;
  output.state = state, output.is_asked = is_asked;
  return record_gemm::launch<formats::W12, N, 1, 4, 3>(args, output, x, k, s);
}

template <int N>
cudaError_t run(const Arguments& exact, const Arguments& copy, const Screen& screen, const void* x, int k, int* list, int capacity,
                cudaStream_t s) {
  State* const state = screen.state;
  cudaError_t error = record_gemm::launch<formats::Int8, N, 1, 6, 3>(copy, screen, x, k, s);
  if (error != cudaSuccess) return error;
  select<<<(exact.n + 255) / 256, 256, 0, s>>>(state, screen.upper, screen.pitch, exact.n, exact.m, list, capacity);
  constexpr int kBytes = Chunk<N>::kBytes;
  error = cudaFuncSetAttribute(rescore<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  if (error != cudaSuccess) return error;
  rescore<N><<<(capacity + 8 * kRescoreWarps - 1) / (8 * kRescoreWarps), 32 * kRescoreWarps, kBytes, s>>>(
      exact, state, static_cast<const __nv_bfloat16*>(x), k, list);
  error = cudaGetLastError();
  return error == cudaSuccess ? run_full<N>(exact, state, false, x, k, s) : error;
}
}  // namespace

extern "C" int specpilot_head_state_bytes() { return int(sizeof(State)); }

// copy: INT8 records, or null for the full head alone. state: specpilot_head_state_bytes of memory, any content. upper:
// m rows of pitch BF16 numbers, pitch a multiple of 128 and at least n. list: capacity numbers. ids: m. counts: 2.
// Returns a cudaError_t.
extern "C" int specpilot_head_sm90(const void* records, const void* bases, const void* slots, const void* escapes,
                                   const void* copy, const void* scales, const void* bounds, const void* floors, float largest_norm,
                                   const void* x, void* state_memory, void* upper, int pitch, void* list, int capacity, void* ids,
                                   void* counts, int n, int k, int m, void* stream) {
  auto* s = static_cast<cudaStream_t>(stream);
  auto* state = static_cast<State*>(state_memory);
  if (m < 1 || m > kMostRows || n < 1 || k < 8 || k % 8 || (copy && (capacity < 1 || pitch % 128 || pitch < n))) return cudaErrorInvalidValue;
  const Arguments exact = record_gemm::w12_arguments(records, bases, slots, escapes, n, k, m, 1);
  begin<<<1, 32 * kMostRows, 0, s>>>(state, static_cast<const __nv_bfloat16*>(x), k, largest_norm, m);
  cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  if (copy) {
    const Arguments screened = record_gemm::arguments(copy, n, k, m, 1);
    Screen screen;
    screen.state = state, screen.upper = static_cast<__nv_bfloat16*>(upper), screen.pitch = pitch;
    screen.scales = static_cast<const float*>(scales), screen.bounds = static_cast<const float*>(bounds);
    screen.floors = static_cast<const float*>(floors);
    auto* l = static_cast<int*>(list);
    error = m <= 8 ? run<8>(exact, screened, screen, x, k, l, capacity, s)
          : m <= 16 ? run<16>(exact, screened, screen, x, k, l, capacity, s) : run<32>(exact, screened, screen, x, k, l, capacity, s);
  } else {
    error = m <= 8 ? run_full<8>(exact, state, true, x, k, s)
          : m <= 16 ? run_full<16>(exact, state, true, x, k, s) : run_full<32>(exact, state, true, x, k, s);
  }
  if (error != cudaSuccess) return error;
  finish<<<1, kMostRows, 0, s>>>(state, static_cast<int64_t*>(ids), static_cast<int*>(counts), m);
  return cudaGetLastError();
}
