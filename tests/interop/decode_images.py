"""Decode images with TensorFlow: one line of JSON for each, whether it could."""

import base64
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import tensorflow as tf


def decodes(data: bytes) -> bool:
    try:
        tf.io.decode_image(data, channels=0, expand_animations=False)
    except tf.errors.InvalidArgumentError:
        return False
    return True


for text in json.load(sys.stdin):
    print(json.dumps(decodes(base64.b64decode(text))))
