"""Opening: every option of ist_config is a keyword; a wrong one is an exception of its kind."""
import inspect

import pytest

import isthmus
from isthmus._lib import ffi, lib
from isthmus.engine import _configure


def test_every_option_is_a_keyword():
    members = {name for name, _ in ffi.typeof("ist_config").fields} - {"struct_size", "class_count"}
    assert set(inspect.signature(isthmus.Engine).parameters) == members


def test_options_reach_the_config():
    config, _keep = _configure(
        dict(detector="a.pth", precision="fp16", match="targets_set", resize_order="pillow13", conf=0.25, batch=3,
             classes=[2, 0], multimask=True, overlap="OFF", input_size=None, cl_queue=4096))
    assert ffi.string(config.detector) == b"a.pth" and config.segmenter == ffi.NULL
    assert config.precision == lib.IST_PRECISION_FP16 and config.match == lib.IST_MATCH_TARGETS_SET
    assert config.resize_order == lib.IST_RESIZE_ORDER_PILLOW_13 and config.overlap == lib.IST_OVERLAP_OFF
    assert (config.conf, config.batch, config.class_count, config.classes[0], config.multimask) == (0.25, 3, 2, 2, 1)
    assert config.input_size == 640 and config.struct_size == ffi.sizeof("ist_config")
    assert int(ffi.cast("uintptr_t", config.cl_queue)) == 4096
    config, _keep = _configure(dict(prompts="everything", everything={"points_per_side": 8, "box_nms_thresh": 0.5}, nms_iou=0.6,
                                    nms_agnostic=True, readback="none"))
    assert config.prompts == lib.IST_PROMPTS_EVERYTHING and config.readback == lib.IST_READBACK_NONE
    assert (config.everything.points_per_side, config.everything.box_nms_thresh) == (8, 0.5)
    assert config.everything.points_per_batch == lib.ist_everything_default().points_per_batch
    assert (config.nms_iou, config.nms_agnostic) == (0.6, 1) and config.trust == ffi.NULL
    config, _keep = _configure(dict(trust={"n_lost": 7, "theta_on": 0.75}))
    assert (config.trust.n_lost, config.trust.theta_on, config.trust.weights) == (7, 0.75, 0)
    assert _configure(dict(trust=True))[0].trust.tau_conf == 0.5
    config, _keep = _configure(dict(tiles={"width": 320, "overlap": 8}, window="auto"))
    assert (config.tiles.width, config.tiles.height, config.tiles.overlap, config.tiles.whole) == (320, 640, 8, 1)
    assert config.window == lib.IST_WINDOW_AUTO and _configure(dict(tiles=True))[0].tiles.overlap == -1


@pytest.mark.parametrize(
    "options, kind, sentence",
    [
        ({"precision": "fp8"}, isthmus.ArgumentError, "'fp16'"),
        ({"batch": "many"}, isthmus.ArgumentError, "batch is 'many', want a whole number"),
        ({"batch": 2**40}, isthmus.ArgumentError, "batch is"),
        ({"batch": 65}, isthmus.ArgumentError, "config.batch is 65"),
        ({"conf": "x"}, ValueError, "conf"),
        ({"classes": [0.5]}, isthmus.ArgumentError, "classes"),
        ({"detector": "missing.pth"}, isthmus.Error, "missing.pth"),
        ({"detector": __file__}, isthmus.WeightsError, "test_options.py"),
        ({"device": "no such device"}, isthmus.NoDeviceError, "no such device"),
        ({"multimask": True}, isthmus.ArgumentError, "multimask"),
        ({"everything": {"points": 3}}, isthmus.ArgumentError, "points_per_side"),
        ({"everything": {"points_per_side": "x"}}, isthmus.ArgumentError, "everything is"),
        ({"nms_iou": 2.0}, isthmus.ArgumentError, "nms_iou"),
    ],
)
def test_a_wrong_option_is_an_exception(options, kind, sentence):
    with pytest.raises(kind) as caught:
        isthmus.Engine(**options)
    assert sentence in str(caught.value)
    assert caught.value.__class__.status.startswith("IST_E_") if isinstance(caught.value, isthmus.Error) else True


def test_every_status_has_its_exception():
    names = {name: value for value, name in ffi.typeof("ist_status").elements.items() if value}
    for name, value in names.items():
        error = isthmus.Error.of(value, "a sentence")
        assert type(error) is not isthmus.Error and (error.code, error.status) == (value, name)


def test_devices_and_facts(boxes_only):
    found = isthmus.devices()
    assert found and sum(device.is_default for device in found) == 1 and found[0].name
    info = boxes_only.info
    assert info.device in found or info.device.name in [device.name for device in found]
    precision = "fp16" if info.device.type == "gpu" else "fp32"
    assert (info.detector, info.segmenter, info.classes, info.precision) == ("dfine-n", "", 3, precision)
    assert info.device_bytes > info.arena_bytes >= info.arena_lower_bound > 0
    assert boxes_only.names == ("bone", "needle", "vessel")
