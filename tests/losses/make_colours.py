#!/usr/bin/env python3
"""Writes the colour images that curves.json has losses for: tests/losses/colours, arrays of NumPy.

48 images to train on and 8 to test, of 9 x 8 pixels and 3 channels. The class says which channel is bright in which
rows; the rest is noise, from a seed."""

import pathlib

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent / "colours"


def main() -> None:
    random = np.random.RandomState(16)
    FOLDER.mkdir(exist_ok=True)
    for part, count in (("train", 48), ("test", 8)):
        labels = random.randint(0, 9, count).astype(np.uint8)
        images = random.randint(0, 128, (count, 9, 8, 3)).astype(np.uint8)
        for image, label in zip(images, labels):
            image[3 * (label // 3):3 * (label // 3 + 1), :, label % 3] += 128
        np.save(FOLDER / f"x_{part}.npy", images)
        np.save(FOLDER / f"y_{part}.npy", labels)


if __name__ == "__main__":
    main()
