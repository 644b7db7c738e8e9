/* `isthmus predict --device all`: the images of a run shared out among several devices. Over a double of the engine
 * with devices that get lost (tests/fake_engine.c); tests/cli_real.c has two devices of PoCL. What is written must be
 * what one device writes, byte for byte, times apart. */
#include "gray_png.h"
#include "program.h"
#include "support/results.h"

#define PROGRAM IST_BUILD_DIR "/tests/isthmus_fake"

enum { IMAGES = 60 };

static scratch make_bench(void) {
    scratch s = scratch_make();
    mkdir(scratch_path(&s, "in"), 0777);
    scratch_put(scratch_path(&s, "dfine_n_demo.safetensors"), "");
    scratch_put(scratch_path(&s, "mobile_sam_demo.safetensors"), "");
    setenv("ISTHMUS_WEIGHTS_DIR", s.path, 1);
    setenv("FAKE_DEVICES", "3", 1);
    for (int i = 0; i < IMAGES; i++) write_png(scratch_path(&s, "in/%02d.png", i), 50 + i, 60);
    return s;
}

#define PREDICT(s, out, ...)                                                                                           \
    spawn_run((s), NULL,                                                                                               \
              (const char *const[]){PROGRAM, "predict", scratch_path((s), "in"), "-o", scratch_path((s), out),         \
                                    __VA_ARGS__, NULL})

static void expect(spawned r, int code, const char *err_part) {
    cr_expect_eq(r.code, code, "exit code %d, want %d; stderr: %s", r.code, code, r.err);
    cr_expect_not_null(strstr(r.err, err_part), "stderr lacks '%s': %s", err_part, r.err);
    spawn_free(&r);
}

Test(cli_shard, several_devices_write_what_one_writes) {
    scratch s = make_bench();
    setenv("FAKE_ENGINE", "slow:3", 1);
    expect(PREDICT(&s, "one", "--device", "0", "--batch", "2"), 0, "60 images, 0 failed");
    expect(PREDICT(&s, "all", "--device", "all", "--batch", "2"), 0, "60 images, 0 failed");
    same_results(&s, "one", "all");
    scratch_put(scratch_path(&s, "in/20.png"), "no image");
    expect(PREDICT(&s, "one", "--device", "0", "--save", "json,ndjson"), 7, "59 images, 1 failed");
    expect(PREDICT(&s, "all", "--device", "all:0", "--save", "json,ndjson"), 7, "59 images, 1 failed");
    same_results(&s, "one", "all");
    scratch_remove(&s);
}

/* However many threads work on files, from two to more than there are images, beside a CPU and beside other devices,
 * with one image that does not decode. */
Test(cli_shard, any_number_of_workers_writes_the_same) {
    scratch s = make_bench();
    scratch_put(scratch_path(&s, "in/07.png"), "no image");
    expect(PREDICT(&s, "cpu", "--device", "0"), 7, "59 images, 1 failed");
    const char *const cores[] = {"1", "3", "7", "32", "500"};
    for (int i = 0; i < 5; i++) {
        setenv("FAKE_CORES", cores[i], 1);
        for (int batch = 1; batch <= 8; batch += 7) {
            const char *size = batch > 1 ? "8" : "1";
            setenv("FAKE_ENGINE", i % 2 ? "slow:1" : "slow:0", 1);
            expect(PREDICT(&s, "one", "--device", "0", "--batch", size), 7, "59 images, 1 failed");
            same_results(&s, "cpu", "one");
            expect(PREDICT(&s, "all", "--device", "all", "--batch", size), 7, "59 images, 1 failed");
            same_results(&s, "cpu", "all");
            setenv("FAKE_ENGINE", "lost_on:1", 1);
            expect(PREDICT(&s, "lost", "--device", "all", "--batch", size), 7, "59 images, 1 failed");
            same_results(&s, "cpu", "lost");
        }
    }
    scratch_remove(&s);
}

/* Devices 1 and 2 give one result each; what they had taken comes from device 0. */
Test(cli_shard, a_lost_device_loses_no_image) {
    scratch s = make_bench();
    setenv("FAKE_ENGINE", "slow:3", 1);
    expect(PREDICT(&s, "one", "--device", "0", "--batch", "2"), 0, "60 images, 0 failed");
    setenv("FAKE_ENGINE", "lost_on:1", 1);
    expect(PREDICT(&s, "all", "--device", "all", "--batch", "2"), 0, "60 images, 0 failed");
    same_results(&s, "one", "all");
    spawned r = PREDICT(&s, "all", "--device", "all", "--batch", "2", "--save", "masks");
    cr_expect_eq(r.code, 0, "%s", r.err);
    bool said =
        strstr(r.err, "(device 1): the device is lost; its ") || strstr(r.err, "(device 2): the device is lost; its ");
    cr_expect(said, "%s", r.err);
    spawn_free(&r);
    scratch_remove(&s);
}

Test(cli_shard, the_run_fails_when_the_last_device_is_lost) {
    scratch s = make_bench();
    setenv("FAKE_ENGINE", "lost_on:0", 1);
    expect(PREDICT(&s, "all", "--device", "all"), 1, "the device is lost; its ");
    expect(PREDICT(&s, "all", "--device", "all"), 1, "--resume continues\nisthmus: the device is lost\n");
    unsetenv("FAKE_ENGINE");
    expect(PREDICT(&s, "all", "--device", "all", "--resume"), 0, "0 failed, ");
    expect(PREDICT(&s, "one", "--device", "0"), 0, "60 images, 0 failed");
    same_results(&s, "one", "all");
    scratch_remove(&s);
}

Test(cli_shard, devices_that_do_not_open_are_left_out) {
    scratch s = make_bench();
    setenv("FAKE_ENGINE", "closed:2", 1);
    expect(PREDICT(&s, "all", "--device", "all"), 0, "device 2 is left out: the device does not open");
    setenv("FAKE_ENGINE", "closed:0", 1);
    expect(PREDICT(&s, "all", "--device", "all"), 1, "the device does not open");
    unsetenv("FAKE_ENGINE");
    expect(PREDICT(&s, "all", "--device", "all:another"), 3, "no device matches \"another\"");
    expect(PREDICT(&s, "all", "--device", "all", "--track"), 2, "--track needs one device");
    scratch_remove(&s);
}
