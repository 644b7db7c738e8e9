/* 32-bit global atomics from 256 work-items: out[0] sum, out[1] min, out[2] max, out[3] or. */
__kernel void probe(volatile __global uint *out, __global const uint *in) {
    uint v = in[get_global_id(0)];
    atomic_add(out, v);
    atomic_min(out + 1, v);
    atomic_max(out + 2, v);
    atomic_or(out + 3, v & 0x0f0f0f0fu);
}
