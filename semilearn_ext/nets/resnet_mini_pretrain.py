"""Train the weights of ``resnet_mini``: ``python -m semilearn_ext.nets.resnet_mini_pretrain FILE``.

The network learns 48 letters and symbols, drawn in matplotlib's fonts like the printed digits of digits_mini. They
include no digits, and no letters that look like one. The result depends only on ``SEED``, up to rounding, which differs
between machines and numbers of threads. The weights are stored in half precision.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from semilearn_ext import files
from semilearn_ext.data.digits_generator import FONTS
from semilearn_ext.data.digits_looks import PrintLook, draw_print, to_bytes
from semilearn_ext.nets.resnet_mini import WIDTHS, backbone

CHARACTERS = "ABCDEFGHJKLMNPQRTUVWXYabdefghjkmnpqrtyw&%#@?+=$*"
PICTURES_PER_CHARACTER = 300
LOOK = PrintLook(
    height=(17.0, 26.0),
    stretch=(0.85, 1.2),
    tilt=(-15.0, 15.0),
    shift=(-3.0, 3.0),
    contrast=(0.25, 0.9),
    tint=0.40,
    clutter_shapes=4,
    clutter_contrast=0.14,
    blur=(0.0, 1.0),
    noise=(0.0, 0.05),
)
EPOCHS, BATCH, LR, WEIGHT_DECAY, SEED = 12, 64, 0.1, 5e-4, 1


def pictures() -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) in [-1, 1] and their labels (N,)."""
    images, labels = [], []
    for label, character in enumerate(CHARACTERS):
        for number in range(PICTURES_PER_CHARACTER):
            rng = np.random.default_rng([SEED, label, number])
            images.append(to_bytes(draw_print(rng, FONTS[number % len(FONTS)], character, LOOK)))
            labels.append(label)
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    return pixels.float().div(127.5).sub(1), torch.tensor(labels)


def pretrain() -> dict[str, Tensor]:
    """Train the backbone and return its weights. Prints the accuracy on a held-out tenth of the pictures."""
    torch.manual_seed(SEED)
    images, labels = pictures()
    order = torch.randperm(len(images))
    held_out, train = order[: len(order) // 10], order[len(order) // 10 :]
    net = backbone().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    classifier = nn.Linear(WIDTHS[-1], len(CHARACTERS))
    parameters = [*net.parameters(), *classifier.parameters()]
    optimizer = torch.optim.SGD(parameters, LR, momentum=0.9, weight_decay=WEIGHT_DECAY, nesterov=True)
    steps = len(train) // BATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, LR, total_steps=EPOCHS * steps)
    for epoch in range(EPOCHS):
        net.train()
        shuffled = train[torch.randperm(len(train))]
        for rows in shuffled[: steps * BATCH].chunk(steps):
            batch = images[rows].contiguous(memory_format=torch.channels_last)
            loss = F.cross_entropy(classifier(net(batch)), labels[rows], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        net.eval()
        with torch.inference_mode():
            correct = classifier(net(images[held_out])).argmax(1) == labels[held_out]
        accuracy = float(correct.float().mean())
        print(f"epoch {epoch + 1}/{EPOCHS}: loss {loss.item():.3f}, held-out accuracy {accuracy:.1%}")
    return {name: value.half() if value.is_floating_point() else value for name, value in net.state_dict().items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train the weights of resnet_mini and write them to a file.")
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    weights = pretrain()
    files.write_atomically(arguments.file, lambda file: torch.save(weights, file))
