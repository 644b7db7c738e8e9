// DICOM in through DCMTK, frame by frame: MONOCHROME1 and 2, PALETTE COLOR, RGB and YBR_FULL, 8 and 16 bits allocated,
// stored as they are or with JPEG, JPEG-LS, RLE or JPEG 2000 (jpeg2000.h), in files that may be deflated. Gray of more
// than 8 bits comes as the samples that are stored, those with a sign moved up by half of their range and MONOCHROME1
// turned over, with the window that makes black and white of them in the same values: the file's first (behind its
// rescale slope and intercept), else the range of the bits stored.
//
// Only the header is in memory, and frames are read where they lie. DCMTK reads through a stream of ours, which ends
// where a hostile header would have it nest too deep or grow too long.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

extern "C" {
#include "io/image_format.h"
#include "io/inflated.h"
#include "io/jpeg2000.h"
#include "io/jpeg_survey.h"
}

#include <dcmtk/config/osconfig.h>
#include <dcmtk/dcmdata/dccodec.h>
#include <dcmtk/dcmdata/dcpxitem.h>
#include <dcmtk/dcmdata/dctk.h>
#include <dcmtk/dcmjpeg/djdecode.h>
#include <dcmtk/dcmjpls/djdecode.h>

namespace {

constexpr uint64_t MOST_HEADER = 16 << 20;  // bytes; DCMTK takes some twenty times as much for them
constexpr ptrdiff_t MOST_STACK = 256 << 10; // some 300 sequences within each other; files have four
constexpr uint64_t MOST_INFLATED = 1 << 30; // bytes, as files may have

// The bytes as DCMTK takes them. While the header is read (`base` is set) reading has its limits.
class Bytes : public DcmProducer {
  public:
    Bytes(const ist_byte_source *source, uint64_t at, const char *base) : source_(source), at_(at), base_(base) {}
    OFBool good() const override { return status_.good(); }
    OFCondition status() const override { return status_; }
    OFBool eos() override { return at_ >= source_->size; }
    offile_off_t avail() override { return status_.good() ? static_cast<offile_off_t>(source_->size - at_) : 0; }

    offile_off_t read(void *to, offile_off_t count) override {
        const char here = 0;
        if (count <= 0 || status_.bad()) return 0;
        if (base_) {
            left_ -= std::min<uint64_t>(left_, static_cast<uint64_t>(count));
            if (!left_ || std::abs(&here - base_) > MOST_STACK) {
                status_ = EC_StreamNotifyClient;
                return 0;
            }
        }
        size_t n = ist_byte_source_read(source_, at_, to, static_cast<size_t>(count));
        at_ += n;
        return static_cast<offile_off_t>(n);
    }

    offile_off_t skip(offile_off_t count) override {
        uint64_t n = count > 0 ? std::min<uint64_t>(static_cast<uint64_t>(count), source_->size - at_) : 0;
        at_ += n;
        return static_cast<offile_off_t>(n);
    }

    void putback(offile_off_t count) override {
        if (count >= 0 && static_cast<uint64_t>(count) <= at_) at_ -= static_cast<uint64_t>(count);
    }

    const ist_byte_source *source() const { return source_; }

    // From here on the bytes are deflated: `whole` becomes what there is.
    ist_status inflate(const char *name, ist_byte_source &whole, ist_error *err) {
        IST_TRY(ist_inflated_open(source_, at_, MOST_INFLATED, name, &whole, err));
        source_ = &whole;
        return IST_OK;
    }

  private:
    const ist_byte_source *source_;
    uint64_t at_, left_ = MOST_HEADER;
    const char *base_;
    OFCondition status_ = EC_Normal;
};

struct Dicom;

class Stream : public DcmInputStream {
  public:
    Stream(const ist_byte_source *source, uint64_t at, const char *base, Dicom *loaded)
        : DcmInputStream(&bytes_), begin_(at), bytes_(source, at, base), loaded_(loaded) {}
    DcmInputStreamFactory *newFactory() const override;
    OFCondition installCompressionFilter(E_StreamCompression) override;

  private:
    uint64_t begin_;
    Bytes bytes_;
    Dicom *loaded_; // whose file this reads for the first time, or nullptr
};

// Where an element lies that is read later.
class Place : public DcmInputStreamFactory {
  public:
    Place(const ist_byte_source *source, uint64_t at) : source_(source), at_(at) {}
    DcmInputStream *create() const override { return new Stream(source_, at_, nullptr, nullptr); }
    DcmInputStreamFactory *clone() const override { return new Place(*this); }
    DcmInputStreamFactoryType ident() const override { return DFT_DcmInputTempFileStreamFactory; }

  private:
    const ist_byte_source *source_;
    uint64_t at_;
};

DcmInputStreamFactory *Stream::newFactory() const {
    return new Place(bytes_.source(), begin_ + static_cast<uint64_t>(tell()));
}

struct Dicom {
    const ist_byte_source *source;
    ist_byte_source whole{-1, nullptr, nullptr, 0}; // of a deflated file
    ist_error failure{};                            // of inflating it
    const char *name;
    size_t max_pixels;
    DcmFileFormat file;
    DcmPixelData *pixels = nullptr;
    OFString photometric;
    Uint16 rows = 0, columns = 0, samples = 1, allocated = 0, stored = 0, high = 0, with_sign = 0, planar = 0;
    Uint32 frame_bytes = 0;
    size_t frames = 1;
    std::vector<uint8_t> palette[3];
    int palette_first = 0;
    Uint32 fragment = 0; // where `next` begins
    size_t next = 0;
    ist_bitmap values{}; // what samples stand for, and the window

    ~Dicom() { ist_byte_source_close(&whole); }
    DcmDataset *data() { return file.getDataset(); }
    bool gray() const { return photometric == "MONOCHROME1" || photometric == "MONOCHROME2"; }
    bool deep() const { return gray() && (stored > 8 || allocated > 8); }
    ist_pixel_format format() const { return !gray() ? IST_RGB8 : deep() ? IST_GRAY16 : IST_GRAY8; }
};

// DCMTK has read the meta header, which says that the rest is deflated.
OFCondition Stream::installCompressionFilter(E_StreamCompression) {
    return loaded_ && !bytes_.inflate(loaded_->name, loaded_->whole, &loaded_->failure) ? EC_Normal
                                                                                        : EC_UnsupportedEncoding;
}

// DCMTK's decoders and its log are the process's; this is done once.
bool prepare_dcmtk() {
    OFLog::configure(OFLogger::OFF_LOG_LEVEL);
    DJDecoderRegistration::registerCodecs(EDC_photometricInterpretation, EUC_never, EPC_colorByPixel);
    DJLSDecoderRegistration::registerCodecs(EJLSUC_never, EJLSPC_colorByPixel);
    return true;
}

ist_status damaged(const Dicom &d, const char *what, ist_error *err) {
    return ist_fail(err, IST_E_INPUT, "%s: damaged DICOM: %s", d.name, what);
}

// PS3.3, C.11.1.1.2 and C.11.2.1.2: the values that samples stand for, behind rescale slope and intercept, and which of
// them become black and white, from centre and width.
void find_window(Dicom &d) {
    Float64 center = 0, width = 0, slope = 1, intercept = 0;
    const int most = (1 << d.stored) - 1;
    bool given = d.data()->findAndGetFloat64(DCM_WindowCenter, center, 0, OFTrue).good() &&
                 d.data()->findAndGetFloat64(DCM_WindowWidth, width, 0, OFTrue).good();
    if (d.data()->findAndGetFloat64(DCM_RescaleSlope, slope, 0, OFTrue).bad()) slope = 1; // it was set all the same
    if (d.data()->findAndGetFloat64(DCM_RescaleIntercept, intercept, 0, OFTrue).bad()) intercept = 0;
    bool scaled = std::isfinite(slope) && std::isfinite(intercept) && slope > 0;
    if (!scaled) slope = 1, intercept = 0;
    double least = intercept - slope * (d.with_sign ? std::ldexp(1, d.stored - 1) : 0);
    bool turned = d.photometric == "MONOCHROME1";
    d.values.value_zero = turned ? least + slope * most : least;
    d.values.value_step = turned ? -slope : slope;
    d.values.window_low = 0, d.values.window_high = most;
    if (!given || !scaled || !(width >= 1) || !std::isfinite(center) || !std::isfinite(width)) return;
    int window[2];
    double low = center - 0.5 - (width - 1) / 2;
    ist_bitmap_window(&d.values, low, low + width - 1, window);
    d.values.window_low = window[0], d.values.window_high = window[1];
}

bool read_palette(Dicom &d) {
    const DcmTagKey descriptors[3] = {DCM_RedPaletteColorLookupTableDescriptor,
                                      DCM_GreenPaletteColorLookupTableDescriptor,
                                      DCM_BluePaletteColorLookupTableDescriptor};
    const DcmTagKey tables[3] = {DCM_RedPaletteColorLookupTableData, DCM_GreenPaletteColorLookupTableData,
                                 DCM_BluePaletteColorLookupTableData};
    for (int c = 0; c < 3; c++) {
        Uint16 first = 0, entries = 0, bits = 0;
        const Uint16 *words = nullptr;
        unsigned long count = 0;
        if (d.data()->findAndGetUint16(descriptors[c], entries, 0).bad() ||
            d.data()->findAndGetUint16(descriptors[c], first, 1).bad() ||
            d.data()->findAndGetUint16(descriptors[c], bits, 2).bad() || (bits != 8 && bits != 16) ||
            d.data()->findAndGetUint16Array(tables[c], words, &count).bad() || !words)
            return false;
        size_t many = entries ? entries : 65536;
        bool packed = bits == 8 && count < many; // two to a word
        if ((packed ? 2 * count : count) < many) return false;
        d.palette_first = d.with_sign ? static_cast<int16_t>(first) : first;
        for (size_t i = 0; i < many; i++) {
            Uint16 word = packed ? words[i / 2] >> (i % 2 ? 8 : 0) : words[i];
            d.palette[c].push_back(static_cast<uint8_t>(bits == 16 ? word >> 8 : word));
        }
    }
    return true;
}

// Everything that does not need the pixels.
ist_status describe(Dicom &d, ist_error *err) {
    DcmDataset *data = d.data();
    DcmElement *element = nullptr;
    Sint32 frames = 1;
    if (data->findAndGetElement(DCM_PixelData, element).bad() || !(d.pixels = dynamic_cast<DcmPixelData *>(element)))
        return ist_fail(err, IST_E_INPUT, "%s: a DICOM file without pictures", d.name);
    data->findAndGetUint16(DCM_Rows, d.rows);
    data->findAndGetUint16(DCM_Columns, d.columns);
    if (data->findAndGetUint16(DCM_SamplesPerPixel, d.samples).bad()) d.samples = 1;
    data->findAndGetUint16(DCM_BitsAllocated, d.allocated);
    if (data->findAndGetUint16(DCM_BitsStored, d.stored).bad()) d.stored = d.allocated;
    if (data->findAndGetUint16(DCM_HighBit, d.high).bad()) d.high = static_cast<Uint16>(d.stored - 1);
    data->findAndGetUint16(DCM_PixelRepresentation, d.with_sign);
    data->findAndGetUint16(DCM_PlanarConfiguration, d.planar);
    data->findAndGetOFString(DCM_PhotometricInterpretation, d.photometric);
    if (data->findAndGetSint32(DCM_NumberOfFrames, frames).bad()) frames = 1;
    bool color = d.samples == 3 && d.allocated == 8 && d.stored == 8;
    bool single = d.samples == 1 && (d.gray() || d.photometric == "PALETTE COLOR");
    if (!(color || single) || (d.allocated != 8 && d.allocated != 16))
        return ist_fail(err, IST_E_INPUT,
                        "%s: %u samples of %u bits in photometric interpretation %s: no such DICOM is read", d.name,
                        d.samples, d.allocated, d.photometric.c_str());
    if (!d.stored || d.stored > d.allocated || d.high >= d.allocated || d.high + 1 < d.stored)
        return damaged(d, "bits stored that are not allocated", err);
    if (d.photometric == "PALETTE COLOR" && !read_palette(d)) return damaged(d, "its palette is missing or cut", err);
    if (frames < 1) return damaged(d, "no frames", err);
    d.frames = static_cast<size_t>(frames);
    if (d.deep()) find_window(d);
    return IST_OK;
}

// What DCMTK 3.6.7 and 3.6.9 call differently: the first of each is the newer one, taken where it is there.
template <class Xfer> auto uses_fragments(const Xfer &x, int) -> decltype(x.usesEncapsulatedFormat()) {
    return x.usesEncapsulatedFormat();
}
template <class Xfer> OFBool uses_fragments(const Xfer &x, long) {
    return x.isEncapsulated();
}
template <class Pixels>
auto frame_size(const Pixels &p, DcmItem *data, Uint32 &bytes, OFBool raw, int)
    -> decltype(p.getUncompressedFrameSize(data, bytes, raw)) {
    return p.getUncompressedFrameSize(data, bytes, raw);
}
template <class Pixels> OFCondition frame_size(const Pixels &p, DcmItem *data, Uint32 &bytes, OFBool, long) {
    return p.getUncompressedFrameSize(data, bytes);
}

bool encapsulated(Dicom &d) {
    return uses_fragments(DcmXfer(d.data()->getOriginalXfer()), 0);
}

bool holds_jpeg2000(Dicom &d) {
    const E_TransferSyntax coding = d.data()->getOriginalXfer();
    return coding == EXS_JPEG2000LosslessOnly || coding == EXS_JPEG2000;
}

// What the codestream of a frame must be.
ist_jpeg2000_frame jpeg2000_frame(const Dicom &d) {
    return {d.columns, d.rows, d.samples, d.allocated};
}

// Of a coding that DCMTK does not know: it has taken its fragments for no pixels.
ist_status refuse_unknown(Dicom &d, const OFString &coding, ist_error *err) {
    const bool high_throughput = coding.compare(0, 22, "1.2.840.10008.1.2.4.20") == 0; // 201 to 203
    return ist_fail(err, IST_E_INPUT, "%s: is coded as %s (%s), which is not read", d.name,
                    high_throughput ? "High-Throughput JPEG 2000" : "nothing that is known", coding.c_str());
}

// A number of frames costs nothing to write: there must be bytes, or fragments, for them.
ist_status check_frames(Dicom &d, ist_error *err) {
    size_t want = size_t{d.rows} * d.columns * d.samples * (d.allocated / 8);
    if (!want || frame_size(*d.pixels, d.data(), d.frame_bytes, !encapsulated(d), 0).bad() || d.frame_bytes != want)
        return damaged(d, "a frame has no size, or another than its rows have", err);
    if (!encapsulated(d)) {
        OFString coding;
        d.file.getMetaInfo()->findAndGetOFString(DCM_TransferSyntaxUID, coding);
        if (!d.pixels->getLength() && DcmXfer(coding.c_str()).getXfer() == EXS_Unknown)
            return refuse_unknown(d, coding, err);
        if (d.pixels->getLength() / want < d.frames)
            return ist_fail(err, IST_E_INPUT, "%s: the DICOM is truncated: %u bytes for %zu frames of %zu", d.name,
                            d.pixels->getLength(), d.frames, want);
        return IST_OK;
    }
    DcmPixelSequence *sequence = nullptr;
    if (d.pixels->getEncapsulatedRepresentation(d.data()->getOriginalXfer(), nullptr, sequence).bad() || !sequence ||
        sequence->card() <= d.frames)
        return damaged(d, "fewer fragments than frames", err);
    return IST_OK;
}

ist_status load(Dicom &d, ist_error *err) {
    const char base = 0;
    Stream stream(d.source, 0, &base, &d);
    d.file.transferInit();
    OFCondition condition = d.file.read(stream, EXS_Unknown, EGL_noChange, 4096);
    d.file.transferEnd();
    if (d.failure.code && err) *err = d.failure;
    if (d.failure.code) return d.failure.code;
    if (condition.bad()) return damaged(d, condition.text(), err);
    IST_TRY(describe(d, err));
    if (size_t{d.rows} * d.columns > d.max_pixels) return IST_OK; // reading says so
    return check_frames(d, err);
}

ist_status open_dicom(const ist_byte_source *source, const char *name, size_t max_pixels, void **state, size_t *frames,
                      ist_image_size *largest, ist_error *err) {
    static const bool prepared = prepare_dcmtk();
    (void)prepared;
    Dicom *d = nullptr;
    ist_status status;
    try {
        d = new Dicom{};
        d->source = source, d->name = name, d->max_pixels = max_pixels;
        status = load(*d, err);
    } catch (const std::bad_alloc &) {
        status = ist_fail(err, IST_E_MEMORY, "%s: out of memory", name);
    }
    if (status) {
        delete d;
        return status;
    }
    ist_image_size_set(largest, d->columns, d->rows, d->gray() ? (d->deep() ? 2 : 1) : 3, max_pixels);
    largest->passing = 2 * size_t{d->frame_bytes}; // as it lies there, and compressed
    if (holds_jpeg2000(*d)) largest->passing += ist_jpeg2000_passing(jpeg2000_frame(*d));
    *state = d;
    *frames = largest->pixels ? d->frames : 1;
    return IST_OK;
}

uint32_t little_endian(const Uint8 *p) {
    return p[0] | p[1] << 8 | p[2] << 16 | static_cast<uint32_t>(p[3]) << 24;
}

// PackBits, PS3.5, G.3: `count` bytes, each `step` behind the one before; false where the segment has fewer.
bool unpack(const Uint8 *p, const Uint8 *end, uint8_t *to, size_t count, size_t step) {
    size_t done = 0;
    while (done < count && p < end) {
        const unsigned n = *p++;
        if (n == 128) continue;
        const bool run = n > 128;
        const size_t many = run ? 257 - n : n + 1, bytes = run ? 1 : many;
        if (static_cast<size_t>(end - p) < bytes) return false;
        for (size_t i = 0; i < many && done < count; i++, done++) to[done * step] = run ? *p : p[i];
        p += bytes;
    }
    return done == count;
}

// RLE, one fragment a frame: a table of segments, of which each is a byte of a sample, the high one first, plane by
// plane. Our own, since DCMTK's of 3.6.7 reads beyond a fragment that is damaged.
ist_status read_runs(Dicom &d, size_t frame, std::vector<uint8_t> &to, ist_error *err) {
    DcmPixelSequence *sequence = nullptr;
    DcmPixelItem *item = nullptr;
    Uint8 *bytes = nullptr;
    if (d.pixels->getEncapsulatedRepresentation(EXS_RLELossless, nullptr, sequence).bad() || !sequence ||
        sequence->card() != d.frames + 1)
        return ist_fail(err, IST_E_INPUT, "%s: RLE of several fragments a frame is not read", d.name);
    if (sequence->getItem(item, static_cast<unsigned long>(frame) + 1).bad() || !item ||
        item->getUint8Array(bytes).bad() || !bytes)
        return damaged(d, "a fragment cannot be read", err);
    const size_t length = item->getLength(), width = d.allocated / 8, pixels = size_t{d.rows} * d.columns;
    const size_t segments = d.samples * width;
    bool whole = length >= 64 && little_endian(bytes) == segments && segments <= 15;
    for (size_t i = 0; i < segments && whole; i++) {
        const size_t begin = little_endian(bytes + 4 + 4 * i);
        const size_t end = i + 1 < segments ? little_endian(bytes + 8 + 4 * i) : length;
        const size_t first = i / width * pixels * width + (width - 1 - i % width); // the low byte comes first
        whole = begin >= 64 && begin <= end && end <= length &&
                unpack(bytes + begin, bytes + end, to.data() + first, pixels, width);
    }
    item->compact(); // it is in the file
    return whole ? IST_OK : damaged(d, "runs that are cut or too short", err);
}

// Video, mostly.
ist_status refuse_coding(Dicom &d, ist_error *err) {
    const DcmXfer coding(d.data()->getOriginalXfer());
    return ist_fail(err, IST_E_INPUT, "%s: is coded as %s (%s), which %s", d.name, coding.getXferName(),
                    coding.getXferID(),
                    holds_jpeg2000(d) ? "this isthmus was built without (Debian: libopenjp2-7-dev)" : "is not read");
}

// Whether DCMTK's look for a JPEG's depth, which goes from marker to marker up to the frame's, would stay at one for
// ever: TEM, which stands for nothing outside of coders (3.6.7 and 3.6.8).
bool never_ends(const Uint8 *p, size_t count) {
    for (size_t at = 0; at + 4 < count && p[at] == 0xFF;) {
        const unsigned marker = p[at + 1];
        const bool frame = marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
        if (marker == 1) return true;
        if (marker == 0 || marker == 2 || frame) return false;
        const bool alone = marker < 0xC0 || (marker >= 0xD0 && marker <= 0xD9);
        at += marker == 0xFF ? 1 : alone ? 2 : 2 + (size_t{p[at + 2]} << 8 | p[at + 3]);
    }
    return false;
}

// A frame's fragments, as DCMTK goes through them.
struct Fragments {
    Uint32 first = 0, end = 0;
    std::vector<uint8_t> bytes;
};

bool ends_image(const std::vector<uint8_t> &b) {
    const size_t n = b.size() - (!b.empty() && !b.back() ? 1 : 0); // they are padded to an even length
    return n >= 2 && b[n - 2] == 0xFF && b[n - 1] == 0xD9;
}

// Fragments from f.first on, up to one that ends an image, or the one before `stop`.
ist_status append(const Dicom &d, DcmPixelSequence &sequence, size_t stop, Fragments &f, ist_error *err) {
    const size_t most = 2 * size_t{d.frame_bytes} + (1 << 20);
    f.bytes.clear();
    for (f.end = f.first; f.end < stop && !ends_image(f.bytes); f.end++) {
        DcmPixelItem *item = nullptr;
        Uint8 *bytes = nullptr;
        if (sequence.getItem(item, f.end).bad() || !item) return damaged(d, "a fragment cannot be read", err);
        if (item->getLength() > most - f.bytes.size())
            return damaged(d, "a frame of more compressed bytes than twice its pixels", err);
        if (!item->getLength()) continue;
        if (item->getUint8Array(bytes).bad() || !bytes) return damaged(d, "a fragment cannot be read", err);
        f.bytes.insert(f.bytes.end(), bytes, bytes + item->getLength());
    }
    return IST_OK;
}

ist_status gather(Dicom &d, DcmPixelSequence &sequence, size_t frame, Fragments &f, ist_error *err) {
    f.first = frame == d.next ? d.fragment : 0;
    if (!f.first &&
        DcmCodec::determineStartFragment(static_cast<Uint32>(frame), static_cast<Sint32>(d.frames), &sequence, f.first)
            .bad())
        return damaged(d, "a frame's first fragment cannot be found", err);
    return append(d, sequence, sequence.card(), f, err);
}

// DCMTK's decoders take memory for the size that a JPEG says, whatever the file's is, and go over a progressive one as
// often as it asks.
ist_status check_jpeg(Dicom &d, const std::vector<uint8_t> &bytes, ist_error *err) {
    const ist_jpeg_survey s = ist_jpeg_survey_of(bytes.data(), bytes.size());
    if (!s.ended && ends_image(bytes)) return damaged(d, "a frame's JPEG ends within a segment", err);
    if (s.scans > IST_JPEG_MOST_SCANS)
        return ist_fail(err, IST_E_LIMIT, "%s: a JPEG of %zu scans, the limit is %d", d.name, s.scans,
                        IST_JPEG_MOST_SCANS);
    if (!s.width || (s.width == d.columns && s.height == d.rows && s.samples == d.samples)) return IST_OK;
    return ist_fail(err, IST_E_INPUT,
                    "%s: damaged DICOM: a JPEG of %zu x %zu pixels in %zu for frames of %u x %u in %u", d.name, s.width,
                    s.height, s.samples, d.columns, d.rows, d.samples);
}

bool holds_jpeg(Dicom &d) {
    const E_TransferSyntax coding = d.data()->getOriginalXfer();
    return encapsulated(d) && coding != EXS_RLELossless && coding != EXS_JPEGLSLossless && coding != EXS_JPEGLSLossy;
}

// Has looked at a frame before DCMTK decodes it, and where it begins.
ist_status look_at(Dicom &d, size_t frame, Uint32 &fragment, ist_error *err) {
    DcmPixelSequence *sequence = nullptr;
    Fragments f;
    if (d.pixels->getEncapsulatedRepresentation(d.data()->getOriginalXfer(), nullptr, sequence).bad() || !sequence)
        return damaged(d, "its fragments are missing", err);
    IST_TRY(gather(d, *sequence, frame, f, err));
    fragment = f.first;
    if (never_ends(f.bytes.data(), f.bytes.size()))
        return damaged(d, "a marker in a JPEG that has no place there", err);
    return check_jpeg(d, f.bytes, err);
}

// What has been decoded is in the file.
void forget(Dicom &d, Uint32 first, Uint32 end) {
    DcmPixelSequence *sequence = nullptr;
    DcmPixelItem *item = nullptr;
    if (d.pixels->getEncapsulatedRepresentation(d.data()->getOriginalXfer(), nullptr, sequence).bad() || !sequence)
        return;
    for (Uint32 i = first; i < end; i++)
        if (sequence->getItem(item, i).good() && item) item->compact();
}

#ifdef ISTHMUS_JPEG2000
// Each fragment is a frame, or they are told apart by where their codestreams end; tables of offsets are often wrong.
ist_status gather_jpeg2000(Dicom &d, DcmPixelSequence &sequence, size_t frame, Fragments &f, ist_error *err) {
    if (sequence.card() == d.frames + 1) { // the first is the table
        f.first = static_cast<Uint32>(frame) + 1;
        return append(d, sequence, frame + 2, f, err);
    }
    const bool ahead = d.fragment && frame >= d.next;
    f.end = ahead ? d.fragment : 1;
    for (size_t i = ahead ? d.next : 0; i <= frame; i++) {
        forget(d, f.first, f.end);
        f.first = f.end;
        IST_TRY(append(d, sequence, sequence.card(), f, err));
    }
    d.next = frame + 1, d.fragment = f.end;
    return IST_OK;
}

// Through OpenJPEG. Samples are those stored, wherever a high bit says that they lie; colours come as RGB where they
// were RGB before they were coded.
ist_status read_jpeg2000(Dicom &d, size_t frame, std::vector<uint8_t> &to, OFString &model, ist_error *err) {
    DcmPixelSequence *sequence = nullptr;
    Fragments f;
    if (d.pixels->getEncapsulatedRepresentation(d.data()->getOriginalXfer(), nullptr, sequence).bad() || !sequence)
        return damaged(d, "its fragments are missing", err);
    const ist_status status = gather_jpeg2000(d, *sequence, frame, f, err);
    forget(d, f.first, f.end);
    if (status) return status;
    d.high = static_cast<Uint16>(d.stored - 1);
    model = d.photometric == "YBR_ICT" || d.photometric == "YBR_RCT" ? "RGB" : d.photometric;
    const ist_jpeg2000_frame want = jpeg2000_frame(d);
    return ist_jpeg2000_decode(f.bytes.data(), f.bytes.size(), d.name, &want, d.with_sign, to.data(), err);
}
#endif

// The frame's samples in d.frame_bytes bytes, by pixel or plane by plane, and their colours.
ist_status read_samples(Dicom &d, size_t frame, std::vector<uint8_t> &to, OFString &model, ist_error *err) {
    to.resize(size_t{d.frame_bytes} + d.frame_bytes % 2);
    if (d.data()->getOriginalXfer() == EXS_RLELossless) {
        model = d.photometric;
        return read_runs(d, frame, to, err);
    }
#ifdef ISTHMUS_JPEG2000
    if (holds_jpeg2000(d)) return read_jpeg2000(d, frame, to, model, err);
#endif
    if (encapsulated(d) && !DcmCodecList::canChangeCoding(d.data()->getOriginalXfer(), EXS_LittleEndianExplicit))
        return refuse_coding(d, err);
    Uint32 fragment = frame == d.next ? d.fragment : 0;
    if (holds_jpeg(d)) IST_TRY(look_at(d, frame, fragment, err));
    const Uint32 first = fragment;
    OFCondition condition = d.pixels->getUncompressedFrame(d.data(), static_cast<Uint32>(frame), fragment, to.data(),
                                                           static_cast<Uint32>(to.size()), model);
    if (condition.bad()) return damaged(d, condition.text(), err);
    if (holds_jpeg(d)) forget(d, first, fragment);
    d.next = frame + 1, d.fragment = fragment;
    return IST_OK;
}

void put_gray(const Dicom &d, const uint8_t *from, ist_bitmap *out) {
    const unsigned mask = (1u << d.stored) - 1, half = d.with_sign ? 1u << (d.stored - 1) : 0;
    const int shift = d.high + 1 - d.stored;
    const bool turned = d.photometric == "MONOCHROME1", wide = d.allocated == 16;
    const size_t count = size_t{d.rows} * d.columns;
    for (size_t i = 0; i < count; i++) {
        uint16_t word = from[i];
        if (wide) memcpy(&word, from + 2 * i, 2);
        unsigned v = ((word >> shift & mask) + half) & mask; // moves values with a sign up by half their range
        if (turned) v = mask - v;
        if (d.deep())
            static_cast<uint16_t *>(out->pixels)[i] = static_cast<uint16_t>(v);
        else
            static_cast<uint8_t *>(out->pixels)[i] = static_cast<uint8_t>(v * 255 / mask);
    }
}

void put_palette(const Dicom &d, const uint8_t *from, ist_bitmap *out) {
    const size_t count = size_t{d.rows} * d.columns;
    for (size_t i = 0; i < count; i++) {
        uint16_t word = from[i];
        if (d.allocated == 16) memcpy(&word, from + 2 * i, 2);
        int v = (d.with_sign ? static_cast<int16_t>(word) : word) - d.palette_first;
        for (int c = 0; c < 3; c++) {
            size_t last = d.palette[c].size() - 1, at = v < 0 ? 0 : std::min(static_cast<size_t>(v), last);
            static_cast<uint8_t *>(out->pixels)[3 * i + static_cast<size_t>(c)] = d.palette[c][at];
        }
    }
}

uint8_t to_byte(double v) {
    return static_cast<uint8_t>(std::min(255.0, std::max(0.0, std::floor(v + 0.5))));
}

void put_color(const Dicom &d, const uint8_t *from, bool planes, bool ybr, ist_bitmap *out) {
    const size_t count = size_t{d.rows} * d.columns;
    for (size_t i = 0; i < count; i++) {
        const uint8_t p[3] = {from[planes ? i : 3 * i], from[planes ? count + i : 3 * i + 1],
                              from[planes ? 2 * count + i : 3 * i + 2]};
        uint8_t *to = static_cast<uint8_t *>(out->pixels) + 3 * i;
        if (!ybr) {
            memcpy(to, p, 3);
            continue;
        }
        double y = p[0], cb = p[1] - 128.0, cr = p[2] - 128.0; // PS3.3, C.7.6.3.1.2
        to[0] = to_byte(y + 1.402 * cr);
        to[1] = to_byte(y - 0.114 * 1.772 / 0.587 * cb - 0.299 * 1.402 / 0.587 * cr);
        to[2] = to_byte(y + 1.772 * cb);
    }
}

ist_status read_frame(Dicom &d, size_t frame, ist_bitmap *out, ist_error *err) {
    std::vector<uint8_t> samples;
    OFString model;
    IST_TRY(ist_bitmap_allocate(d.name, d.columns, d.rows, d.format(), d.max_pixels, out, err));
    IST_TRY(read_samples(d, frame, samples, model, err));
    if (d.gray()) {
        put_gray(d, samples.data(), out);
        out->window_low = d.values.window_low, out->window_high = d.values.window_high;
        out->value_zero = d.values.value_zero, out->value_step = d.values.value_step;
        return IST_OK;
    }
    if (d.photometric == "PALETTE COLOR") {
        put_palette(d, samples.data(), out);
        return IST_OK;
    }
    bool ybr = model == "YBR_FULL";
    if (!ybr && model != "RGB")
        return ist_fail(err, IST_E_INPUT, "%s: colours in photometric interpretation %s are not read", d.name,
                        model.c_str());
    bool runs = d.data()->getOriginalXfer() == EXS_RLELossless; // other decoders were told to go by pixel
    put_color(d, samples.data(), runs || (!encapsulated(d) && d.planar == 1), ybr, out);
    return IST_OK;
}

ist_status read_dicom(void *state, size_t frame, ist_bitmap *out, ist_error *err) {
    Dicom &d = *static_cast<Dicom *>(state);
    try {
        return read_frame(d, frame, out, err); // the caller frees what a failure leaves
    } catch (const std::bad_alloc &) {
        return ist_fail(err, IST_E_MEMORY, "%s: out of memory", d.name);
    }
}

void close_dicom(void *state) {
    delete static_cast<Dicom *>(state);
}

} // namespace

extern "C" const ist_container ist_dicom_container;
const ist_container ist_dicom_container = {open_dicom, read_dicom, close_dicom, true};
