from .build import make
from .predictor import *
