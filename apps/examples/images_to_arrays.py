#!/usr/bin/env python3
"""Makes the arrays that lockstep-train reads of a folder of images:

    python3 images_to_arrays.py IMAGES ARRAYS [SIDE]

IMAGES has a folder for each class, or such folders below `train` and `test` (or `val`). Without a test set, every tenth
image is one. Each image becomes SIDE x SIDE (32) pixels of red, green and blue in ARRAYS/x_train.npy and x_test.npy; the
classes in y_train.npy and y_test.npy are numbered in the order of their names, which are printed. Needs numpy and
Pillow."""
import pathlib
import sys

import numpy
import PIL.Image

ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}


def images_in(folder):
    """The paths of its images, in the order of classes and names."""
    return sorted(path for path in folder.glob("*/*") if path.suffix.lower() in ENDINGS)


def save(arrays, part, paths, classes, side):
    pixels = [numpy.asarray(PIL.Image.open(path).convert("RGB").resize((side, side))) for path in paths]
    numpy.save(arrays / f"x_{part}.npy", numpy.stack(pixels))
    numpy.save(arrays / f"y_{part}.npy", numpy.array([classes.index(path.parent.name) for path in paths]))
    print(f"{part}: {len(paths)} images")


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    images, arrays = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    side = int(sys.argv[3]) if len(sys.argv) == 4 else 32
    tests = [name for name in ("test", "val", "valid", "validation") if (images / name).is_dir()]
    if (images / "train").is_dir() and tests:
        train, test = images_in(images / "train"), images_in(images / tests[0])
    else:
        paths = images_in(images)
        train = [path for number, path in enumerate(paths) if number % 10 != 9]
        test = paths[9::10]
    if not train or not test:
        sys.exit(f"{images}: has {len(train)} images to train on and {len(test)} to test; expected some of both in "
                 "folders of classes")
    classes = sorted({path.parent.name for path in train})
    strange = sorted({path.parent.name for path in test} - set(classes))
    if strange:
        sys.exit(f"{images}: the test set has the classes {', '.join(strange)}, of which there is no image to train on")
    arrays.mkdir(parents=True, exist_ok=True)
    save(arrays, "train", train, classes, side)
    save(arrays, "test", test, classes, side)
    print(f"classes: {', '.join(f'{number} {name}' for number, name in enumerate(classes))}")


if __name__ == "__main__":
    main()
