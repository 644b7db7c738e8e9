/* OpenIGTLink messages in any pieces, and what is refused; the messages are made by the library's own functions. What
 * whole programs say to each other is cli_live.c. */
#include "support/igtl_peer.h"

#include "live/igtl.h"

/* Feeds `count` bytes, `step` at a time where there is room; the last event that was not MORE. */
static ist_igtl_event feed(ist_igtl_reader *r, const unsigned char *bytes, size_t count, size_t step, int *events,
                           ist_error *err) {
    ist_igtl_event last = IST_IGTL_MORE;
    for (size_t at = 0; at < count;) {
        size_t room;
        void *to = ist_igtl_room(r, &room);
        cr_assert(to && room);
        size_t n = count - at < step ? count - at : step;
        if (n > room) n = room;
        memcpy(to, bytes + at, n);
        at += n;
        ist_igtl_event event = ist_igtl_filled(r, n, err);
        if (event == IST_IGTL_MORE) continue;
        last = event;
        ++*events;
        if (event == IST_IGTL_BROKEN) break;
    }
    return last;
}

Test(live_igtl, messages_come_in_any_pieces) {
    peer_message image = peer_gray(300, 301, 5, 9), text = peer_wrap(1, "STRING", "x", 1, "\0\3\0\1a", 5),
                 empty = peer_wrap(1, "GET_IMAGE", "x", 1, "", 0);
    size_t count = image.count + text.count + empty.count;
    unsigned char *all = malloc(2 * count);
    for (int i = 0; i < 2; i++) {
        unsigned char *at = all + (size_t)i * count;
        memcpy(at, text.bytes, text.count);
        memcpy(at + text.count, empty.bytes, empty.count);
        memcpy(at + text.count + empty.count, image.bytes, image.count);
    }
    static const size_t steps[] = {1, 7, 58, 59, 1000, 65536, SIZE_MAX};
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        ist_igtl_reader r = {0};
        ist_igtl_canvas canvas = {0};
        ist_live_frame *frame;
        ist_error err;
        int events = 0;
        cr_assert_eq(feed(&r, all, 2 * count, steps[s], &events, &err), IST_IGTL_IMAGE);
        cr_expect_eq(events, 6);
        cr_expect_str_eq(r.device, "Probe");
        cr_assert_eq(ist_igtl_image(&r, &canvas, &frame, &err), IST_OK, "%s", err.text);
        cr_expect(frame->image.width == 300 && frame->image.height == 301 && frame->timestamp == 5);
        for (size_t i = 0; i < 300 * 301; i++)
            cr_assert_eq(((unsigned char *)frame->image.pixels)[i], (unsigned char)(9 + i));
        ist_live_frame_drop(frame);
        ist_igtl_reader_free(&r);
    }
    free(all);
    free(image.bytes), free(text.bytes), free(empty.bytes);
}

static void broken(int version, const char *type, uint64_t size, const char *want) {
    igtl_header h = {.version = (igtl_uint16)version, .body_size = size};
    ist_igtl_reader r = {0};
    ist_error err;
    int events = 0;
    memcpy(h.name, type, strnlen(type, sizeof h.name));
    igtl_header_convert_byte_order(&h);
    cr_expect_eq(feed(&r, (const unsigned char *)&h, sizeof h, 100, &events, &err), IST_IGTL_BROKEN, "%s", want);
    cr_expect_not_null(strstr(err.text, want), "%s", err.text);
    cr_expect_eq(r.capacity, 0, "no memory is taken for what is claimed");
    ist_igtl_reader_free(&r);
}

Test(live_igtl, headers_that_cannot_be) {
    broken(0, "IMAGE", 80, "a header of version 0");
    broken(4, "IMAGE", 80, "a header of version 4");
    broken(1, "", 80, "this is not OpenIGTLink");
    broken(1, "IM\nAGE", 80, "type 'IM?AGE'");
    broken(1, "IMAGE", UINT64_C(1) << 40, "claims 1099511627776 bytes");
    broken(1, "BIND", UINT64_MAX, "claims 18446744073709551615 bytes");
}

/* A large body is believed as it comes: memory follows the bytes. */
Test(live_igtl, memory_follows_what_has_arrived) {
    igtl_header h = {.version = 1, .name = "IMAGE", .body_size = IST_IGTL_MAX_BODY};
    ist_igtl_reader r = {0};
    ist_error err;
    int events = 0;
    igtl_header_convert_byte_order(&h);
    unsigned char *bytes = calloc(1, 300000);
    memcpy(bytes, &h, sizeof h);
    cr_expect_eq(feed(&r, bytes, 300000, SIZE_MAX, &events, &err), IST_IGTL_MORE);
    cr_expect_leq(r.capacity, 600000);
    ist_igtl_reader_free(&r);
    free(bytes);
}

/* What goes out comes back: geometry, pixels and a device name that is cut so that the ending stays. */
Test(live_igtl, what_is_written_can_be_read) {
    ist_live_frame *f = ist_live_frame_new("A_device_of_20_bytes"), *back;
    ist_text out = {0};
    ist_error err;
    ist_igtl_reader r = {0};
    ist_igtl_canvas canvas = {0};
    int events = 0;
    cr_assert_eq(ist_bitmap_allocate("x", 31, 7, IST_GRAY16, 1000, &f->image, &err), IST_OK);
    for (size_t i = 0; i < 31 * 7; i++) ((uint16_t *)f->image.pixels)[i] = (uint16_t)(i * 301);
    ist_live_frame_place(f);
    f->timestamp = 77;
    f->geometry.matrix[9] = 1.5f;
    f->geometry.coord = 2;
    cr_assert_eq(ist_igtl_put_image(&out, f, "_seg", &f->image, &err), IST_OK, "%s", err.text);
    cr_assert_eq(feed(&r, (unsigned char *)out.data, out.length, 13, &events, &err), IST_IGTL_IMAGE);
    cr_expect_str_eq(r.device, "A_device_of_20_b_seg");
    cr_assert_eq(ist_igtl_image(&r, &canvas, &back, &err), IST_OK, "%s", err.text);
    cr_expect_eq(back->timestamp, 77);
    cr_expect_arr_eq(&back->geometry, &f->geometry, sizeof f->geometry);
    cr_expect_arr_eq(back->image.pixels, f->image.pixels, 31 * 7 * 2);
    char *large = calloc(1, 65537);
    cr_expect_eq(ist_igtl_put_string(&out, f, "", large, 65536, &err), IST_E_LIMIT);
    free(large);
    ist_igtl_reader_free(&r);
    ist_text_free(&out);
    ist_live_frame_drop(f);
    ist_live_frame_drop(back);
}

/* LPS images: points are RAS. */
Test(live_igtl, points_are_ras) {
    ist_live_frame *f = ist_live_frame_new("d");
    ist_text out = {0};
    ist_error err;
    const ist_igtl_point p = {.x = 3, .y = 5, .name = "p"};
    f->image.width = 11, f->image.height = 21;
    ist_live_frame_place(f);
    for (uint8_t coord = 1; coord <= 2; coord++) {
        igtl_point_element e;
        float position[3];
        f->geometry.coord = coord;
        ist_text_clear(&out);
        cr_assert_eq(ist_igtl_put_points(&out, f, "", &p, 1, &err), IST_OK);
        memcpy(&e, out.data + sizeof(igtl_header), sizeof e);
        igtl_point_convert_byte_order(&e, 1);
        memcpy(position, e.position, sizeof position);
        cr_expect_eq(position[0], coord == 1 ? -2 : 2);
        cr_expect_eq(position[1], coord == 1 ? -5 : 5);
        cr_expect_eq(position[2], 0);
    }
    f->image = (ist_bitmap){0};
    ist_text_free(&out);
    ist_live_frame_drop(f);
}
