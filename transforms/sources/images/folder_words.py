"""The names of folders that tell images from files that belong to images."""

from __future__ import annotations

import re

# Names of folders with images, next to folders of partners.
IMAGES_FOLDER = re.compile(
    "(images?|imgs?|jpe?gimages|photos?|pictures|rgb|leftimg8bit|inputs?|raw|originals?|"
    "frames|stills|scans|x)"
)

# The folder of images in a path: `images` in `data/images/1.jpg`.
IMAGES_PARENT = re.compile(r"(?:.*?/)?(?:images|JPEGImages)(?=/|$)")

# Names of folders with files that belong to images. The mask folders are from published
# datasets: VOC, CamVid, Oxford-IIIT Pet, ADE20K, Cityscapes, Carvana.
PARTNER_FOLDER = re.compile(
    r"(?P<base>.*?)[-_ ]?(?P<mask>masks?|labels?|annotations?|annots?|gts?|"
    r"ground[-_ ]?truths?|gt(fine|coarse)|tri-?maps?|targets?|"
    r"(segmentation|segs?|semantic|instance|object)[-_ ]?(masks?|labels?|maps?)?|"
    r"segmentation(class|object)(aug|raw)?)|"
    r"captions?|texts?|txt|prompts?|json|meta(data)?|npy|embeddings?",
    re.IGNORECASE,
)
