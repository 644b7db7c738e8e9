// Planted faults of the C++ bindings; see opencl.c for how to read the marks.
#include <CL/opencl.hpp>
#include <future>
#include <vector>

static const char *kernel = R"cl(
    // queue.finish(); event.wait();
    kernel void f(global float *x) { x[0] = 1; } )" not the end
)cl";

namespace vision {

class Detector {
  public:
    Detector(const cl::Context &context) : queue(context), program(context, kernel), limit{4} {
        program.build();
        weights = cl::Buffer(context, CL_MEM_READ_ONLY | CL_MEM_COPY_HOST_PTR, 4096, table.data()); // expect: upload necessary
    }

    std::vector<float> detect(const std::vector<float> &image) {
        std::vector<float> boxes(1'000);
        cl::Buffer scratch(context, CL_MEM_READ_WRITE, 4096);                                   // expect: creation_in_frame medium
        queue.enqueueWriteBuffer(in, CL_TRUE, 0, 4096, image.data());                            // expect: blocking_transfer medium
        queue.enqueueNDRangeKernel(first, cl::NullRange, cl::NDRange(64));
        queue.finish();                                                                         // expect: wait_mid_frame medium
        queue.enqueueReadBuffer(out, CL_TRUE, 0, 4096, boxes.data());                            // expect: host_round_trip critical
        std::sort(boxes.begin(), boxes.end());
        queue.enqueueWriteBuffer(in, CL_FALSE, 0, 4096, boxes.data());
        queue.enqueueNDRangeKernel(second, cl::NullRange, cl::NDRange(64));
        for (auto &row : rows) {
            queue.enqueueReadBuffer(out, CL_TRUE, row.offset, row.size, row.data());            // expect: transfer_in_loop critical
        }
        cl::copy(queue, out, boxes.begin(), boxes.end());                                        // expect: download necessary
        return boxes;
    }

    void track(cl::Event &done) {
        while (done.getInfo<CL_EVENT_COMMAND_EXECUTION_STATUS>() != CL_COMPLETE) {} // expect: poll_loop critical
        for (int i = 0; i < 4; ++i) done.wait();                                     // expect: wait_in_loop critical
        program.build("-DTRACK");                                                    // expect: build_in_frame critical
        std::future<int> later;
        later.wait();
        condition.wait(lock, [&] { return ready.finish(); });
    }

  private:
    cl::CommandQueue queue;
    cl::Program program;
};

} // namespace vision

template <class T> T half(T x) noexcept(noexcept(x / 2)) {
    return x / 2;
}

void infer_map(cl::CommandQueue &commands, cl::Buffer &out) {
    auto p = commands.enqueueMapBuffer(out, CL_TRUE, CL_MAP_READ, 0, 4096); // expect: download necessary
    commands.enqueueUnmapMemObject(out, p);                                 // expect: upload necessary
}
