import torch


def upload_boxes(found):
    return found.boxes.cuda()  # the other end of a chain


def describe(boxes):
    host = boxes.cpu()  # expect: host_round_trip critical
    return {"boxes": host.numpy() * 2, "count": 3}


def names_of(shape):
    return ["object"] * shape[0]
