from .model import Sam


def build_tiny():
    return Sam(160)


def build_large():
    return Sam(1024)


make = {"tiny": build_tiny, "large": build_large}
